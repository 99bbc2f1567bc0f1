"""Which path a data set takes, and the runs that are opened over it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import _core
from ._arguments import Settings, arguments_named
from ._arrays import arrays_of, current_stream, taker, value_of
from ._arrow import arrow_kind
from ._run import EngineRun, ListedRun, Place, Run, state_text
from ._samplers import Order, checked, order_of
from ._structure import Structure, structure_of


_CACHES = {
    "host": "cache: the files that the engine reads stay in memory",
    "device": "cache: all samples stay on the device",
}


class Source(Protocol):
    """A data set on one of the paths.

    path: "native", "python-threads" or "python-processes", the last two perhaps with "native+" in
    front. why: what keeps it from the native path. mode: "native", "rows" or "objects"; "": not
    known yet. n: the data set's length; None: not known.
    """

    path: str
    why: list[str]
    mode: str
    n: int | None

    def open(self, at: Place, epochs: int) -> Run: ...
    def switch(self, error: BaseException) -> bool:
        """Whether another mode can make what this error prevents; it is then in use."""
        ...

    def error(self, error: BaseException, epoch: int) -> BaseException | None:
        """The exception of a sample behind an error of the engine."""
        ...

    def describe(self) -> list[str]: ...
    def replaced(self) -> int:
        """Worker processes that ended and were replaced, so far."""
        ...

    def abort(self) -> None:
        """Ends samples that are being made; only close() may follow."""

    def close(self) -> None: ...


def is_uri(dataset: Any) -> bool:
    """Whether only the engine can read it: URIs, paths, Arrow tables."""
    if isinstance(dataset, str | os.PathLike) or isinstance(dataset, _core.Dataset):
        return True
    return arrow_kind(dataset) == "table"


class EngineSource:
    """What native sets and sets of rows have in common: the engine stacks samples to batches."""

    mode = "native"
    endless = True
    shared = False  # the next engine's batches are in memory that other processes can map

    def __init__(
        self,
        settings: Settings,
        dataset: _core.Dataset,
        order: Order | None,
        sampler: Any,
        batch_sampler: Any,
        transform: str | None,
    ) -> None:
        self.settings, self.dataset, self.transform = settings, dataset, transform
        self.order, self.sampler, self.batch_sampler = order, sampler, batch_sampler
        self.n = dataset.length
        self.stream = current_stream(settings.device)
        self.convert: Callable[[_core.Batch], Any] = self._plain

    def _plain(self, batch: _core.Batch) -> Any:
        raise AssertionError

    def options(self) -> dict[str, Any]:
        raise NotImplementedError

    def open(self, at: Place, epochs: int) -> Run:
        if self.order is not None or self.n is None:
            sampler = self.order.sampler if self.order is not None else None
            return self.open_engine(at, sampler, 0 if self.endless else max(epochs, 1))
        of_batches = self.batch_sampler is not None
        unit = self.settings.world * (1 if of_batches else self.settings.batch_size or 1)
        opener = self._open_batches if of_batches else self._open_indices
        return ListedRun(self.batch_sampler if of_batches else self.sampler, opener, unit, at)

    def _open_indices(self, epoch: int, items: list[Any]) -> Run:
        return self.open_engine(Place(epoch, 0), self._subset(items), 1)

    def _subset(self, items: list[Any]) -> _core.Sampler:
        n = self._length()
        return _core.Sampler("subset", n, indices=checked(items, n))

    def _open_batches(self, epoch: int, items: list[Any]) -> Run:
        lists = [checked(item, self._length()) for item in items]
        longest = max(map(len, lists))
        sampler = _core.Sampler(
            "batches", self._length(), batches=lambda epoch: lists, max_batch=longest
        )
        return self.open_engine(Place(epoch, 0), sampler, 1, longest)

    def _length(self) -> int:
        assert self.n is not None
        return self.n

    def open_engine(
        self, at: Place, sampler: _core.Sampler | None, epochs: int, unit: int | None = None
    ) -> EngineRun:
        s = self.settings
        options = {**s.engine_options(), **self.options(), "epochs": epochs}
        options |= {"rank": s.rank, "world": s.world, "remainder": s.remainder}
        if unit is None:
            options |= {"batch_size": s.batch_size or 1, "drop_last": s.drop_last}
            options["in_order"] = s.in_order
        state = at.engine
        if state is None and (at.epoch or at.position):
            size = unit or s.batch_size or 1
            state = state_text(self.dataset, sampler, s.seed, at, size, s.world)
            options["force_state"] = True
            if epochs:
                options["epochs"] = at.epoch + epochs
        if s.pinned:
            options["on_host"] = True
        if self.shared:
            options["shared"] = True
        with arguments_named():
            engine = _core.Loader(
                self.dataset,
                sampler=sampler,
                transform=self.transform,
                device=s.pinned or s.device,
                options={name: value for name, value in options.items() if value is not None},
                state=state,
            )
        return EngineRun(engine, at, self.convert, self.stream, self.endless and epochs == 0)

    def open_served(self, at: Place, epochs: int) -> EngineRun:
        """A run whose batches other processes can map: all epochs by one engine; 0: endless."""
        if self.order is None and self.n is not None:
            raise ValueError("serve(): a sampler object is asked in Python, epoch by epoch")
        self.shared = True
        try:
            sampler = self.order.sampler if self.order is not None else None
            return self.open_engine(at, sampler, epochs)
        finally:
            self.shared = False

    def switch(self, error: BaseException) -> bool:
        return False

    def error(self, error: BaseException, epoch: int) -> BaseException | None:
        return None

    def replaced(self) -> int:
        return 0

    def abort(self) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # in use: it closes itself behind its last loader
            self.dataset.close()


class NativeSource(EngineSource):
    """URIs, arrays and what translates: Python sees batches only."""

    path = "native"

    def __init__(
        self,
        settings: Settings,
        dataset: _core.Dataset,
        order: Order | None,
        sampler: Any,
        batch_sampler: Any,
        *,
        transform: str | None = None,
        structure: Structure | None = None,
        leaves: tuple[str, ...] = (),
        notes: list[str] | None = None,
        owns: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(settings, dataset, order, sampler, batch_sampler, transform)
        if settings.cache == "device" and order is None and self.n is not None:
            raise ValueError(
                'cache="device": with a sampler object of your own all samples would be read again '
                'for each part of its order: expected shuffle=, or cache="host"'
            )
        self.why: list[str] = []
        self.notes, self._owns = notes or [], owns
        self.name = name or dataset.text
        self.convert = converter(settings, structure, leaves)

    def options(self) -> dict[str, Any]:
        s = self.settings
        ahead = s.prefetch_factor * s.num_workers if s.prefetch_factor else 0
        options = {"workers": s.num_workers, "prefetch": ahead, "sandbox": s.sandbox}
        return {**options, "cache": s.cache}

    def describe(self) -> list[str]:
        fields = ", ".join(map(field_text, self.dataset.fields))
        lines = [f"data set: {self.name}: {self.n} samples of {fields}"]
        lines += [f"transform: {self.transform}"] if self.transform else []
        lines += ["sandbox: decoded in processes without files and network"] * self.settings.sandbox
        lines += [_CACHES[self.settings.cache]] if self.settings.cache != "none" else []
        return lines + [f"differs from torchvision: {note}" for note in self.notes]

    def close(self) -> None:
        if self._owns:
            super().close()


def field_text(field: Any) -> str:
    """A field in words; a dimension that differs between samples as "..."."""
    dims = ["..." if field.var_dims >> d & 1 else str(n) for d, n in enumerate(field.shape)]
    return f"{field.name} {field.dtype}[{', '.join(dims)}]"


def converter(
    settings: Settings, structure: Structure | None, leaves: tuple[str, ...] = ()
) -> Callable[[_core.Batch], Any]:
    """What makes the program's batch: of the structure, else a list of leaves, else a dict."""
    take = taker(settings.as_)
    alone = settings.alone

    def pick(batch: _core.Batch, i: int) -> Any:
        value = value_of(batch, i, take)
        return value[0] if alone else value

    if structure is not None:
        return _structured(structure, pick, take, alone)
    if leaves:
        return lambda batch: [pick(batch, batch.names.index(name)) for name in leaves]
    return lambda batch: {name: pick(batch, i) for i, name in enumerate(batch.names)}


