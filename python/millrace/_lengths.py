"""How many batches there are, and which collate_fn is none."""

from __future__ import annotations

from typing import Any

from ._arguments import Settings


def is_default_collate(collate_fn: Any) -> bool:
    """Whether it is torch's default_collate, which is what no collate_fn means."""
    module = getattr(collate_fn, "__module__", "")
    name = getattr(collate_fn, "__name__", "")
    return module == "torch.utils.data._utils.collate" and name == "default_collate"


def divide(n: int, by: int, up: bool) -> int:
    return -(-n // by) if up else n // by


def batches(n: int, s: Settings) -> int:
    """Batches of this rank for n samples of all ranks."""
    mine = divide(n, s.world, s.remainder == "pad")
    return divide(mine, s.batch_size or 1, not s.drop_last)
