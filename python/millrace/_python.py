"""Samples that Python makes: on the engine's threads, or in worker processes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

from . import _core
from ._arguments import Settings
from ._bad import BadItem, file_of
from ._collate import default_collate, default_convert
from ._lengths import share_of
from ._maker import NUMBERS, Maker, moved, open_ticket_engine, processes
from ._objects import ObjectRun
from ._place import StandIn, original_of
from ._probe import look
from ._recipe import Batches, Rows
from ._run import EngineRun, ListedRun, Place, Run, parse_sample
from ._samplers import LeftOut, Listed, Order, Plan, Share, checked, some_of
from ._source import EngineSource, converter, field_text, make_order
from ._structure import Structure
from ._where import name_of
from .stats import BadSample

log = logging.getLogger("millrace")


class PythonSource(EngineSource):
    """A map-style data set. It begins with rows if the first samples allow that."""

    def __init__(
        self,
        settings: Settings,
        dataset: Any,
        order_args: tuple[Any, Any, bool],
        collate_fn: Any,
        why: list[str],
    ) -> None:
        self.settings, self.python, self.why = settings, dataset, why
        self.collate_fn, self.order_args = collate_fn, order_args
        self.sampler, self.batch_sampler, _ = order_args
        self.path = "python-processes" if processes(settings) else "python-threads"
        if isinstance(dataset, StandIn):
            self.path = "native+" + self.path
        self.endless = bool(processes(settings))
        self.n = _length(dataset, order_args)
        self.order = make_order(settings, self.n, order_args) if self.n else None
        self.transform = settings.transform
        self.maker: Maker | None = None
        self._replaced = 0  # by makers that were closed
        self.listed: Listed | None = None
        self.left_out: LeftOut | None = None
        self.stream = None
        self.mode, self.why_objects = "", ""  # the mode is known once samples were looked at
        self.structure: Structure | None = None
        self.seeded = bool(settings.seed_samples)

    def _look(self, keys: list[Any]) -> None:
        """Makes a few samples, which the sampler gives, to know the mode and what is random."""
        s = self.settings
        why = ""
        if self.collate_fn is not None:
            why = "collate_fn"
        elif s.batch_size in (1, None) and self.batch_sampler is None and not s.transform:
            why = f"batch_size={s.batch_size}"
        elif not self.n or not keys:
            why = "samples are known by key only"
        self.structure, self.why_objects = None, why
        if keys and (not why or s.seed_samples is None):
            found = look(s, self.python, keys[: 1 if why else None], not why)
            self.structure, self.why_objects = found.structure, why or found.why
            if s.seed_samples is None:
                self.seeded = found.drew
        if s.transform and self.structure is None:
            raise ValueError(f"transform= needs samples that are tensors: {self.why_objects}")
        self.mode = "rows" if self.structure is not None else "objects"

    def _look_early(self) -> None:
        """Looks at samples before the first loop, if it is already known which ones come."""
        if self.mode:
            return
        if self.order is not None:
            self._look(some_of(range(self.order.length)))
            return
        given = self.sampler if self.batch_sampler is None else self.batch_sampler
        if isinstance(given, list | tuple | range) and given:
            self._look(self._some_keys(given))

    def _some_keys(self, items: Sequence[Any]) -> list[Any]:
        """Of the first, the middle and the last of a sampler's items."""
        some = some_of(items)
        return some if self.batch_sampler is None else [key for item in some for key in item[:1]]

    # ---- runs ----

    def options(self) -> dict[str, Any]:
        s = self.settings
        threads = s.num_workers if processes(s) else 1 if self.seeded else s.threads
        ahead = (s.prefetch_factor or 2) * s.num_workers  # as torch does
        return {"workers": threads, "prefetch": ahead}

    def open(self, at: Place, epochs: int) -> Run:
        if self.order is not None:
            self._look_early()
            if self.mode == "objects":
                return self._open_share(at, self.order)
            self._make_rows()
            return super().open(at, epochs)
        of_batches = self.batch_sampler is not None
        unit = self.settings.world * (1 if of_batches else self.settings.batch_size or 1)
        return ListedRun(
            self.batch_sampler if of_batches else self.sampler, self._open_items, unit, at
        )

    def open_served(self, at: Place, epochs: int) -> EngineRun:
        if self.order is not None:
            self._look_early()
            if self.mode == "objects":
                raise ValueError(
                    f"serve(): batches of this data set are made in Python: {self.why_objects}"
                )
            self._make_rows()
        return super().open_served(at, epochs)

    def _open_items(self, epoch: int, items: list[Any]) -> Run:
        of_batches = self.batch_sampler is not None
        if of_batches:
            items = [list(item) for item in items]
        if not self.mode:
            self._look(self._some_keys(items))
        if self.mode == "rows" and not self.transform and not self._are_indices(items):
            self._use_objects("keys of the sampler are no indices from 0 to n - 1")
        if self.mode == "objects":
            return self._open_list(epoch, items)
        self._make_rows()
        return self._open_batches(epoch, items) if of_batches else self._open_indices(epoch, items)

    def _are_indices(self, items: list[Any]) -> bool:
        """Whether the engine can name the samples; else the data set decides what a key is."""
        keys = items if self.batch_sampler is None else itertools.chain.from_iterable(items)
        try:
            checked(keys, self._length(), below=0)
        except (IndexError, TypeError):
            return False
        return True

    def _use_objects(self, why: str) -> None:
        self.mode, self.why_objects = "objects", why
        self._drop()

    def _make_rows(self) -> None:
        if self.maker is not None:
            return
        assert self.structure is not None
        s = self.settings
        recipe = Rows(
            self.python,
            self.structure,
            seeded=self.seeded,
            seed=s.seed,
            worker_init_fn=s.worker_init_fn,
        )
        self.maker = Maker(s, recipe, self.n or 1, processes(s))
        self.dataset = self.maker.dataset
        self.convert = converter(s, self.structure)

    def _open_share(self, at: Place, order: Order) -> Run:
        s = self.settings
        plan = Share(order, s.batch_size or 1, s.drop_last, s.rank, s.world, s.remainder)
        unit = (s.batch_size or 1) * s.world
        first, rest = divmod(at.position, unit)
        if rest:
            plan.first, plan.start, first = at.epoch, at.position, 0
            self._drop()
        return self._open_objects(plan, at, first, plan.batches(at.epoch), plan.start)

    def _open_list(self, epoch: int, items: list[Any]) -> Run:
        s = self.settings
        if self.batch_sampler is not None:
            batches = _share(items, s)
        else:
            mine, size = _share(items, s), s.batch_size or 1
            batches = [mine[i : i + size] for i in range(0, len(mine), size)]
            if s.drop_last and batches and len(batches[-1]) < size:
                batches.pop()
        if self.listed is None:
            self.listed = Listed(batches, shared=bool(processes(s)))
        self.listed.set(batches)
        return self._open_objects(self.listed, Place(epoch, 0), 0, len(batches), 0)

    def _open_objects(self, plan: Plan, at: Place, first: int, n: int, start: int) -> Run:
        s = self.settings
        if self.maker is None or self.maker.threads is not None:
            self.maker = Maker(s, self._batches(plan), NUMBERS, processes(s))
        maker, unit = self.maker, (s.batch_size or 1) * s.world

        def opener(first: int) -> _core.Loader:
            return open_ticket_engine(s, maker, at.epoch, first, s.in_order, self.options())

        return ObjectRun(
            opener,
            at,
            moved(s, maker.take),
            maker.leave,
            first=first,
            n=n,
            unit=unit,
            start=start,
            max_bad=s.bad_limit(),
            lost=self._lost if processes(s) and s.bad != "fail" else None,
        )

    def _batches(self, plan: Plan) -> Batches:
        s = self.settings
        alone = s.alone
        default = default_convert(s.as_) if alone else default_collate(s.as_)
        if self.left_out is None:
            self.left_out = LeftOut(bool(processes(s)) and s.bad != "fail")
        return Batches(
            self.python,
            plan,
            self.collate_fn or default,
            alone=alone,
            bad=s.bad,
            seeded=self.seeded,
            seed=s.seed,
            left_out=self.left_out,
            worker_init_fn=s.worker_init_fn,
        )

    # ---- errors ----

    def open_engine(
        self, at: Place, sampler: _core.Sampler | None, epochs: int, unit: int | None = None
    ) -> EngineRun:
        run = super().open_engine(at, sampler, epochs, unit)
        run.tell = self._tell
        return run

    def _tell(self, item: BadSample) -> BadSample:
        """What Python knows of a bad sample of the engine."""
        error = self.maker.error(item.epoch, item.index) if self.maker is not None else None
        reason = item.reason if error is None else f"{type(error).__name__}: {error}"
        file = file_of(self.python, item.index, error)
        return item._replace(file=file, reason=reason, error=error)

    def _lost(self, epoch: int, number: int, error: BaseException) -> BadItem | None:
        """The sample of a batch that worker processes ended over; it is left out from now on."""
        died = self.maker.error(epoch, number) if self.maker is not None else None
        step, left_out = getattr(died, "step", -1), self.left_out
        if died is None or left_out is None or step < 0 or step in left_out.places(epoch, number):
            return None
        left_out.add(epoch, number, step)
        key = died.where.sample  # type: ignore[attr-defined]
        return BadItem(key, died, file_of(self.python, key, died))

    def switch(self, error: BaseException) -> bool:
        if self.mode != "rows" or self.settings.transform or not hasattr(error, "code"):
            return False
        if isinstance(error, _core.Cancelled | _core.BadSamples | MemoryError | OSError):
            return False
        log.warning("samples differ, so batches are made in Python from here on: %s", error)
        self._use_objects(str(error))
        return True

    def error(self, error: BaseException, epoch: int) -> BaseException | None:
        index = parse_sample(error)
        if self.maker is None or index is None:
            return None
        found = self.maker.error(epoch, index)
        if self.mode == "rows" or not isinstance(error, RuntimeError):
            return found
        return named(error, found, epoch, index)  # the engine's samples are batches here

    def describe(self) -> list[str]:
        given = original_of(self.python)
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        lines = [f"data set: {kind}: {self.n} samples"]
        self._look_early()
        if not self.mode:
            return [*lines, "samples: the sampler tells which ones; they are looked at in a loop"]
        if isinstance(self.python, StandIn):
            lines += self.python.describe()
        if self.mode == "rows" and self.structure is not None:
            leaves = ", ".join(map(field_text, self.structure.leaves))
            lines.append(f"samples: {leaves}; the engine stacks them")
        else:
            lines.append(f"samples: objects, batches are made in Python ({self.why_objects})")
        if self.seeded:
            lines.append("random numbers: seeded for each sample by (seed, epoch, index)")
        return lines

    def abort(self) -> None:
        if self.maker is not None:
            self.maker.abort()

    def replaced(self) -> int:
        return self._replaced + (self.maker.replaced if self.maker is not None else 0)

    def _drop(self) -> None:
        if self.maker is not None:
            self._replaced += self.maker.replaced
            self.maker.close()
            self.maker = None

    def close(self) -> None:
        self._drop()
        if self.listed is not None:
            self.listed.close()
            self.listed = None
        if self.left_out is not None:
            self.left_out.close()
            self.left_out = None


def _length(dataset: Any, order_args: tuple[Any, Any, bool]) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        if order_args[0] is None and order_args[1] is None:
            raise
        return None


def named(
    error: BaseException, found: BaseException | None, epoch: int, number: int
) -> BaseException:
    """The exception of a batch, without the engine's text, to which the batch is a sample."""
    if found is None:
        text = str(error).replace(f"sample {number}", f"batch {number}")
        return RuntimeError(f"epoch {epoch}: {text}")
    if found.__cause__ is None:
        what = getattr(getattr(found, "where", None), "sample", None)
        why = str(error).rpartition(f"sample {number}: ")[2]
        found.__cause__ = RuntimeError(f"{name_of(what)}: {why}")
    return found


def _share(items: list[Any], s: Settings) -> list[Any]:
    """This rank's part of a list."""
    if s.world == 1:
        return items
    n = share_of(len(items), s.rank, s.world, s.remainder)
    if n * s.world > len(items) and s.remainder == "pad":
        items = items + items[: n * s.world - len(items)]
    return items[s.rank :: s.world][:n]
