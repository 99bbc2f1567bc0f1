"""Which files or arrays a data set of torch or torchvision reads."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional, Sequence, cast

from . import _core
from ._translate_ops import type_name
from ._translate_state import State

_DECODED = (".jpg", ".jpeg", ".png", ".webp")
_MNIST = "torchvision.datasets.mnist."
_CIFAR = "torchvision.datasets.cifar."
_FOLDER = "torchvision.datasets.folder."
_MAX_FIELDS = 16
PILLOW_BOMB = 178956970  # pixels that Pillow refuses by default


class NotNative(Exception):
    """Its arguments are the reasons."""


@dataclass
class Source:
    """What a data set reads. open: makes the native set. state: of a picture before transforms;
    None: arrays that have none. leaves: the fields of a sample."""

    open: Callable[[], _core.Dataset]
    leaves: tuple[str, ...]
    state: Optional[State] = None
    transform: object = None
    differences: list[str] = field(default_factory=list)


def pillow_version() -> tuple[int, ...]:
    """Of the Pillow that torchvision uses; (0,) if it is not loaded."""
    pillow = sys.modules.get("PIL")
    parts = str(getattr(pillow, "__version__", "0")).split(".")
    return tuple(int(p) for p in parts if p.isdigit())


def find_source(dataset: Any, indices: Optional[Sequence[int]] = None) -> Source:
    """The source of a data set, or of its samples `indices`. Raises NotNative."""
    name = type_name(dataset)
    if name == "torch.utils.data.dataset.Subset":
        inner = [int(i) for i in dataset.indices]
        chosen = inner if indices is None else [inner[i] for i in indices]
        return find_source(dataset.dataset, chosen)
    finder = _FINDERS.get(name)
    if finder is None:
        raise NotNative(f"{name}: a data set without a native twin")
    if "__getitems__" in vars(dataset):  # torch's loader calls it; other methods are the type's
        raise NotNative(f"{name}: its __getitems__() was replaced")
    if getattr(dataset, "target_transform", None) is not None:
        raise NotNative("target_transform: labels are changed in Python")
    return finder(dataset, indices)


# ---- picture files ----


def _check_loader(dataset: Any) -> None:
    loader = dataset.loader
    if f"{loader.__module__}.{getattr(loader, '__qualname__', '')}" not in (
        _FOLDER + "default_loader",
        _FOLDER + "pil_loader",
    ):
        raise NotNative("loader: pictures are read by a function of the program")
    vision = sys.modules.get("torchvision")
    backend: Any = getattr(vision, "get_image_backend", None)
    if backend is not None and backend() != "PIL":
        raise NotNative(f"torchvision's image backend is {backend()}: only PIL")


def _folder(dataset: Any, indices: Optional[Sequence[int]]) -> Source:
    _check_loader(dataset)
    samples = dataset.samples if indices is None else [dataset.samples[i] for i in indices]
    if not samples:
        raise NotNative("no samples")
    _check_names(samples)
    png = any(path.lower().endswith(".png") for path, _ in samples)
    return Source(
        lambda: _open_list(samples),
        ("image", "label"),
        State(pil=True, channels=3, pillow=pillow_version()),
        dataset.transform,
        ["PNG files of 16-bit grey: Pillow clips values at 255, millrace scales them"] * png,
    )


def _check_names(samples: Sequence[tuple[str, int]]) -> None:
    endings = Counter(os.path.splitext(path)[1].lower() for path, _ in samples)
    others = sorted(e for e in endings if e not in _DECODED)
    if others:
        many = sum(endings[e] for e in others)
        raise NotNative(
            f"{many} files end with {', '.join(others)}: millrace decodes JPEG, PNG and WebP"
        )
    for path, label in samples:
        if "\t" in path or "\n" in path:
            raise NotNative(f"{path!r}: a tab or a newline in its name")
        if not isinstance(label, int):
            raise NotNative(f"{path!r}: its label {label!r} is no whole number")


def _open_list(samples: Sequence[tuple[str, int]]) -> _core.Dataset:
    """The files in the order of the data set's own list, which has the last word on extensions,
    order and labels."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        path = os.path.join(folder, "samples.txt")
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as out:
            out.writelines(f"{os.path.abspath(p)}\t{label}\n" for p, label in samples)
        return _core.Dataset.open(
            f"list:{path},root=/,links=follow,exact,ignore-orientation,max-pixels={PILLOW_BOMB}"
        )