def _structured(
    structure: Structure, pick: Callable[[Any, int], Any], take: Callable[[Any], Any], alone: bool
) -> Callable[[_core.Batch], Any]:
    n = len(structure.leaves)
    texts = any(leaf.dtype in ("string", "bytes") for leaf in structure.leaves)
    plain = not (texts or alone)
    if plain and structure.tree[0] == "leaf":
        return lambda batch: take(batch.field(0))
    if plain and structure.tree[0] == "tuple" and structure.flat:
        if n == 2:
            return lambda batch: [take(batch.field(0)), take(batch.field(1))]
        return lambda batch: [take(batch.field(i)) for i in range(n)]
    build = structure.build
    return lambda batch: build(pick(batch, i) for i in range(n))


def native_source(
    settings: Settings, dataset: Any, order_args: tuple[Any, Any, bool], reasons: list[str]
) -> NativeSource | None:
    """The native path for a data set; None, and reasons, if there is none."""
    if arrow_kind(dataset):
        from ._arrow_sources import arrow_source

        return arrow_source(settings, dataset, order_args, reasons)
    if is_uri(dataset):
        given = isinstance(dataset, _core.Dataset)
        opened = dataset if given else _core.Dataset.open(os.fspath(dataset))
        order = make_order(settings, opened.length, order_args)
        return NativeSource(
            settings, opened, order, *order_args[:2], transform=settings.transform, owns=not given
        )
    arrays = arrays_of(dataset)
    if isinstance(arrays, str):
        reasons.append(arrays)
        return None
    if arrays is not None:
        structure = structure_of([arrays.example])
        assert isinstance(structure, Structure), structure
        order = make_order(settings, arrays.dataset.length, order_args)
        return NativeSource(
            settings,
            arrays.dataset,
            order,
            *order_args[:2],
            transform=settings.transform,
            structure=structure,
        )
    return _translated(settings, dataset, order_args, reasons)


