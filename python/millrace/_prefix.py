"""A native beginning for samples that end in Python.

torchvision's picture sets read, decode and transform in C up to the first transform without an
exact native twin; that one and those behind it are called as torchvision would, on the same kind of
object: a PIL image, a tensor, a tv_tensors.Image.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _core
from ._arrays import taker
from ._place import StandIn, epoch
from ._seeding import kept_random_state, mix, seed_all
from ._translate_ops import flatten, translate_steps, type_name
from ._translate_sets import PILLOW_BOMB, Item, NotNative, find_pictures
from ._translate_state import State

# The object that a step gives; others give what they get.
_GIVES = {
    "torchvision.transforms.transforms.ToTensor": "tensor",
    "torchvision.transforms.transforms.PILToTensor": "tensor",
    "torchvision.transforms.v2._deprecated.ToTensor": "tensor",
    "torchvision.transforms.v2._type_conversion.PILToTensor": "tensor",
    "torchvision.transforms.v2._type_conversion.ToImage": "image",
    "torchvision.transforms.v2._type_conversion.ToPureTensor": "tensor",
}


class Plan(NamedTuple):
    """The native part. names: of its transforms. gives: "pil", "tensor" or "image".

    info: whether its PIL images have the file's info, as Pillow would hand it on. rest: what is
    called behind it.
    """

    item: Item
    files: bool
    transform: Any  # the data set's, of which this is the beginning
    ops: str
    names: list[str]
    gives: str
    info: bool
    channels: int
    rest: list[Callable[[Any], Any]]

    def text(self) -> str:
        """What runs natively."""
        reading = ["reading", "decoding"] if self.files else []
        return ", ".join(reading + self.names)


def plan_of(dataset: Any) -> Plan | None:
    """The native part of a data set's samples; None: there is none."""
    try:
        source, item, files = find_pictures(dataset)
    except NotNative:
        return None
    state = source.state
    if state is None or (state.pil and "PIL.Image" not in sys.modules):
        return None
    state.each = True
    steps = flatten(source.transform) if source.transform is not None else []
    best = _longest(steps, state, files)
    if best is None:
        return None
    done, state, gives, info = best
    if gives == "pil" and files and not _is_faster(dataset, item, state, info):
        return None
    if gives != "pil":
        state.to_planes()
    names = [type(step).__name__ for _, step in steps[:done]]
    rest = [step for _, step in steps[done:]]
    ops = ",".join(state.ops)
    return Plan(item, files, source.transform, ops, names, gives, info, state.channels, rest)


def _is_faster(dataset: Any, item: Item, state: State, info: bool) -> bool:
    """Whether files are worth it if Python gets PIL images: decoding alone is not, since making the
    image takes as long as is won."""
    if all(op.startswith(("hflip", "vflip", "pad")) for op in state.ops):
        return False
    jpeg = len(dataset) > 0 and str(item(dataset, 0).picture).lower().endswith((".jpg", ".jpeg"))
    return jpeg or not info  # see _info_of()


def _longest(
    steps: list[tuple[str, Any]], state: State, files: bool
) -> tuple[int, State, str, bool] | None:
    """The longest run of steps whose pixels and objects are torchvision's: how many, the state
    behind them, what they give, and whether a PIL image still has its file's info."""
    best: tuple[int, State, str, bool] | None = None
    gives, info, known = "pil", files, True
    for k, step in enumerate(steps):
        name, n = type_name(step[1]), len(state.ops)
        if gives == "image" and not name.startswith("torchvision.transforms.v2."):
            break
        if translate_steps([step], state)[0] == 0 or state.differences:
            break
        added = state.ops[n:]
        gives = _GIVES.get(name, gives)
        if gives == "pil":
            kept = _keeps_info(step[1], added)
            known, info = known and kept is not None, info and bool(kept)
        if gives != "pil" or known or not files:
            here = State(**{**vars(state), "ops": list(state.ops)})
            best = (k + 1, here, gives, info)
    return best