# ---- arrays ----


def _chosen(array: Any, indices: Optional[Sequence[int]]) -> Any:
    """Samples of an array or tensor: a view if they are neighbours, else a copy."""
    if indices is None:
        return array
    first = indices[0] if indices else 0
    if list(indices) == list(range(first, first + len(indices))):
        return array[first : first + len(indices)]
    return array[list(indices)]


def _copied(indices: Optional[Sequence[int]]) -> list[str]:
    """What a Subset's copy means."""
    if indices is None or list(indices) == list(range(indices[0], indices[0] + len(indices))):
        return []
    return ["Subset: its samples are copied; later changes of the whole set's arrays are not seen"]


def _open_arrays(fields: list[tuple[str, Any]]) -> Callable[[], _core.Dataset]:
    return lambda: _core.Dataset.arrays(fields)


def _mnist(dataset: Any, indices: Optional[Sequence[int]]) -> Source:
    data, targets = dataset.data, dataset.targets
    if "torch.uint8" != str(data.dtype) or data.ndim != 3 or "torch.int64" != str(targets.dtype):
        raise NotNative("data or targets were replaced: expected u8[n,height,width] and i64[n]")
    if len(data) != len(targets) or targets.ndim != 1 or not len(data):
        raise NotNative(f"{len(data)} pictures and {len(targets)} labels")
    images, labels = _chosen(data, indices).contiguous(), _chosen(targets, indices).contiguous()
    n, height, width = (int(v) for v in images.shape)
    state = State(pil=True, channels=1, layout="nchw", pillow=pillow_version())
    state.sized(height, width)
    fields = [("image", images.view(n, 1, height, width)), ("label", labels)]
    return Source(
        _open_arrays(fields), ("image", "label"), state, dataset.transform, _copied(indices)
    )


def _qmnist(dataset: Any, indices: Optional[Sequence[int]]) -> Source:
    if not dataset.compat:
        raise NotNative("QMNIST(compat=False): labels are vectors")
    twin = _Arrays(dataset.data, dataset.targets[:, 0], dataset.transform)
    return _mnist(twin, indices)


class _Arrays:
    """The attributes of a data set that keeps its pictures in memory."""

    def __init__(self, data: Any, targets: Any, transform: object) -> None:
        self.data, self.targets, self.transform = data, targets, transform


def _cifar(dataset: Any, indices: Optional[Sequence[int]]) -> Source:
    import numpy as np  # loaded: the data set has arrays of it

    data = dataset.data
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[3:] != (3,):
        raise NotNative("data was replaced: expected u8[n,height,width,3]")
    labels = np.asarray(dataset.targets)
    if labels.dtype.kind != "i" or labels.shape != data.shape[:1] or not len(data):
        raise NotNative(f"targets were replaced: expected {len(data)} whole numbers")
    images = np.ascontiguousarray(_chosen(data, indices))
    labels = np.ascontiguousarray(_chosen(labels.astype(np.int64), indices))
    state = State(pil=True, channels=3, pillow=pillow_version())
    state.sized(int(images.shape[1]), int(images.shape[2]))
    return Source(
        _open_arrays([("image", images), ("label", labels)]),
        ("image", "label"),
        state,
        dataset.transform,
        _copied(indices),
    )


def _tensors(dataset: Any, indices: Optional[Sequence[int]]) -> Source:
    tensors = cast("Sequence[Any]", dataset.tensors)
    if not 1 <= len(tensors) <= _MAX_FIELDS:
        raise NotNative(f"{len(tensors)} tensors: expected 1 to {_MAX_FIELDS}")
    for k, t in enumerate(tensors):
        why = _unfit(t)
        if why:
            raise NotNative(f"tensor {k}: {why}")
    names = tuple(f"x{k}" for k in range(len(tensors)))
    fields = [(name, _chosen(t, indices).contiguous()) for name, t in zip(names, tensors)]
    return Source(_open_arrays(fields), names, differences=_copied(indices))


