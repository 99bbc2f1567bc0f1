"""Where a loader is: its epoch, and states to continue from."""

from __future__ import annotations

import json
import weakref
from typing import Any

from ._iterator import LoaderIterator
from ._loader_path import LoaderPath
from ._run import Place, Run
from ._source import make_order


class LoaderState(LoaderPath):
    """The part of DataLoader that is its place in the data."""

    epoch: int
    _epochs: int
    _idle: Run | None
    _last: weakref.ref[LoaderIterator] | None
    _resume: Place | None
    _place: Place | None
    _closed: bool

    def _check_open(self) -> None:
        raise NotImplementedError

    def _forget(self, run: Run) -> None:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """The next loop is this epoch (from 0); an iterator that gave no batch yet begins with it,
        as torch's samplers do. Loops count up by themselves."""
        if epoch < 0:
            raise ValueError(f"epoch={epoch}: expected at least 0")
        self.epoch, self._place = epoch, None
        iterator = self._last() if self._last is not None else None
        if iterator is None or not iterator.fresh or self._closed:
            return
        if iterator.epoch != epoch:
            iterator.restart(epoch)
        self.epoch = epoch + max(self._epochs, 1)

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last batch of the latest iterator, as JSON can hold it: for a loader
        of the same data set and order; other numbers of workers, ranks and batch sizes are fine.
        An IterableDataset needs as many workers as before: each has its own place."""
        iterator = self._last() if self._last is not None else None
        at = self._resume or self._place or Place(self.epoch, 0)
        if self._resume is None and iterator is not None:
            at = iterator.place()
        return {
            "millrace": 1,
            "seed": self.seed,
            "epoch": at.epoch,
            "position": at.position,
            "unit": "batches" if self._given[1] is not None else "samples",
            "samples": self._source_.n if self._source_ is not None else None,
            "order": self._order_name(),
            "engine": json.loads(at.engine) if at.engine else None,
            "mode": self._source_.mode if self._source_ is not None else "",
            "random": at.random,
            "data": at.data,
        }

    def _order_name(self) -> str:
        sampler, batch_sampler, shuffle = self._given
        if sampler is not None or batch_sampler is not None:
            return "a sampler's"
        return "shuffled" if shuffle else "sequential"

    def load_state_dict(self, state: dict[str, Any], *, force_state: bool = False) -> None:
        """The next loop continues there. The state's seed becomes this loader's.

        force_state: also with another transform, or with other data of as many samples.

        Raises ValueError for a state of another kind, order or number of samples; of a data set
        that is read natively the loop does, if the data are others.
        """
        if not isinstance(state, dict) or state.get("millrace") != 1:
            raise ValueError("the state is none of millrace.DataLoader.state_dict()")
        if (state["unit"] == "batches") != (self._given[1] is not None):
            raise ValueError("of the state and this loader only one has a batch sampler")
        if state.get("order", self._order_name()) != self._order_name():
            raise ValueError(
                f"the state's order is {state['order']}, this loader's is {self._order_name()}"
            )
        self._check_open()
        self._reset(int(state["seed"]))
        samples = state.get("samples")
        if samples is not None and self._source.n is not None and samples != self._source.n:
            raise ValueError(
                f"the state is of a data set of {samples} samples, this one has {self._source.n}"
            )
        native = self._source_ is not None and self._source_.mode == state["mode"] == "native"
        same = native and not force_state
        engine = json.dumps(state["engine"]) if state["engine"] and same else None
        self.epoch, self._last = int(state["epoch"]), None
        self._resume = Place(
            self.epoch, int(state["position"]), engine, state["random"], state["data"]
        )

    def _reset(self, seed: int) -> None:
        """Another seed: orders and workers are made again."""
        if self._idle is not None:
            self._forget(self._idle)
            self._idle = None
        if seed == self._settings.seed:
            return
        self._settings.seed = seed
        if self._source_ is not None and self._source_.mode == "native":
            order = make_order(self._settings, self._source_.n, self._given)
            self._source_.order = order  # type: ignore[attr-defined]
        elif self._source_ is not None:
            self._source_.close()
            self._source_ = None
