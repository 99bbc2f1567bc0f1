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


def share_of(n: int, rank: int, world: int, remainder: str) -> int:
    """How many of n samples, or batches, a rank has."""
    more_from = {"pad": 0, "exact": rank, "drop": world}[remainder]
    return n // world + (n % world > more_from)


def batches(n: int, s: Settings) -> int:
    """Batches of this rank for n samples of all ranks."""
    mine = share_of(n, s.rank, s.world, s.remainder)
    return divide(mine, s.batch_size or 1, not s.drop_last)
