"""One loader process that serves several trainers: each of them gets every batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _arguments as arguments
from . import _core
from ._arrays import current_stream, taker, value_of
from ._run import EngineRun, Place
from ._source import EngineSource
from .errors import LoaderTimeout

if TYPE_CHECKING:
    from .loader import DataLoader


class ServerInfo(NamedTuple):
    """What a server has done so far."""

    trainers: int  # attached now
    attached: int  # so far
    dropped: int  # that ended without close()
    batches: int  # handed out
    held: int  # of these: not yet released by all
    ahead: int  # by so many batches may one trainer be ahead of another
    slowest: int  # the process with the oldest batch that is not released; 0: none
    behind: int  # batches that it has not released


class Server:
    """Hands the batches of a loader out to other processes; made by DataLoader.serve().

    It works on threads of its own from the start. A context manager: at the end it is closed.
    """

    def __init__(self, loader: DataLoader, run: EngineRun, address: str) -> None:
        self.address = address
        self._loader, self._run = loader, run

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all trainers have used the last batch. False: timeout (seconds) has passed.

        Raises the error that ended the loader, which the trainers get, too; Cancelled after
        cancel(); ValueError after close().
        """
        try:
            return self._run.engine.serve_wait(timeout)
        except Exception as error:
            source: Any = self._loader._source
            found = source.error(error, self._run.epoch) if hasattr(error, "code") else None
            if found is None or found is error:
                raise
            raise found from error

    def info(self) -> ServerInfo:
        """The figures until now."""
        return ServerInfo(*self._run.engine.serve_info())

    def cancel(self) -> None:
        """Ends serving: trainers get Cancelled behind the batches that they were sent."""
        self._run.engine.serve_cancel()

    def close(self) -> None:
        """Ends serving and this run of the loader. Batches that trainers hold stay valid."""
        self._loader._forget(self._run)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def serve(loader: DataLoader, at: Place, address: str, trainers: int, ahead: int | None) -> Server:
    """Starts to serve a loader's epochs from a place on; see DataLoader.serve()."""
    source, device = loader._source, loader._settings.device
    if device not in (None, "cpu"):
        raise ValueError(f"device={device!r}: trainers choose their device, see millrace.attach()")
    if not isinstance(source, EngineSource):
        raise ValueError("serve(): the batches of an iterable data set are made in Python")
    run = source.open_served(at, loader._epochs)
    loader._runs.append(run)
    try:
        run.engine.serve(address, -1 if ahead is None else ahead, trainers)
    except BaseException:
        loader._forget(run)
        raise
    return Server(loader, run, address)


class AttachedInfo(NamedTuple):
    """What a trainer knows of its server, and what it got."""

    batches: int | None  # in an epoch; None: not known
    samples: int | None
    ahead: int  # by so many batches may one trainer be ahead of another
    missed: int  # batches that were handed out before this trainer attached
    taken: int  # by this trainer
    wait_s: float  # in next()
    server: int  # its process; 0: not known


class Attached:
    """An iterator over the batches that another process serves; made by millrace.attach().

    It goes over all epochs that the server has, once. One thread at a time.
    fields: of one sample. epoch, index: of the latest batch.
    """

    epoch = index = -1

    def __init__(
        self,
        core: _core.Attached,
        convert: Callable[[Any], Any],
        stream: Callable[[], int] | None,
        timeout: float | None,
    ) -> None:
        self._core, self._convert, self._stream = core, convert, stream
        self._timeout, self._pid = timeout, os.getpid()
        self.fields = core.fields

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(f"this was attached by process {self._pid}; attach after the fork")
        try:
            batch = self._core.next(self._stream() if self._stream else None, self._timeout)
        except TimeoutError as error:
            if hasattr(error, "code"):
                raise
            raise LoaderTimeout(f"no batch for {self._timeout:g} seconds: {error}") from None
        if batch is None:
            raise StopIteration
        self.epoch, self.index = batch.epoch, batch.index
        return self._convert(batch)

    def info(self) -> AttachedInfo:
        """The figures until now."""
        batches, samples, ahead, missed, taken, wait_ns, server = self._core.info()
        unknown = (1 << 64) - 1
        return AttachedInfo(
            None if batches == unknown else batches,
            None if samples == unknown else samples,
            ahead,
            missed,
            taken,
            wait_ns / 1e9,
            server,
        )

    def close(self) -> None:
        """Detaches, once the last batch that is held is gone. Iteration then raises ValueError."""
        self._core.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def attach(
    address: str | os.PathLike[str],
    *,
    form: Literal["dict", "list"] = "dict",
    as_: str | None = None,
    device: Any = None,
    copy: bool | None = None,
    prefetch: int = 2,
    timeout: float = 0,
    connect_timeout: float | None = 10,
) -> Attached:
    """Attaches to a loader that another process serves: an iterator over its batches.

    form: "dict": field names and tensors; "list": the tensors in the fields' order. as_: as
    DataLoader's. device: "cuda", "cuda:1" or "sim:...": batches are copied there, `prefetch` (1 to
    64) of them ahead, on torch's current stream; None: they stay in host memory.
    copy: whether a batch on the host becomes memory of this process; without that it is the
    loader's own, which must not be written: numpy refuses it, torch would end the process. Default:
    yes, but for as_="numpy" and "dlpack". Batches that are no copies can be held as long as `ahead`
    of the server allows; then RuntimeError. Copies can be kept.
    timeout: seconds until a batch comes, then LoaderTimeout; 0: no limit. connect_timeout: seconds
    until a server must be there; None: as long as it takes.
    Raises FileNotFoundError or ConnectionRefusedError: no server is there; FormatError: it is none,
    or one of another version; later BrokenPipeError: its process has ended; Cancelled; and what
    ended its loader.
    """
    arguments.check_choice("form", form, ("dict", "list"))
    library = arguments.library(as_)
    where = arguments.device_text(device, library)
    on_host = where in (None, "cpu")
    if copy and not on_host:
        raise ValueError("copy=True: batches on a device are copies already")
    core = _core.Attached(
        os.fspath(address), device=where, prefetch=prefetch, timeout=connect_timeout
    )
    if copy is None:
        copy = on_host and library in ("torch", "jax")
    return Attached(core, _converter(form, library, copy), current_stream(where), timeout or None)


def _converter(form: str, library: str, copy: bool) -> Callable[[Any], Any]:
    take = _copier(library) if copy else taker(library)
    if form == "list":
        return lambda batch: [value_of(batch, i, take) for i in range(len(batch))]
    return lambda batch: {name: value_of(batch, i, take) for i, name in enumerate(batch.names)}


def _copier(library: str) -> Callable[[Any], Any]:
    """What makes the program's array of a _core.Field, in memory of its own."""
    take = taker(library)
    if library == "torch":
        return lambda field: take(field).clone()
    if library == "dlpack":
        raise ValueError('copy=True: as_="dlpack" hands out the field itself')
    return lambda field: take(field).copy()