def _unfit(t: Any) -> str:
    """Why a tensor's rows cannot be read in place."""
    if f"{type(t).__module__}.{type(t).__name__}" not in ("torch.Tensor",):
        return f"it is a {type(t).__name__}"
    if t.device.type != "cpu":
        return f"it is on {t.device}"
    if t.requires_grad:
        return "it requires a gradient"
    if str(t.layout) != "torch.strided" or t.is_quantized or t.is_conj() or t.is_neg():
        return "its elements are not plain"
    if not t.is_contiguous():
        return "it is not contiguous: pass tensor.contiguous()"
    if not len(t):
        return "it is empty"
    return ""


_FINDERS: dict[str, Callable[[Any, Optional[Sequence[int]]], Source]] = {
    _FOLDER + "ImageFolder": _folder,
    _FOLDER + "DatasetFolder": _folder,
    _MNIST + "MNIST": _mnist,
    _MNIST + "FashionMNIST": _mnist,
    _MNIST + "KMNIST": _mnist,
    _MNIST + "EMNIST": _mnist,
    _MNIST + "QMNIST": _qmnist,
    _CIFAR + "CIFAR10": _cifar,
    _CIFAR + "CIFAR100": _cifar,
    "torch.utils.data.dataset.TensorDataset": _tensors,
}


# ---- single samples ----


class Parts(NamedTuple):
    """A sample before its transforms. picture: a path, or an array. change: target_transform."""

    picture: Any
    target: Any
    transform: Any
    change: Optional[Callable[[Any], Any]]


Item = Callable[[Any, Any], Parts]


def _folder_item(dataset: Any, index: Any) -> Parts:
    path, target = dataset.samples[index]
    return Parts(path, target, dataset.transform, dataset.target_transform)


def _mnist_item(dataset: Any, index: Any) -> Parts:
    target = int(dataset.targets[index])
    return Parts(dataset.data[index].numpy(), target, dataset.transform, dataset.target_transform)


def _qmnist_item(dataset: Any, index: Any) -> Parts:
    target = int(dataset.targets[index][0])
    return Parts(dataset.data[index].numpy(), target, dataset.transform, dataset.target_transform)


def _cifar_item(dataset: Any, index: Any) -> Parts:
    target = dataset.targets[index]
    return Parts(dataset.data[index], target, dataset.transform, dataset.target_transform)


def _subset_item(dataset: Any, index: Any) -> Parts:
    item, _ = _item_of(dataset.dataset)
    return item(dataset.dataset, dataset.indices[index])


def _item_of(dataset: Any) -> tuple[Item, Any]:
    """What takes a sample's parts, and the data set below all Subsets. Raises NotNative."""
    name = type_name(dataset)
    own = getattr(dataset, "__dict__", {})  # a list has none
    if "__getitem__" in own or "__getitems__" in own:
        raise NotNative(f"{name}: its __getitems__() was replaced")
    if name == "torch.utils.data.dataset.Subset":
        return _subset_item, _item_of(dataset.dataset)[1]
    item = _ITEMS.get(name)
    if item is None:
        raise NotNative(f"{name}: a data set without a native twin")
    return item, dataset


def find_pictures(dataset: Any) -> tuple[Source, Item, bool]:
    """The source of a data set of pictures, what takes a sample's parts, and whether these are
    files. Samples that no native op can make are allowed. Raises NotNative."""
    item, inner = _item_of(dataset)
    if _ITEMS[type_name(inner)] is _folder_item:
        _check_loader(inner)
        state = State(pil=True, channels=3, pillow=pillow_version())
        return Source(_no_set, ("image", "label"), state, inner.transform), item, True
    return _FINDERS[type_name(inner)](inner, None), item, False


def _no_set() -> _core.Dataset:
    raise NotNative("samples are made one by one")


_ITEMS: dict[str, Item] = {
    _FOLDER + "ImageFolder": _folder_item,
    _FOLDER + "DatasetFolder": _folder_item,
    _MNIST + "MNIST": _mnist_item,
    _MNIST + "FashionMNIST": _mnist_item,
    _MNIST + "KMNIST": _mnist_item,
    _MNIST + "EMNIST": _mnist_item,
    _MNIST + "QMNIST": _qmnist_item,
    _CIFAR + "CIFAR10": _cifar_item,
    _CIFAR + "CIFAR100": _cifar_item,
}
