"""Exceptions of the Python part. Those of the engine are in millrace._core."""

from __future__ import annotations

_ADVICE = 'use path="auto", or do that step behind the loader'


class NotNative(ValueError):
    """path="native", sandbox=True or cache= was given, and a data set or argument needs Python.

    reasons: one line for each thing that has no native twin.
    """

    def __init__(self, reasons: list[str], advice: str = _ADVICE) -> None:
        self.reasons = list(reasons)
        super().__init__("; ".join([*self.reasons, advice]))


class LoaderTimeout(RuntimeError, TimeoutError):
    """No batch came within `timeout` seconds: a RuntimeError, as torch's, and a TimeoutError."""


class SampleMismatch(ValueError):
    """A sample has another structure, shape or type than the first ones."""
