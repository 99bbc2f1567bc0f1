"""torch's samplers as native ones.

The order of a native sampler is a function of its seed and of the epoch. Permutations are not those
of torch's generator, which it could give only one after the other.
"""

from __future__ import annotations

from typing import Any, Sequence

from . import _core
from ._translate_ops import type_name

_TORCH = "torch.utils.data.sampler."
_DISTRIBUTED = "torch.utils.data.distributed.DistributedSampler"


def translate_sampler(sampler: Any, n: int, seed: int) -> _core.Sampler | str:
    """A native sampler with the distribution of `sampler`, or the reason why there is none.

    sampler: of torch, or a list, tuple, range, array or tensor of indices, or None (in order).
    n: samples of the data set. seed: of the order; a DistributedSampler has its own, which is
    added. Rank and world of a DistributedSampler are options of the loader: sampler_options().
    """
    if n < 1:
        return "the data set is empty"
    try:
        return _translate(sampler, n, seed)
    except (ValueError, OverflowError, MemoryError) as error:
        return f"sampler {type(sampler).__name__}: {error}"


def _translate(sampler: Any, n: int, seed: int) -> _core.Sampler | str:
    name = type_name(sampler)
    if sampler is None or name == _TORCH + "SequentialSampler":
        return _whole(sampler, n) or _core.Sampler("sequential", n)
    if name == _TORCH + "RandomSampler":
        return _whole(sampler, n) or _random(sampler, n, seed)
    if name == _TORCH + "SubsetRandomSampler":
        chosen = _whole_numbers(sampler.indices)
        return _core.Sampler("subset", n, indices=chosen, shuffle=True, seed=seed)
    if name == _TORCH + "WeightedRandomSampler":
        return _weighted(sampler, n, seed)
    if name == _DISTRIBUTED:
        kind = "random" if sampler.shuffle else "sequential"
        return _whole(sampler, n) or _core.Sampler(kind, n, seed=seed + sampler.seed)
    if isinstance(sampler, (list, tuple, range)) or name in ("numpy.ndarray", "torch.Tensor"):
        return _core.Sampler("subset", n, indices=_whole_numbers(sampler))
    return f"sampler {name}: only torch's own samplers, and lists of indices, have a native twin"


def _whole(sampler: Any, n: int) -> str:
    """Why a sampler over a data set is not one over these n samples."""
    source = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    if sampler is None or source is None or len(source) == n:
        return ""
    return f"sampler {type(sampler).__name__}: over {len(source)} samples, the data set has {n}"


def _whole_numbers(indices: Any) -> Sequence[int]:
    if hasattr(indices, "tolist"):
        indices = indices.tolist()
    return [int(i) for i in indices]


def _random(sampler: Any, n: int, seed: int) -> _core.Sampler | str:
    draws = sampler.num_samples
    if not sampler.replacement and draws == n:
        return _core.Sampler("random", n, seed=seed)
    if not sampler.replacement and draws > n:
        return f"sampler RandomSampler: {draws} of {n} samples without replacement"
    return _core.Sampler(
        "weighted", n, weights=[1.0] * n, replacement=sampler.replacement, n_draws=draws, seed=seed
    )


def _weighted(sampler: Any, n: int, seed: int) -> _core.Sampler | str:
    weights = [float(w) for w in sampler.weights.tolist()]
    if len(weights) > n and any(weights[n:]):
        return f"sampler WeightedRandomSampler: {len(weights)} weights for {n} samples"
    weights = (weights + [0.0] * n)[:n]
    return _core.Sampler(
        "weighted",
        n,
        weights=weights,
        replacement=sampler.replacement,
        n_draws=sampler.num_samples,
        seed=seed,
    )


def sampler_options(sampler: Any) -> dict[str, object]:
    """Options of the loader that a DistributedSampler stands for; {} for others."""
    if type_name(sampler) != _DISTRIBUTED:
        return {}
    return {
        "rank": sampler.rank,
        "world": sampler.num_replicas,
        "remainder": "drop" if sampler.drop_last else "pad",
    }
