"""Samples that Python makes: on the engine's threads, or in worker processes."""

from __future__ import annotations

import logging
from typing import Any

from . import _core
from ._arguments import Settings
from ._collate import default_collate, default_convert
from ._maker import NUMBERS, Maker, moved, open_ticket_engine, processes
from ._recipe import Batches, Rows, sample_of
from ._run import ListedRun, ObjectRun, Place, Run
from ._samplers import Listed, Order, Plan, Share
from ._seeding import kept_random_state
from ._source import EngineSource, converter, make_order, parse_sample
from ._structure import Structure, structure_of

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
        self.endless = bool(processes(settings))
        self.n = _length(dataset, order_args)
        self.order = make_order(settings, self.n, order_args) if self.n else None
        self.transform = settings.transform
        self.maker: Maker | None = None
        self.listed: Listed | None = None
        self.stream = None
        self.structure, self.seeded, self.why_objects = self._look()
        self.mode = "rows" if isinstance(self.structure, Structure) else "objects"
        if settings.transform and self.mode != "rows":
            raise ValueError(f"transform= needs samples that are tensors: {self.why_objects}")

    structure: Structure | None

    def _look(self) -> tuple[Structure | None, bool, str]:
        """Makes a few samples: structure, whether they draw random numbers, why objects."""
        s = self.settings
        keys = _some_keys(self.n, self.order)
        seeded = bool(s.seed_samples)
        if self.collate_fn is not None:
            why = "collate_fn"
        elif s.batch_size in (1, None) and self.batch_sampler is None and not s.transform:
            why = f"batch_size={s.batch_size}"
        else:
            why = "" if keys else "samples are known by key only"
        if why and s.seed_samples is not None:
            return None, seeded, why
        tried = self._tried()
        with kept_random_state() as state:
            try:
                samples = [sample_of(tried, key) for key in keys[: 1 if why else None]]
            except Exception as error:
                return None, seeded, why or f"sample {keys[0]}: {error}"
            if s.seed_samples is None:
                seeded = not state.unchanged()
        found = why or structure_of(samples)
        return (None, seeded, found) if isinstance(found, str) else (found, seeded, "")

    def _tried(self) -> Any:
        """What samples are tried on: with processes a copy, as a worker has it, since a sample that
        is made here may open files that the workers' data set must not have open."""
        context = self.settings.context
        if not processes(self.settings):
            return self.python
        if context is not None and context.get_start_method() == "fork":
            return self.python
        from . import _pickle

        try:
            return _pickle.copy_of(self.python)
        except Exception:
            return self.python

    # ---- runs ----

    def options(self) -> dict[str, Any]:
        s = self.settings
        threads = s.num_workers if processes(s) else 1 if self.seeded else s.threads
        ahead = (s.prefetch_factor or 2) * s.num_workers  # as torch does
        return {"workers": threads, "prefetch": ahead}

    def open(self, at: Place, epochs: int) -> Run:
        if self.mode == "rows":
            if self.maker is None:
                self._make_rows()
            return super().open(at, epochs)
        if self.order is not None:
            return self._open_share(at, self.order)
        of_batches = self.batch_sampler is not None
        unit = self.settings.world * (1 if of_batches else self.settings.batch_size or 1)
        return ListedRun(
            self.batch_sampler if of_batches else self.sampler, self._open_list, unit, at
        )

    def _make_rows(self) -> None:
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
        unit = (s.batch_size or 1) * s.world
        engine = open_ticket_engine(s, self.maker, at.epoch, first, s.in_order, self.options())
        return ObjectRun(
            engine,
            at,
            moved(s, self.maker.take),
            self.maker.leave,
            first=first,
            n=n,
            unit=unit,
            start=start,
            max_bad=None if s.max_bad is None else float(s.max_bad),
        )

    def _batches(self, plan: Plan) -> Batches:
        s = self.settings
        alone = s.alone
        default = default_convert(s.as_) if alone else default_collate(s.as_)
        return Batches(
            self.python,
            plan,
            self.collate_fn or default,
            alone=alone,
            bad=s.bad,
            seeded=self.seeded,
            seed=s.seed,
            worker_init_fn=s.worker_init_fn,
        )

    # ---- errors ----

    def switch(self, error: BaseException) -> bool:
        if self.mode != "rows" or self.settings.transform or not hasattr(error, "code"):
            return False
        if isinstance(error, _core.Cancelled | _core.BadSamples | MemoryError | OSError):
            return False
        log.warning("samples differ, so batches are made in Python from here on: %s", error)
        self.mode, self.why_objects = "objects", str(error)
        self._drop()
        return True

    def error(self, error: BaseException, epoch: int) -> BaseException | None:
        index = parse_sample(error)
        if self.maker is None or index is None:
            return None
        return self.maker.error(epoch, index)

    def describe(self) -> list[str]:
        kind = f"{type(self.python).__module__}.{type(self.python).__qualname__}"
        lines = [f"data set: {kind}: {self.n} samples"]
        if self.mode == "rows" and self.structure is not None:
            leaves = ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in self.structure.leaves)
            lines.append(f"samples: {leaves}; the engine stacks them")
        else:
            lines.append(f"samples: objects, batches are made in Python ({self.why_objects})")
        if self.seeded:
            lines.append("random numbers: seeded for each sample by (seed, epoch, index)")
        return lines

    def abort(self) -> None:
        if self.maker is not None:
            self.maker.abort()

    def _drop(self) -> None:
        if self.maker is not None:
            self.maker.close()
            self.maker = None

    def close(self) -> None:
        self._drop()
        if self.listed is not None:
            self.listed.close()
            self.listed = None


def _length(dataset: Any, order_args: tuple[Any, Any, bool]) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        if order_args[0] is None and order_args[1] is None:
            raise
        return None


def _some_keys(n: int | None, order: Order | None) -> list[int]:
    return sorted({0, n // 2, n - 1}) if n else []


def _share(items: list[Any], s: Settings) -> list[Any]:
    """This rank's part of a list."""
    if s.world == 1:
        return items
    whole = len(items) // s.world * s.world
    if whole < len(items) and s.remainder == "pad":
        items = items + items[: whole + s.world - len(items)]
        whole = len(items)
    return items[s.rank : whole : s.world]
