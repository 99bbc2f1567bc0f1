"""How a sample becomes tensors, and a batch of these what torch's default_collate gives.

The first samples tell the structure: a tree of tuples, lists and dicts whose leaves are tensors,
numbers or texts. The engine stacks each leaf over the batch; build() puts the stacked leaves back
into the tree. As in torch, a tuple comes back as a list, a named tuple as its own type, and a dict
or list as a copy of the first sample's.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, NamedTuple

from . import _core
from .errors import SampleMismatch

MAX_LEAVES = 16
TEXT_BYTES = 1024  # the least space for a text
NAME_BYTES = 23  # of a field of the engine, at most

_NUMPY = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16",
    "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64",
    "float16": "f16", "float32": "f32", "float64": "f64",
}  # fmt: skip
_TORCH = {**{f"torch.{name}": dtype for name, dtype in _NUMPY.items()}, "torch.bfloat16": "bf16"}
_NUMBERS: dict[type, str] = {bool: "bool", int: "i64", float: "f64"}
_EXACT = (bool, float)  # whose fields hold ints as well
_TEXTS: dict[type, str] = {str: "string", bytes: "bytes"}


class Leaf(NamedTuple):
    """A leaf of a sample: its name, dtype ("u8", "string") and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    var_dims: int = 0


class Structure:
    """The structure of a sample.

    leaves: in the tree's order. flatten(sample): its leaves as a tuple, or the leaf itself if it
    is the whole sample; raises SampleMismatch for another tree. flatten_all(samples): a list of
    that, perhaps the same list. build(values): the tree of a batch, from an iterator over one value
    for each leaf.
    """

    def __init__(self, sample: object) -> None:
        self.leaves: list[Leaf] = []
        self.tree = _tree(sample, "", self.leaves, None)
        self.flat = self.tree[0] in ("leaf", "tuple") and all(
            child[0] == "leaf" for child in self.tree[2]
        )
        leaves: list[object] = []
        _flatten(self.tree, sample, leaves)
        self.exact = [(i, type(leaf)) for i, leaf in enumerate(leaves) if type(leaf) in _EXACT]

    def flatten(self, sample: object) -> object:
        tree = self.tree
        if tree[0] == "leaf":
            if self.exact:
                self._check((sample,))
            return sample
        if self.flat and type(sample) is tuple and len(sample) == len(tree[2]):
            found = sample
        else:
            out: list[object] = []
            _flatten(tree, sample, out)
            found = tuple(out)
        if self.exact:
            self._check(found)
        return found

    def flatten_all(self, samples: list[Any]) -> list[Any]:
        """flatten() of each: most need nothing done to them."""
        if not self.exact:
            if self.tree[0] == "leaf":
                return samples
            if self.flat and _core.all_tuples(samples, len(self.leaves)):
                return samples
        return [self.flatten(sample) for sample in samples]

    def _check(self, leaves: tuple[object, ...]) -> None:
        """An int fits a float's field, but torch makes another batch of ints."""
        for i, kind in self.exact:
            if type(leaves[i]) in _NUMBERS and type(leaves[i]) is not kind:
                raise SampleMismatch(f"expected {kind.__name__}, got {_describe(leaves[i])}")

    def build(self, values: Iterator[Any]) -> Any:
        return _build(self.tree, values)

    def merge(self, other: Structure) -> bool:
        """Whether samples of both structures fit one batch. Makes space for the longer text."""
        if not _same(self.tree, other.tree) or len(self.leaves) != len(other.leaves):
            return False
        for i, (mine, theirs) in enumerate(zip(self.leaves, other.leaves, strict=True)):
            if mine.dtype != theirs.dtype:
                return False
            if mine.dtype in ("string", "bytes"):
                self.leaves[i] = max(mine, theirs, key=lambda leaf: leaf.shape)
            elif mine.shape != theirs.shape:
                return False
        return True


def structure_of(samples: Sequence[object]) -> Structure | str:
    """The structure that all of these samples have, or why the engine can't stack them."""
    try:
        return merged([Structure(sample) for sample in samples])
    except SampleMismatch as error:
        return str(error)


def merged(structures: Sequence[Structure | str]) -> Structure | str:
    """One for samples of all these structures, or why there is none."""
    first: Structure | None = None
    for structure in structures:
        if isinstance(structure, str):
            return structure
        if first is None:
            first = structure
        elif not first.merge(structure):
            return "samples differ in structure, shape or type"
    if first is None:
        return "the data set is empty"
    if not 1 <= len(first.leaves) <= MAX_LEAVES:
        return f"a sample has {len(first.leaves)} leaves, expected 1 to {MAX_LEAVES}"
    return first