def _keeps_info(step: Any, ops: list[str]) -> bool | None:
    """Whether Pillow hands a picture's info on; None: now and then."""
    if getattr(step, "padding", None) is not None:
        return False if any(op.startswith("pad(") for op in ops) else None
    for op in ops:
        if op.startswith("to_gray("):
            return False if op.startswith("to_gray(1,") else None
        if op.startswith("color_jitter("):
            return not any(f"{part}=" in op for part in ("brightness", "contrast", "hue"))
    return True


class Prefixed(StandIn):
    """A data set whose samples begin natively."""

    def __init__(self, dataset: Any, plan: Plan, seed: int) -> None:
        super().__init__(dataset)
        self.plan, self.seed = plan, seed
        self._chain: _core.Chain | None = None
        self._process = -1

    def __getitem__(self, index: Any) -> Any:
        item = self.plan.item(self.original, index)
        if item.transform is not self.plan.transform:  # the program has replaced it
            return self.original[index]
        try:
            value = self._value(item.picture, index)
        except (_core.Error, OSError, ValueError, RuntimeError, MemoryError) as error:
            return self._python(index, error)
        if value is None:
            return self._python(index, None)
        for step in self.plan.rest:
            value = step(value)
        target, change = item.target, item.change
        return value, change(target) if change is not None else target

    def describe(self) -> list[str]:
        """What runs where, for explain()."""
        rest = ", ".join(getattr(t, "__name__", type(t).__name__) for t in self.plan.rest)
        lines = [f"natively: {self.plan.text()}"]
        lines += [f"ops: {self.plan.ops}"] if self.plan.ops else []
        return [*lines, f"then in Python: {rest or 'nothing but the batch'}"]

    def _value(self, picture: Any, index: Any) -> Any:
        """What the native part gives; None: it can't know what Pillow would give."""
        plan, chain = self.plan, self._own_chain()
        key = (epoch(), self.seed & _MASK, int(index) & _MASK)
        if plan.files:
            field = chain.read(os.fspath(picture), *key, PILLOW_BOMB)
        else:
            field = chain.apply(picture, *key)
        if plan.gives == "pil":
            info = _info_of(picture) if plan.info else {}
            return None if info is None else _image(field, plan.channels, info)
        tensor = _tensor(field)
        if plan.gives == "image":
            return sys.modules["torchvision.tv_tensors"].Image(tensor)
        return tensor

    def _own_chain(self) -> _core.Chain:
        """This process's: another one may have been forked while a thread used it."""
        if self._chain is None or self._process != os.getpid():
            self._chain, self._process = _core.Chain(self.plan.ops), os.getpid()
        return self._chain

    def _python(self, index: Any, error: Exception | None) -> Any:
        """The sample as torchvision makes it, which has the last word on what is a bad one."""
        try:
            with _drawing, kept_random_state():
                seed_all(mix(self.seed, epoch(), int(index)))
                return self.original[index]
        except Exception as own:
            if isinstance(error, _core.FormatError):
                raise error from own  # it names the file
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_chain": None, "_process": -1}


_MASK = (1 << 64) - 1
_drawing = threading.Lock()  # whose thread seeds and draws from the program's random generators


def _begin_child() -> None:
    global _drawing
    _drawing = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_begin_child)


def _info_of(path: Any) -> dict[Any, Any] | None:
    """A file's info, as Pillow's image of it has; None: that is only known behind its pixels."""
    with sys.modules["PIL.Image"].open(path) as image:
        return image.info if image.format in ("JPEG", "MPO") else None


def _image(field: _core.Field, channels: int, info: dict[Any, Any]) -> Any:
    shape = field.shape
    height, width = shape[1:] if channels == 1 else shape[:2]
    module, mode = sys.modules["PIL.Image"], "L" if channels == 1 else "RGB"
    image = module.frombytes(mode, (width, height), memoryview(field))
    image.info = info
    return image


def _tensor(field: _core.Field) -> Any:
    global _take
    if _take is None:
        _take = taker("torch")
    return _take(field)


_take: Callable[[Any], Any] | None = None
