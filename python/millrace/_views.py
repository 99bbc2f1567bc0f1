"""loader.sampler and loader.batch_sampler where the program gave none: for code that reads them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._samplers import Order

if TYPE_CHECKING:
    from .loader import DataLoader


class EpochSampler:
    """The order of the next epoch, all ranks together. Trainers call set_epoch() and len()."""

    def __init__(self, loader: DataLoader, n: int | None, shuffle: bool) -> None:
        self._loader, self._n, self._shuffle = weakref.ref(loader), n, shuffle

    def _of(self) -> DataLoader:
        loader = self._loader()
        if loader is None:
            raise RuntimeError("the loader of this sampler is gone")
        return loader

    def set_epoch(self, epoch: int) -> None:
        self._of().set_epoch(epoch)

    def __len__(self) -> int:
        if self._n is None:
            raise TypeError("the data set has no length")
        return self._n

    def __iter__(self) -> Iterator[int]:
        if len(self) == 0:
            return iter(())
        kind = "random" if self._shuffle else "sequential"
        order = Order(kind, len(self), **({"seed": self._of().seed} if self._shuffle else {}))
        return iter(order.sampler.map(self._of().epoch, 0, len(self)))


class EpochBatches:
    """The batches of the next epoch, as lists of indices."""

    def __init__(
        self, loader: DataLoader, sampler: object, batch_size: int, drop_last: bool
    ) -> None:
        self._loader = weakref.ref(loader)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def set_epoch(self, epoch: int) -> None:
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:  # type: ignore[attr-defined]
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch
