"""A deep network in numpy whose activations resemble each other as real ones do, and faults to add to them."""

from collections.abc import Callable, Mapping

import numpy as np

from roundoff.core.tensors import Array

Noise = Callable[[Array, np.random.Generator], Array]


def activations(count: int, seed: int) -> dict[str, Array]:
    """Every intermediate tensor of a network of residual, depthwise-separable blocks, in execution order."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}

    def keep(kind: str, values: Array) -> Array:
        values = values.astype(np.float32)
        tensors[f"{len(tensors):03d}_{kind}"] = values
        return values

    def block(values: Array, channels: int) -> Array:
        """Expand, filter, squeeze and excite, project, add: what a mobile network does."""
        wide = _normalized(keep, keep("conv", _mix(values, 2 * channels, random)), random)
        wide = keep("relu", np.maximum(wide, 0))
        wide = _normalized(keep, keep("depthwise", _smooth(wide)), random)
        wide = keep("clip", np.clip(wide, 0, 6))
        pooled = keep("pool", wide.mean(axis=(2, 3), keepdims=True))
        gate = keep("sigmoid", 1 / (1 + np.exp(-_mix(pooled, wide.shape[1], random))))
        wide = keep("mul", wide * gate)
        narrow = _normalized(keep, keep("project", _mix(wide, channels, random)), random)
        return keep("add", values + 0.5 * narrow) if values.shape == narrow.shape else narrow

    values = keep("stem", _mix(_picture(random), 16, random))
    channels = 16
    while len(tensors) < count:
        values = block(values, channels)
        if len(tensors) % 60 < 12 and values.shape[2] > 8:
            values = keep("maxpool", values[:, :, ::2, ::2])
            channels += 8
        if len(tensors) % 100 < 10:
            values = keep("dropout", values)  # an identical twin, as inference graphs have
    return dict(list(tensors.items())[:count])


def fused_and_renamed(
    tensors: Mapping[str, Array], noise: Noise, *, missing: float, seed: int
) -> tuple[dict[str, Array], dict[str, str]]:
    """A candidate with some tensors fused away, others noisy, under new names in a new order, and the truth."""
    random = np.random.default_rng(seed)
    kept = [name for name in tensors if random.random() >= missing]
    names = [kept[index] for index in random.permutation(len(kept))]
    truth = {f"t{random.integers(2**40):x}": name for name in names}
    return {other: noise(tensors[name], random) for other, name in truth.items()}, truth


def exact(values: Array, random: np.random.Generator) -> Array:
    return values


def int8(values: Array, random: np.random.Generator) -> Array:
    return np.asarray(codes(values, random) * (np.abs(values).max() / 127), dtype=np.float32)


def codes(values: Array, random: np.random.Generator) -> Array:
    """The integers themselves: another gain for every tensor."""
    return np.asarray(np.round(values / (np.abs(values).max() / 127 or 1)), dtype=np.int8)


def gaussian(share: float) -> Noise:
    def noisy(values: Array, random: np.random.Generator) -> Array:
        extra = share * values.std() * random.standard_normal(values.shape)
        return np.asarray(values + extra, dtype=np.float32)

    return noisy


def nhwc_int8(values: Array, random: np.random.Generator) -> Array:
    return np.ascontiguousarray(int8(values, random).transpose(0, 2, 3, 1))


def padded_blocks(values: Array, random: np.random.Generator) -> Array:
    """NC1HWC0 with blocks of 16 channels, zeros in the last."""
    count, channels, height, width = values.shape
    blocks = -(-channels // 16)
    wide = np.zeros((count, blocks * 16, height, width), np.float32)
    wide[:, :channels] = int8(values, random)
    return np.ascontiguousarray(wide.reshape(count, blocks, 16, height, width).transpose(0, 1, 3, 4, 2))


def _picture(random: np.random.Generator) -> Array:
    """Smooth, as pictures are."""
    values = random.standard_normal((1, 3, 32, 32))
    for _ in range(3):
        values = _smooth(values)
    return np.asarray(values / values.std())


def _mix(values: Array, channels: int, random: np.random.Generator) -> Array:
    weights = random.standard_normal((channels, values.shape[1])) / np.sqrt(values.shape[1])
    bias = 0.2 * random.standard_normal((1, channels, 1, 1))
    return np.asarray(np.einsum("oc,nchw->nohw", weights, values) + bias)


def _smooth(values: Array) -> Array:
    around = [np.roll(values, shift, axis) for axis in (2, 3) for shift in (-1, 1)]
    return (2 * values + sum(around, np.zeros_like(values))) / 6


def _normalized(keep: Callable[[str, Array], Array], values: Array, random: np.random.Generator) -> Array:
    shape = (1, values.shape[1], 1, 1)
    gain, offset = 0.5 + random.random(shape), 0.3 * random.standard_normal(shape)
    centred = (values - values.mean(axis=(2, 3), keepdims=True)) / (values.std(axis=(2, 3), keepdims=True) + 0.1)
    return keep("norm", centred * gain + offset)
