"""What iter(loader) gives: the batches of one epoch, or of `epochs` of them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ._closing import close_elsewhere
from ._core import BadSamples
from ._idle import ClosedRun
from ._run import END, Place, Run
from ._where import Failed, Traceback, add_note
from .errors import LoaderTimeout, SampleMismatch

if TYPE_CHECKING:
    from .loader import DataLoader


class LoaderIterator:
    """An iterator over batches. Independent of the loader's other iterators.

    It may be used by the process that made it only; a forked child gets a RuntimeError.
    """

    def __init__(
        self, loader: DataLoader, run: Run, at: Place, epochs: int, begun_ns: int = 0
    ) -> None:
        self._loader, self._run = loader, run
        self._epoch, self._left = at.epoch, epochs  # epochs after this one; -1: endless
        self._timeout = loader.timeout or None
        self._pid = os.getpid()
        self._over = False
        self.fresh = True  # no batch was handed out
        self._begun_ns = begun_ns  # when the run was begun to be opened; 0: it was open

    def __iter__(self) -> LoaderIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        while True:
            try:
                value = self._run.next(self._timeout)
            except BaseException as error:
                self._failed(error)
                continue
            if self.fresh:
                self.fresh = False
                self._note_first()
            if value is not END:
                return value
            if self._over or not self._next_epoch():
                raise StopIteration

    def _note_first(self) -> None:
        """The engine counts from when it is opened: workers were started before that."""
        if self._begun_ns:
            total_ns = time.monotonic_ns() - self._begun_ns
            start_ns = total_ns - self._run.stats().get("first_batch_ns", total_ns)
            self._loader._first_ns = (total_ns, max(start_ns, 0))

    def _next_epoch(self) -> bool:
        """Goes on with the next epoch of this loop; else gives the run back to the loader."""
        if self._left == 0:
            self._over = True
            self._loader._finished(self, self._run, self._epoch + 1)
            return False
        self._left -= 1 if self._left > 0 else 0
        self._epoch += 1
        if not self._run.begin(self._epoch):
            self._loader._forget(self._run)
            self._run = self._loader._open(Place(self._epoch, 0), self._left)
        return True

    def _failed(self, error: BaseException) -> None:
        """Raises what the program should see, or goes on in another mode."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}; iterate the loader again after fork"
            ) from error
        source = self._loader._source
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            self._loader._interrupted(self._run)
            raise error
        if isinstance(error, TimeoutError) and not hasattr(error, "code"):
            self._loader._interrupted(self._run)  # the sample that is late is not waited for
            raise LoaderTimeout(
                f"DataLoader timed out after {self._timeout:g} seconds: {error}"
            ) from None
        if isinstance(error, Failed):
            found: BaseException | None = error.error
            error = RuntimeError(f"{error}, in epoch {self._epoch}")
        else:
            found = source.error(error, self._epoch) if hasattr(error, "code") else error
        if (found is None or isinstance(found, SampleMismatch)) and self._switch(error):
            return
        if found is None or found is error:
            raise error
        if isinstance(error, BadSamples):
            raise error from found
        if isinstance(found, StopIteration):
            raise RuntimeError(f"a sample raised StopIteration: {error}") from found
        if found.__cause__ is not None:  # a worker's traceback, or the program's own
            if not isinstance(found.__cause__, Traceback) and not hasattr(found, "where"):
                add_note(found, str(error))
            raise found
        raise found from error

    def _switch(self, error: BaseException) -> bool:
        """Opens the run again where it failed, with batches made in Python."""
        at = self._run.place()._replace(engine=None)
        self._run.close()
        if not self._loader._source.switch(error):
            return False
        self._loader._forget(self._run)
        self._run = self._loader._open(at, self._left)
        return True

    def restart(self, epoch: int) -> None:
        """Begins with another epoch; nothing was handed out yet."""
        self._epoch = epoch
        self._loader._forget(self._run)
        self._run = self._loader._open(Place(epoch, 0), self._left)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._epoch

    def place(self) -> Place:
        """The place behind the last batch."""
        if self._over:
            return Place(self._epoch + 1, 0)
        return self._run.place()

    def close(self) -> None:
        """Stops the work of this iterator; it gives no more batches."""
        if self._over:
            return
        self._over, self._left = True, 0
        if self._pid == os.getpid():
            self._loader._left(self, self._run)
        self._run = ClosedRun()

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            close_elsewhere(self.close)