def _translated(
    settings: Settings, dataset: Any, order_args: tuple[Any, Any, bool], reasons: list[str]
) -> NativeSource | None:
    try:
        from ._pictures import translate_pictures
        from ._translate import translate
    except ImportError:
        reasons.append(f"{type(dataset).__qualname__}: no native reader")
        return None
    native = translate(dataset)
    if isinstance(native, list) and settings.transform:
        native = translate_pictures(dataset) or native
    if isinstance(native, list):
        reasons += native
        return None
    if native.rest:
        reasons += [f"{op!r}: Python behind the native prefix" for op in native.rest]
        return None
    if settings.alone:
        reasons.append("batch_size=None: samples as the data set gives them")
        return None
    chain = ",".join(part for part in (native.transform, settings.transform) if part)
    order = make_order(settings, native.dataset.length, order_args)
    return NativeSource(
        settings,
        native.dataset,
        order,
        *order_args[:2],
        transform=chain,
        leaves=tuple(native.leaves),
        notes=list(native.differences),
        name=f"{type(dataset).__module__.partition('.')[0]}'s {type(dataset).__qualname__}",
    )


def make_order(
    settings: Settings, n: int | None, order_args: tuple[Any, Any, bool]
) -> Order | None:
    """The engine's sampler; None: a sampler object decides, or the set has no order."""
    sampler, batch_sampler, _ = order_args
    if n is None or batch_sampler is not None:
        return None
    if sampler is not None:
        return order_of(sampler, n, settings.seed)
    return Order("random", n, seed=settings.seed) if settings.shuffle else Order("sequential", n)


def is_iterable_set(dataset: Any) -> bool:
    """Whether torch would take it as an IterableDataset. Imports nothing."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    if isinstance(dataset, Mapping) or hasattr(dataset, "__getitem__"):
        return False
    return hasattr(dataset, "__iter__") and not is_uri(dataset)
