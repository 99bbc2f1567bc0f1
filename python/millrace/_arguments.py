"""The arguments of DataLoader: checked as torch checks them, with its exceptions."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.context
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from . import _core
from ._arrays import LIBRARIES, default_library

Path = Literal["auto", "native", "python"]
Cache = Literal["none", "host", "device"]


@dataclass
class Settings:
    """What the parts of a loader need of its arguments, checked and with defaults filled in."""

    batch_size: int | None
    alone: bool  # samples instead of batches: batch_size None and no batch sampler
    shuffle: bool
    num_workers: int
    drop_last: bool
    timeout: float
    prefetch_factor: int | None
    in_order: bool
    path: Path
    transform: str | None
    device: str | None
    pinned: str | None  # the device that host batches are page-locked for; None: pageable
    seed: int
    rank: int
    world: int
    remainder: str
    bad: str
    max_bad: float | int | str | None
    max_memory: int | str | None
    as_: str
    seed_samples: bool | None
    threads: int
    context: Any
    worker_init_fn: Any
    sandbox: bool
    cache: Cache

    def engine_options(self) -> dict[str, Any]:
        """The options that all of this loader's engines have."""
        options: dict[str, Any] = {"seed": self.seed, "max_memory": self.max_memory}
        if self.bad != "fail":
            options["bad"] = self.bad
            if self.max_bad is not None:
                share = isinstance(self.max_bad, float)
                options["max_bad"] = f"{100 * self.max_bad:g}%" if share else self.max_bad
        return options

    def bad_limit(self) -> Callable[[int], float] | None:
        """How many bad samples there may be among n; None: any number."""
        given = self.max_bad
        if isinstance(given, str) and given.endswith("%"):
            given = float(given[:-1]) / 100
        if isinstance(given, float):
            share = given
            return lambda n: share * n
        if given is None:
            return None
        most = int(given)
        return lambda n: most


def check_numbers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool | None
) -> None:
    if not isinstance(num_workers, int):
        raise TypeError(f"num_workers should be an int, but got {num_workers!r}")
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; "
            "use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. "
            "Let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor <= 0:
        raise ValueError(f"prefetch_factor option should be positive, but got {prefetch_factor}")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def check_order(
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    if iterable:
        given = {"sampler": sampler, "batch_sampler": batch_sampler}
        if shuffle not in {False, None}:
            given = {"shuffle": shuffle, **given}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, "
                    f"but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last"
            )
    elif batch_size is None:
        if drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive "
                "with drop_last"
            )
    elif not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
        raise ValueError(f"batch_size should be a positive integer value, but got {batch_size=}")
    if not isinstance(drop_last, bool):
        raise ValueError(f"drop_last should be a boolean value, but got {drop_last=}")


def check_context(context: Any, num_workers: int) -> Any:
    """A multiprocessing context, "threads", or None."""
    if context is None:
        return None
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got {num_workers=}"
        )
    if context == "threads":
        return context
    if isinstance(context, str):
        valid = multiprocessing.get_all_start_methods()
        if context not in valid:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{[*valid, 'threads']!r}, but got multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={context}"
        )
    return context


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r}: expected {', '.join(map(repr, choices))}")


def check_cache(cache: str, device: str | None) -> None:
    check_choice("cache", cache, ("none", "host", "device"))
    if cache == "device" and (device is None or device.startswith("cpu")):
        raise ValueError(
            'cache="device": expected device="cuda" or another with memory of its own; cache="host"'
            " keeps files in this machine's memory"
        )


def library(as_: str | None) -> str:
    """The library of batches: the one asked for, else the default."""
    if as_ is None:
        return default_library()
    check_choice("as_", as_, LIBRARIES)
    return as_


def device_text(device: Any, as_: str) -> str | None:
    """A device as the engine names it; a torch.device is its text. None: host memory."""
    text = None if device is None else str(device)
    if text is None or text == "cpu":
        return None
    if not re.match(r"(cuda|cpu|sim)(:|$)", text):
        raise ValueError(
            f'device={text!r}: expected "cuda", "cuda:1", "cpu", "sim:..." or a torch.device'
        )
    if as_ == "numpy":
        raise ValueError(f'device={text!r}: numpy arrays are in host memory; use as_="torch"')
    return text


@contextlib.contextmanager
def arguments_named() -> Iterator[None]:
    """Errors of the engine's options as those of arguments."""
    try:
        yield
    except ValueError as error:
        text = _in_python(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from None


def _in_python(text: str) -> str:
    found = re.match(r"loader:([a-z-]+)=(.*?)(?=: )", text)
    if found:
        text = f"{found[1].replace('-', '_')}={found[2]!r}{text[found.end():]}"
    text = re.sub("^cache device: ", 'cache="device": ', text)
    text = text.replace("use the cache host", 'use cache="host"')
    return text.replace(
        "or force-state (force_state, --force-state)", "or load_state_dict(state, force_state=True)"
    )


def place(rank: int | None, world: int | None, shard: bool) -> tuple[int, int]:
    """Rank and world: as given, else torch.distributed's, else the launcher's.

    shard False: the program's own sampler or iterable set divides the samples; 0 of 1.
    """
    if (rank is None) != (world is None):
        raise ValueError("rank and world: give both or neither")
    if rank is None or world is None:
        rank, world = _found_place() if shard else (0, 1)
    if not 0 <= rank < world:
        raise ValueError(f"rank={rank}: expected 0 to world - 1 = {world - 1}")
    return rank, world


def _found_place() -> tuple[int, int]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    found = _core.place()
    return found[0], found[1]


def pinned_for(pin_memory: bool, device: str | None) -> str | None:
    """The device whose driver page-locks host batches; None: pin_memory has nothing to do."""
    if not pin_memory or device is not None:
        return None
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return f"cuda:{torch.cuda.current_device()}"


def warn_pin_memory(pin_memory: bool, pin_memory_device: str) -> None:
    """torch's warnings for pin_memory."""
    if pin_memory and pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{pin_memory_device}'.",
            stacklevel=4,
        )
    torch = sys.modules.get("torch")
    if pin_memory and (torch is None or not torch.accelerator.is_available()):
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
            "memory won't be used.",
            stacklevel=4,
        )
