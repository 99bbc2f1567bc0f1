"""millrace.DataLoader: torch's DataLoader, with the engine behind it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import _arguments as arguments
from ._arguments import Cache, Path, Settings
from ._closing import close_elsewhere
from ._iterator import LoaderIterator
from ._idle import EmptyRun
from ._loader_reports import LoaderReports
from ._loader_state import LoaderState
from ._run import Place, Run
from ._seeding import draw_seed
from ._source import Source, is_iterable_set
from ._views import EpochBatches, EpochSampler
from .stats import BadSample

if TYPE_CHECKING:
    from ._prefix import Plan
    from ._serve import Server

log = logging.getLogger("millrace")
_open_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()
_INTERRUPTED_S = 0.2  # how long a sample of a thread is waited for after Ctrl-C
_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader(LoaderState, LoaderReports):
    """Batches of `dataset`, in torch's form. The first 18 arguments are torch's.

    dataset: what torch's DataLoader takes; or a millrace URI ("folder:photos/"); or arrays: a numpy
    array, a torch tensor, a TensorDataset, a tuple or dict of arrays with one row a sample.
    num_workers: on the native path threads, 0: one a core. For Python samples processes; 0: one
    thread of the engine in this process. multiprocessing_context="threads": that many threads of
    this process; __getitem__ is then called by several at once.
    timeout: seconds until next() raises LoaderTimeout, a RuntimeError; 0: never.
    path: "auto", "native" (NotNative is raised where Python is needed), "python".
    transform: text of native ops ("normalize(0.13,0.31)"), run on what the data set gives.
    device: "cuda", "cuda:1", "cpu" or "sim:..."; batches arrive on torch's current stream.
    seed: of the order and of random samples. None: drawn as torch does, from `generator` or the
    global one; with several ranks 0. epochs: how many one `for` loop gives, each in a new order; 0:
    endless. rank, world: this process's share; default torch.distributed's, then the launcher's,
    but 0 of 1 with your own sampler or an iterable set. remainder: what happens to the
    samples that the ranks can't share equally: "pad" repeats some, "drop" leaves them out, "exact"
    gives the first ranks one more each.
    bad: "fail", "skip" or "replace" samples that raise; max_bad: at most so many.
    max_memory: bytes of the engine's buffers. as_: "torch", "numpy", "jax" or "dlpack"; default
    torch where installed, else numpy. seed_samples: whether random, numpy and torch are seeded for
    each Python sample; default: if the first samples draw numbers.
    sandbox: decode in processes that can open no files and no connections, for data that you do not
    trust. Native path only: NotNative is raised where Python would make samples. A loop raises
    NotImplementedError for data sets and systems that it does not work with.
    cache: "host" keeps the files that the engine reads in memory until the loader is closed;
    "device" keeps all samples on device=, where batches are gathered: the first loop reads them
    all. Native path only: NotNative is raised where Python would make samples.

    Each `for` loop is the next epoch. Iterators are independent of each other, as torch's are.
    Raises ValueError and TypeError where torch does.
    """

    _ready = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool | None = None,
        pin_memory_device: str = "",
        in_order: bool = True,
        path: Path = "auto",
        transform: str | None = None,
        device: Any = None,
        seed: int | None = None,
        epochs: int = 1,
        rank: int | None = None,
        world: int | None = None,
        remainder: str = "pad",
        bad: str = "fail",
        max_bad: int | float | str | None = None,
        max_memory: int | str | None = None,
        as_: str | None = None,
        seed_samples: bool | None = None,
        sandbox: bool = False,
        cache: Cache = "none",
    ) -> None:
        arguments.check_numbers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.num_workers, self.timeout = num_workers, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.multiprocessing_context = arguments.check_context(multiprocessing_context, num_workers)
        iterable = is_iterable_set(dataset)
        arguments.check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        arguments.check_choice("path", path, ("auto", "native", "python"))
        arguments.check_choice("remainder", remainder, ("pad", "drop", "exact"))
        if drop_last and remainder == "exact":
            raise ValueError('drop_last leaves samples out, which remainder="exact" says not to do')
        arguments.check_choice("bad", bad, ("fail", "skip", "replace"))
        if epochs < 0:
            raise ValueError(f"epochs={epochs}: expected at least 0")
        own_order = sampler is not None or batch_sampler is not None or iterable
        rank, world = arguments.place(rank, world, not own_order)
        as_ = arguments.library(as_)
        if seed is None:
            seed = draw_seed(generator) if world == 1 else 0
        on_device = arguments.device_text(device, as_)
        arguments.check_cache(cache, on_device)
        self._settings = Settings(
            batch_size=None if batch_sampler is not None else batch_size,
            alone=batch_size is None and batch_sampler is None,
            shuffle=bool(shuffle),
            num_workers=num_workers,
            drop_last=drop_last,
            timeout=timeout,
            prefetch_factor=prefetch_factor,
            in_order=in_order,
            path=path,
            transform=transform,
            device=on_device,
            pinned=arguments.pinned_for(pin_memory, on_device),
            seed=seed,
            rank=rank,
            world=world,
            remainder=remainder,
            bad=bad,
            max_bad=max_bad,
            max_memory=max_memory,
            as_=as_,
            seed_samples=seed_samples,
            threads=num_workers or 1,
            context=self.multiprocessing_context,
            worker_init_fn=worker_init_fn,
            sandbox=bool(sandbox),
            cache=cache,
        )
        self.dataset = dataset
        self.batch_size, self.drop_last = self._settings.batch_size, drop_last
        self.collate_fn, self.generator = collate_fn, generator
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.in_order = worker_init_fn, in_order
        self.persistent_workers = num_workers > 0 and persistent_workers is not False
        self.epoch = 0
        self._epochs = epochs
        self._pid = os.getpid()
        self._iterable = iterable
        self._given = (sampler, batch_sampler, bool(shuffle))
        self._why: list[str] = []
        self._source_: Source | None = None
        self._plan: Plan | None = None
        self._idle: Run | None = None
        self._last: weakref.ref[LoaderIterator] | None = None
        self._resume: Place | None = None
        self._place: Place | None = None  # where the latest iterator was dropped
        self._runs: list[Run] = []
        self._old_bad: list[BadSample] = []
        self._old_stats: dict[str, Any] = {}
        self._first_ns = (0, 0)
        self._told = self._closed = False
        self._choose()
        self._set_samplers(sampler, batch_sampler)
        self._ready = True
        _open_loaders.add(self)

    def _set_samplers(self, sampler: Any, batch_sampler: Any) -> None:
        n = None if self._iterable else self._dataset_length()
        if sampler is None:
            if self._settings.shuffle and n == 0:
                raise ValueError(
                    "num_samples should be a positive integer value, but got num_samples=0"
                )
            sampler = EpochSampler(self, n, self._settings.shuffle)
        if batch_sampler is None and self.batch_size is not None:
            batch_sampler = EpochBatches(self, sampler, self.batch_size, self.drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler

    # ---- iteration ----

    def __iter__(self) -> LoaderIterator:
        self._check_open()
        arguments.warn_pin_memory(self.pin_memory, self.pin_memory_device)
        at, self._resume = self._resume or Place(self.epoch, 0), None
        left = self._epochs - 1
        self._place = None
        run, self._idle = self._idle, None
        begun_ns = 0
        if run is not None and not (at == Place(at.epoch, 0) and run.begin(at.epoch)):
            self._forget(run)
            run = None
        if run is None:
            begun_ns, self._first_ns = time.monotonic_ns(), (0, 0)
            run = self._open(at, left)
        self.epoch = at.epoch + max(self._epochs, 1)
        iterator = LoaderIterator(self, run, at, left, begun_ns)
        self._last = weakref.ref(iterator)
        return iterator

    def serve(
        self, address: str | os.PathLike[str], *, trainers: int = 1, ahead: int | None = None
    ) -> Server:
        """Hands this loader's next epochs (`epochs` of them) out to other processes on this
        machine, which call millrace.attach(address): each of them gets every batch.

        address: of a Unix socket: a path, whose file is made and at the end removed, or "@" and a
        name. Only this user's processes, and root's, can attach. trainers: that must be attached
        before the first batch. ahead: by so many batches (0 to 1024) may one trainer be ahead of
        another; then the slow one holds it. Default: half of what the loader prepares ahead.
        A trainer that ends is dropped. One that comes late begins with the next batch.
        Raises ValueError: device= is set, a sampler object is used, or batches are made in Python
        (see explain()); OSError: the address is in use.
        """
        from ._serve import serve

        self._check_open()
        at = self._resume or Place(self.epoch, 0)
        server = serve(self, at, os.fspath(address), trainers, ahead)
        self._resume = self._place = self._last = None
        self.epoch = at.epoch + max(self._epochs, 1)
        return server

    def _open(self, at: Place, left: int) -> Run:
        self._tell()
        if self._given[:2] == (None, None) and self._dataset_length() == 0:
            return EmptyRun(at.epoch)
        run = self._source.open(at, left + 1)
        self._runs.append(run)
        return run

    def _tell(self) -> None:
        """The one log line."""
        if self._told:
            return
        self._told = True
        why = f" ({'; '.join(self._why)})" if self._why else ""
        log.info("DataLoader: %s path%s", self.path, why)

    def _finished(self, iterator: LoaderIterator, run: Run, epoch: int) -> None:
        """An iterator is at its end: its run may serve the next one."""
        if not self.persistent_workers and self.num_workers and self.path.endswith("processes"):
            self._forget(run)
            self._source.close()
        elif self._idle is None and getattr(run, "endless", False):
            self._idle = run
        else:
            self._forget(run)

    def _left(self, iterator: LoaderIterator, run: Run) -> None:
        """An iterator was dropped before its end: a state still continues there."""
        if self._closed:
            run.close()
            return
        if iterator.fresh and self.epoch == iterator.epoch + max(self._epochs, 1):
            self.epoch = iterator.epoch  # of which nothing was used
        if self._last is not None and self._last() in (iterator, None):
            with contextlib.suppress(ValueError):
                self._place = run.place()
        self._forget(run)

    def _forget(self, run: Run, wait: float | None = None) -> None:
        """Closes a run; keeps what it counted."""
        if run in self._runs:
            self._runs.remove(run)
            if not self._closed:
                with contextlib.suppress(ValueError):  # another thread has closed the engine
                    self._old_stats = run.stats() or self._old_stats
                    self._old_bad += run.bad()
        run.close(wait)

    def _abort(self) -> float | None:
        """Ends samples that Python makes. Returns how long to wait for them; None: to their end."""
        if self._source_ is None:
            return None
        self._source_.abort()
        return _INTERRUPTED_S if self.path.endswith("threads") else None

    def _interrupted(self, run: Run) -> None:
        """Ctrl-C: the workers end, too. A later loop starts new ones. A second Ctrl-C, while this
        waits, ends them at once."""
        try:
            self._forget(run, self._abort())
        finally:
            self._source.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the loader is closed")
        if self._pid != os.getpid():  # a forked child: the parent's threads and workers aren't here
            self._pid, self._idle, self._runs, self._last = os.getpid(), None, [], None
            self._source_ = None
            self._why = []
            self._choose()

    # ---- the end ----

    def close(self) -> None:
        """Stops threads and workers. Batches stay valid. Iterators raise ValueError from now on.

        Waits for the samples that are being made.
        """
        self._close(None)

    def _close(self, wait: float | None) -> None:
        if self._closed:
            return
        iterator = self._last() if self._last is not None else None
        if self._pid == os.getpid():
            for run in list(self._runs):
                self._forget(run, wait)
            if self._source_ is not None:
                self._source_.close()
        if iterator is not None:
            iterator.close()
        self._closed = True
        self._idle = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, kind: object = None, *exc: object) -> None:
        self._close(self._abort() if kind is KeyboardInterrupt else None)

    def __del__(self) -> None:
        if self._ready and not self._closed:
            close_elsewhere(self.close)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._ready and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)


@atexit.register
def _close_all() -> None:
    """Threads of the engine must not need the GIL when the interpreter has ended."""
    for loader in list(_open_loaders):
        if not loader._closed and loader._pid == os.getpid():
            loader._close(loader._abort())
