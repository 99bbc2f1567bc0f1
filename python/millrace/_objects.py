"""Batches that are Python objects: the engine only orders them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core
from ._bad import BadItem
from ._recipe import Made
from ._run import END, Place, parse_sample
from ._where import name_of
from .stats import BadSample

Limit = Callable[[int], float]
Lost = Callable[[int, int, BaseException], "BadItem | None"]


class ObjectRun:
    """Batches that are Python objects, which the engine only orders.

    opener(number): an engine over the batches' numbers from this one on. take(epoch, number,
    batch): the object. n: batches of the epoch, if known. leave(): called when an engine is closed.
    unit: samples of all ranks that a batch stands for; start: before batch 0. max_bad(n): more bad
    samples of n end the run. lost(epoch, number, error): the sample that ended the worker processes
    which made this batch, if the batch can be made without it now.
    """

    def __init__(
        self,
        opener: Callable[[int], _core.Loader],
        at: Place,
        take: Callable[[int, int, _core.Batch], Any],
        leave: Callable[[], None],
        *,
        first: int = 0,
        n: int | None = None,
        unit: int = 1,
        start: int = 0,
        max_bad: Limit | None = None,
        lost: Lost | None = None,
    ) -> None:
        self.opener, self.epoch, self.take, self.leave = opener, at.epoch, take, leave
        self.done, self.n, self.unit, self.start = first, n, unit, start
        self.max_bad, self.lost, self.data, self._bad = max_bad, lost, None, []
        self._low, self._out = first, set()
        self._seen = 0  # samples, bad ones too
        self.engine, self._open = opener(first), True

    _bad: list[BadSample]
    _low: int  # all batches before it were handed out,
    _out: set[int]  # and these of the later ones: engines need not keep the order
    data: Any

    def next(self, timeout: float | None) -> Any:
        while self.n is None or self.done < self.n:
            found = self._next(timeout)
            if found is None:
                continue
            number, made = found
            if not isinstance(made, BaseException) and made.end:
                if self.n is None or number < self.n:  # else of one behind the end
                    self.n = self.done
                continue
            self._count(number)
            if isinstance(made, BaseException):
                raise made
            self._note(made, number)
            if made.n > 0:
                return made.value
        return END

    def _next(self, timeout: float | None) -> tuple[int, Any] | None:
        """The next batch's number and object; None: none yet."""
        try:
            batch = self.engine.next(None, timeout)
        except Exception as error:
            if not self._goes_on(error):
                raise
            return None
        assert batch is not None, "an endless engine has ended"
        number = int(batch.indices[0])
        made = self.take(self.epoch, number, batch)
        batch.release()
        return None if number in self._out or number < self._low else (number, made)

    def _goes_on(self, error: Exception) -> bool:
        """Whether another engine makes the batch without the sample that this error is of."""
        found = _batch_of(error) if self.lost is not None else None
        item = self.lost(self.epoch, found, error) if self.lost and found is not None else None
        if item is None or found is None:
            return False
        self._note(Made(bad=(item,)), found)
        self._close_engine()
        self.engine, self._open = self.opener(self._low), True
        return True

    def _count(self, number: int) -> None:
        self.done += 1
        self._out.add(number)
        while self._low in self._out:
            self._out.remove(self._low)
            self._low += 1

    def _note(self, made: Made, number: int) -> None:
        if made.state is not None:
            self.data = made.state
        for item in made.bad:
            reason = f"{type(item.error).__name__}: {item.error}"
            self._bad.append(
                BadSample(item.key, self.epoch, number, item.file, 0, reason, item.error)
            )
        self._seen += made.n + len(made.bad)
        if made.bad and self.max_bad is not None and len(self._bad) > self.max_bad(self._seen):
            last = self._bad[-1]
            raise _core.BadSamples(
                f"{len(self._bad)} bad samples in {self._seen} are more than max_bad allows; the "
                f"last one is {name_of(last.index)}: {last.reason}"
            ) from last.error

    def begin(self, epoch: int) -> bool:
        return False

    def place(self) -> Place:
        return Place(self.epoch, self.start + self.done * self.unit, data=self.data)

    def stats(self) -> dict[str, Any]:
        return dict(self.engine.stats())

    def bad(self) -> list[BadSample]:
        return list(self._bad)

    def _close_engine(self, wait: float | None = None) -> None:
        self.engine.close(wait)
        if self._open:
            self._open = False
            self.leave()

    def close(self, wait: float | None = None) -> None:
        self._close_engine(wait)


def _batch_of(error: BaseException) -> int | None:
    return parse_sample(error) if hasattr(error, "code") else None
