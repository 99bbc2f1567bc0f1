"""Random numbers of Python samples.

A sample that draws from the global generators of random, numpy or torch gets them seeded by (seed,
epoch, index), so that its augmentation is the same for any number of workers, and never that of
another sample. Samples that draw nothing are not seeded: it would cost more than they do.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """A 64-bit hash of integers (splitmix64)."""
    x = 0
    for value in values:
        x = (x + value + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return x


def seed_all(seed: int) -> None:
    """Seeds the global generators of random and, where imported, of numpy and torch (its CPU's)."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


class RandomState:
    """The state of the global generators at one moment."""

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        torch = sys.modules.get("torch")
        self.random = random.getstate()
        self.numpy: Any = numpy.random.get_state() if numpy is not None else None
        self.torch: Any = torch.default_generator.get_state() if torch is not None else None

    def restore(self) -> None:
        random.setstate(self.random)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].default_generator.set_state(self.torch)

    def unchanged(self) -> bool:
        """Whether nothing was drawn since. Generators of modules imported since are left out."""
        now = RandomState()
        same_numpy = self.numpy is None or (
            self.numpy[2:] == now.numpy[2:] and (self.numpy[1] == now.numpy[1]).all()
        )
        same_torch = self.torch is None or bool((self.torch == now.torch).all())
        return self.random == now.random and bool(same_numpy) and same_torch


@contextmanager
def kept_random_state() -> Iterator[RandomState]:
    """Leaves the global generators as they were."""
    state = RandomState()
    try:
        yield state
    finally:
        state.restore()


def state_to_json(generator: Any = None) -> dict[str, Any]:
    """The global generators' state, and a torch.Generator's, as JSON can hold it."""
    state = RandomState()
    out: dict[str, Any] = {"random": state.random}
    if state.numpy is not None:
        out["numpy"] = [state.numpy[0], state.numpy[1].tolist(), *state.numpy[2:]]
    if state.torch is not None:
        out["torch"] = state.torch.numpy().tobytes().hex()
    if generator is not None:
        out["generator"] = generator.get_state().numpy().tobytes().hex()
    return out


def state_from_json(state: dict[str, Any], generator: Any = None) -> None:
    """Sets what state_to_json() wrote, as far as the modules are imported."""
    version, numbers, gauss = state["random"]
    random.setstate((version, tuple(numbers), gauss))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(tuple(state["numpy"]))
    if torch is not None and "torch" in state:
        torch.default_generator.set_state(_bytes_tensor(torch, state["torch"]))
    if generator is not None and "generator" in state:
        generator.set_state(_bytes_tensor(sys.modules["torch"], state["generator"]))


def _bytes_tensor(torch: Any, text: str) -> Any:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)


def draw_seed(generator: Any) -> int:
    """A seed as torch draws one: from the generator, else torch's global one, else random's."""
    torch = sys.modules.get("torch")
    if torch is None:
        return random.getrandbits(48)
    drawn = torch.empty((), dtype=torch.int64).random_(generator=generator)
    return int(drawn.item()) & ((1 << 48) - 1)
