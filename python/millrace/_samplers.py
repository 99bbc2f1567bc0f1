"""The order of samples: the engine's samplers, and sampler objects of torch's form."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from . import _core
from ._lengths import share_of
from ._told import Told
from ._seeding import RandomState, state_from_json, state_to_json

CHUNK = 4096  # batches that are taken at once from a sampler without a length


class Order:
    """An order that is a function of the epoch. Picklable.

    kind, options: of _core.Sampler. n: the data set's length.
    """

    def __init__(self, kind: str, n: int, **options: Any) -> None:
        self.kind, self.n, self.options = kind, n, options
        self._sampler: _core.Sampler | None = None

    @property
    def sampler(self) -> _core.Sampler:
        if self._sampler is None:
            self._sampler = _core.Sampler(self.kind, self.n, **self.options)
        return self._sampler

    @property
    def text(self) -> str:
        return self.sampler.text

    @property
    def length(self) -> int:
        return self.sampler.length

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": None}


class Plan(Protocol):
    """Which samples a batch consists of."""

    def batch(self, epoch: int, number: int) -> Sequence[Any] | None:
        """The samples' keys; None: the epoch has no such batch."""


class Share(Plan):
    """The batches of one rank, by an Order. start: the position at which epoch `first` begins."""

    def __init__(
        self, order: Order, batch_size: int, drop_last: bool, rank: int, world: int, remainder: str
    ) -> None:
        self.order, self.batch_size, self.drop_last = order, batch_size, drop_last
        self.rank, self.world, self.remainder = rank, world, remainder
        self.first, self.start = 0, 0

    def samples(self, epoch: int) -> int:
        """Of this rank in this epoch."""
        left = self.order.length - self._start(epoch)
        return share_of(left, self.rank, self.world, self.remainder)

    def batches(self, epoch: int) -> int:
        n = self.samples(epoch)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def batch(self, epoch: int, number: int) -> Sequence[Any] | None:
        if number >= self.batches(epoch):
            return None
        at = number * self.batch_size
        count = min(self.batch_size, self.samples(epoch) - at)
        begin = self._start(epoch) + at * self.world
        end = begin + count * self.world
        length = self.order.length
        keys = self.order.sampler.map(epoch, begin, min(end, length) - begin)
        if end > length and self.remainder == "pad":
            keys += self.order.sampler.map(epoch, 0, end - length)
        return keys[self.rank :: self.world]

    def _start(self, epoch: int) -> int:
        return self.start if epoch == self.first else 0


class Listed(Plan):
    """Batches from a list; with `shared` in memory that worker processes read, too."""

    def __init__(self, batches: list[Any], shared: bool) -> None:
        self._value = Told(batches, shared)
        self.set, self.close = self._value.set, self._value.close

    def batch(self, epoch: int, number: int) -> Sequence[Any] | None:
        del epoch
        batches = self._value.get()
        return batches[number] if number < len(batches) else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_value": self._value}


class LeftOut:
    """The samples that batches are made without, since they end the process that makes them."""

    def __init__(self, shared: bool) -> None:
        self._value = Told({}, shared)

    def add(self, epoch: int, number: int, place: int) -> None:
        """No batch may be under way."""
        places = self._value.get()
        self._value.set({**places, (epoch, number): {place, *self.places(epoch, number)}})

    def places(self, epoch: int, number: int) -> set[int]:
        """Of a batch's samples."""
        found: set[int] = self._value.get().get((epoch, number), set())
        return found

    def close(self) -> None:
        self._value.close()


def some_of(items: Sequence[Any]) -> list[Any]:
    """The first, the middle and the last one."""
    n = len(items)
    return [items[i] for i in sorted({0, n // 2, n - 1})] if n else []


def checked(keys: Iterable[Any], n: int, below: int | None = None) -> list[int]:
    """A sampler's keys as indices from 0 to n - 1; negative ones count from the end, as Python's.

    below: the least one; None: -n. Raises IndexError for others, TypeError for no whole numbers.
    """
    found = [operator.index(key) for key in keys]
    least = -n if below is None else below
    if found and not (least <= min(found) and max(found) < n):
        wrong = next(key for key in found if not least <= key < n)
        raise IndexError(f"the sampler gives index {wrong}, the data set has {n} samples")
    return [key + n if key < 0 else key for key in found]


def is_exactly(sampler: object, name: str) -> bool:
    """Whether it is this class of torch.utils.data, not a subclass."""
    torch = sys.modules.get("torch")
    return torch is not None and type(sampler) is getattr(torch.utils.data, name, None)


def order_of(sampler: object, n: int, seed: int) -> Order | None:
    """The engine's sampler that does what a sampler object does; None: there is none."""
    if is_exactly(sampler, "SequentialSampler"):
        return Order("sequential", n)
    if (
        is_exactly(sampler, "RandomSampler")
        and not sampler.replacement  # type: ignore[attr-defined]
        and sampler.generator is None  # type: ignore[attr-defined]
        and sampler.num_samples == n  # type: ignore[attr-defined]
    ):
        return Order("random", n, seed=seed)
    return None


class Drawn:
    """One epoch of a sampler object, taken piece by piece: all of a finite one at once.

    random: the random state that it was drawn with, for a checkpoint; None: it drew nothing.
    """

    def __init__(self, sampler: Any, skip: int = 0, random: dict[str, Any] | None = None) -> None:
        generator = generator_of(sampler)
        before = RandomState()
        if random:
            state_from_json(random, generator)
        start = state_to_json(generator)
        self._items: Iterator[Any] = iter(sampler)
        finite = hasattr(sampler, "__len__")
        self._ready: list[Any] | None = list(self._items) if finite else None
        drew = start != state_to_json(generator)
        self.random = random or (start if drew else None)
        if random:
            before.restore()
        if self._ready is not None:
            self._ready = self._ready[skip:]
        else:
            next(itertools.islice(self._items, skip, skip), None)

    def next(self, n: int) -> list[Any]:
        """The next items: all of a finite sampler, else n; []: the end."""
        if self._ready is not None:
            items, self._ready = self._ready, []
            return items
        return list(itertools.islice(self._items, n))


def generator_of(sampler: Any) -> Any:
    """The torch.Generator of a sampler, or of the one inside a batch sampler; None: it has none."""
    for owner in (sampler, getattr(sampler, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if hasattr(generator, "get_state") and hasattr(generator, "set_state"):
            return generator
    return None