def leaf_of(value: Any) -> tuple[str, tuple[int, ...]] | None:
    """dtype and shape of a leaf that the engine can hold; None: of another object."""
    kind = type(value)
    if kind in _NUMBERS:
        return _NUMBERS[kind], ()
    if kind in _TEXTS:
        size = len(value.encode() if isinstance(value, str) else bytes(value))
        return _TEXTS[kind], (max(TEXT_BYTES, 4 * size),)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_leaf(torch, value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.number | numpy.bool_):
        dtype = _NUMPY.get(value.dtype.name) if value.dtype.isnative else None
        return (dtype, tuple(value.shape)) if dtype and value.size > 0 else None
    return None


def _torch_leaf(torch: Any, value: Any) -> tuple[str, tuple[int, ...]] | None:
    plain = (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_nested)
        and value.numel() > 0
    )
    dtype = _TORCH.get(str(value.dtype)) if plain else None
    return (dtype, tuple(value.shape)) if dtype else None


# A tree is (kind, the sample's object that a batch copies, children, keys).
Tree = tuple[str, Any, list[Any], list[Any]]


def _tree(value: object, path: str, leaves: list[Leaf], texts: type | None) -> Tree:
    """texts: what a batch's texts become here: torch makes tuples of them inside of sequences."""
    leaf = leaf_of(value)
    if leaf:
        name = path or "data"
        if any(name == other.name for other in leaves) or len(name) > NAME_BYTES:
            name = f"leaf{len(leaves)}"
        leaves.append(Leaf(name, leaf[0], leaf[1], int(leaf[0] in ("string", "bytes"))))
        return "leaf", texts if leaf[0] in _TEXTS.values() else None, [], []
    if len(leaves) > MAX_LEAVES:
        raise SampleMismatch(f"a sample has more than {MAX_LEAVES} leaves")
    if isinstance(value, Mapping):
        keys = list(value)
        children = [_tree(value[key], _name(path, key), leaves, None) for key in keys]
        return "map", _empty_copy(value, dict.fromkeys(keys)), children, keys
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        children = [_tree(item, _name(path, i), leaves, tuple) for i, item in enumerate(value)]
        if isinstance(value, tuple):
            named = hasattr(value, "_fields")
            return ("named" if named else "tuple"), type(value), children, []
        return "list", _empty_copy(value, [None] * len(children)), children, []
    where = f" at {path}" if path else ""
    raise SampleMismatch(f"a sample{where} is {_describe(value)}, not a tensor, number or text")


def _empty_copy(value: Any, plain: Any) -> Any:
    """What a batch's dict or list is made from: without the sample's values if it is plain."""
    return plain if type(value) is type(plain) else copy.copy(value)


def _name(path: str, key: object) -> str:
    text = "".join(c if c.isalnum() and c.isascii() else "_" for c in str(key)) or "_"
    return f"{path}_{text}" if path else (text if not text[0].isdigit() else f"f{text}")


def _describe(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{kind} of {dtype}" if dtype is not None else kind


def _flatten(tree: Tree, value: Any, out: list[object]) -> None:
    kind, _, children, keys = tree
    if kind == "leaf":
        out.append(value)
    elif kind == "map":
        try:
            for key, child in zip(keys, children, strict=True):
                _flatten(child, value[key], out)
        except (KeyError, TypeError, IndexError) as error:
            raise SampleMismatch(f"a sample has no {error}") from error
    elif not isinstance(value, tuple | Sequence) or len(value) != len(children):
        raise SampleMismatch(f"expected {len(children)} items, got {_describe(value)}")
    else:
        for item, child in zip(value, children, strict=True):
            _flatten(child, item, out)


def _build(tree: Tree, values: Iterator[Any]) -> Any:
    kind, like, children, keys = tree
    if kind == "leaf":
        value = next(values)
        return tuple(value) if like is tuple else value
    items = [_build(child, values) for child in children]
    if kind == "map":
        return _fill_map(like, dict(zip(keys, items, strict=True)))
    if kind == "named":
        return like(*items)
    return items if kind == "tuple" else _fill_list(like, items)


def _fill_map(like: Any, items: dict[Any, Any]) -> Any:
    if type(like) is dict:
        return items
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(items)
            return clone
        return type(like)(items)
    except TypeError:
        return items


def _fill_list(like: Any, items: list[Any]) -> Any:
    if type(like) is list:
        return items
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(like)(items)
    except TypeError:
        return items


def _same(a: Tree, b: Tree) -> bool:
    same_type = a[1] is b[1] if a[0] == "named" else type(a[1]) is type(b[1])
    return (
        a[0] == b[0]
        and same_type
        and a[3] == b[3]
        and len(a[2]) == len(b[2])
        and all(_same(x, y) for x, y in zip(a[2], b[2], strict=True))
    )


def map_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    """The same tree with convert() applied to each leaf; containers keep their type."""
    if isinstance(value, Mapping):
        return _fill_map(value, {key: map_leaves(item, convert) for key, item in value.items()})
    if isinstance(value, tuple):
        items = [map_leaves(item, convert) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_leaves(item, convert) for item in value]
    return convert(value)
