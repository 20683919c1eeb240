"""Device memory formats and back: blocks of channels, fractals and their padding undone, or made.

A format is a pattern of axes: ``NC1HWC0`` keeps ``C`` as blocks ``C1`` of ``C0`` channels each, ``FRACTAL_Z``
joins ``C1``, ``H`` and ``W`` into one axis. Block sizes are read from the device's shape.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from roundoff.core.tensors import Array

# Fractals that no single pattern of axes describes: grouped convolutions, four channels, recurrent weights.

Undo: TypeAlias = Callable[[Array], Array]
"""Brings values in the device's shape into the original one."""

_C04 = 4
_FRACTAL_ROWS = 16
_GATES = 4


def ungroup(shape: tuple[int, ...], original: tuple[int, ...], *, groups: int) -> Undo | None:
    """A grouped weight in FRACTAL_Z as ``NCHW``: groups share blocks, side by side on their diagonal.

    Args:
        shape: The device's shape, ``[C1HW, N1, N0, C0]``.
        original: ``N`` outputs of all groups, ``C`` inputs of one group, ``H``, ``W``.
        groups: How many groups.

    Returns:
        How to undo it; None when the shapes do not fit.
    """
    if len(shape) != 4 or len(original) != 4 or 0 in original or original[0] % groups:
        return None
    total, inputs, height, width = original
    outputs = total // groups
    rows, columns = shape[2:]
    together, blocks, in_blocks, out_blocks = _shared_blocks(inputs, outputs, groups, rows=rows, columns=columns)
    if shape[:2] != (blocks * in_blocks * height * width, out_blocks):
        return None

    def undo(array: Array) -> Array:
        split = array.reshape(blocks, in_blocks, height, width, out_blocks, rows, columns)
        whole = (blocks, out_blocks * rows, in_blocks * columns, height, width)
        joined = split.transpose(0, 4, 5, 1, 6, 2, 3).reshape(whole)
        parts = []
        for group in range(groups):
            block, place = divmod(group, together)
            out, into = place * outputs, place * inputs
            parts.append(joined[block, out : out + outputs, into : into + inputs])
        return np.concatenate(parts)

    return undo


def _shared_blocks(
    inputs: int, outputs: int, groups: int, *, rows: int, columns: int
) -> tuple[int, int, int, int]:
    """How many groups share blocks, how often that is, and how many blocks of inputs and outputs these take."""
    together = min(math.lcm(columns // math.gcd(inputs, columns), rows // math.gcd(outputs, rows)), groups)
    return (
        together,
        math.ceil(groups / together),
        math.ceil(together * inputs / columns),
        math.ceil(together * outputs / rows),
    )


def group_weights(array: Array, *, groups: int, columns: int) -> Array | None:
    """A grouped weight as ``NCHW`` in FRACTAL_Z: what `ungroup` undoes; None when the groups do not divide it.

    Args:
        array: ``N`` outputs of all groups, ``C`` inputs of one group, ``H``, ``W``.
        groups: How many groups.
        columns: Elements per block of inputs.
    """
    if array.ndim != 4 or array.shape[0] % groups:
        return None
    total, inputs, height, width = array.shape
    outputs = total // groups
    together, blocks, in_blocks, out_blocks = _shared_blocks(
        inputs, outputs, groups, rows=_FRACTAL_ROWS, columns=columns
    )
    joined = np.zeros((blocks, out_blocks * _FRACTAL_ROWS, in_blocks * columns, height, width), array.dtype)
    for group in range(groups):
        block, place = divmod(group, together)
        out, into = place * outputs, place * inputs
        joined[block, out : out + outputs, into : into + inputs] = array[group * outputs : (group + 1) * outputs]
    split = joined.reshape(blocks, out_blocks, _FRACTAL_ROWS, in_blocks, columns, height, width)
    moved = split.transpose(0, 3, 5, 6, 1, 2, 4)
    return moved.reshape(blocks * in_blocks * height * width, out_blocks, _FRACTAL_ROWS, columns)


def from_c04(shape: tuple[int, ...], original: tuple[int, ...]) -> Undo | None:
    """A weight of at most four channels in FRACTAL_Z_C04 as ``NCHW``; None when the shapes do not fit."""
    if len(shape) != 4 or len(original) != 4 or original[1] > _C04:
        return None
    outputs, channels, height, width = original
    taps = height * width * _C04
    if shape[:2] != (math.ceil(taps / shape[3]), math.ceil(outputs / shape[2])):
        return None

    def undo(array: Array) -> Array:
        found = _rows(array)[:taps, :outputs].reshape(height, width, _C04, outputs)
        return found[:, :, :channels].transpose(3, 2, 0, 1)

    return undo


def from_recurrent(shape: tuple[int, ...], original: tuple[int, ...]) -> Undo | None:
    """A weight in FRACTAL_ZN_LSTM as inputs and states by four gates; None when the shapes do not fit."""
    wanted = tuple(size for size in original if size != 1) if len(original) == 4 else original
    if len(shape) != 4 or len(wanted) != 2 or wanted[1] % _GATES or wanted[0] < wanted[1] // _GATES:
        return None
    states = wanted[1] // _GATES
    inputs = wanted[0] - states
    in_blocks, state_blocks = math.ceil(inputs / shape[3]), math.ceil(states / shape[3])
    if shape[:2] != (in_blocks + state_blocks, _GATES * state_blocks):
        return None
    below, padded = in_blocks * shape[3], state_blocks * shape[3]

    def undo(array: Array) -> Array:
        matrix = _rows(array)
        rows = np.concatenate([matrix[:inputs], matrix[below : below + states]])
        return rows.reshape(wanted[0], _GATES, padded)[:, :, :states].reshape(original)

    return undo


def _rows(array: Array) -> Array:
    """Blocks ``[K1, N1, N0, K0]`` as a matrix of K rows and N columns."""
    outer_rows, outer_columns, columns, rows = array.shape
    return array.transpose(0, 3, 1, 2).reshape(outer_rows * rows, outer_columns * columns)


PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "NC", "CN", "ND", "MD")
"""Formats in which memory is what the shape says."""

_PATTERNS = {
    "NC1HWC0": "N C1 H W C0",
    "NC1HWC0_C04": "N C1 H W C0",
    "NHWC1C0": "N H W C1 C0",
    "C1HWNC0": "C1 H W N C0",
    "C1HWC0": "C1 H W C0",
    "NDC1HWC0": "N D C1 H W C0",
    "FRACTAL_Z": "C1HW N1 N0 C0",
    "FRACTAL_Z_G": "C1HW N1 N0 C0",
    "FRACTAL_Z_3D": "DC1HW N1 N0 C0",
    "FRACTAL_Z_3D_TRANSPOSE": "DHWN1 C1 N0 C0",
}
# Of two axes, after any number of others: rows M and columns K in blocks.
_MATRICES = {"FRACTAL_NZ": "K1 M1 M0 K0", "FRACTAL_ZZ": "M1 K1 M0 K0", "FRACTAL_ZN": "M1 K1 K0 M0"}
_ROWS = "K1 M1 M0 K0"
_ORDERS = {
    5: ("NCDHW", "NDHWC", "DHWCN"),
    4: ("NCHW", "NHWC", "HWCN", "CHWN"),
    3: ("CHW", "HWC", "NCH"),
    2: ("NC",),
    1: ("C",),
}
_TOKEN = re.compile(r"[A-Za-z][01]?")
_LEADING = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class LaidOutValues:
    """Values whose axes are known.

    Attributes:
        array: The values.
        axes: A letter per axis, as in ``NCHW``; empty when they are not known by letters.
        restored: Whether the array is in its original layout; else it is as the device had it.
    """

    array: Array
    axes: str = ""
    restored: bool = True


@dataclass(frozen=True, slots=True)
class LayoutUndo:
    """How to undo a format, and what comes of it, known from shapes alone.

    Attributes:
        shape: The shape that comes of it.
        axes: A letter per axis; empty when they are not known by letters.
        undo: Brings values in the device's shape into that shape; None when they stay as they are.
        restored: Whether that is the original layout.
        others: Orders of axes that the shapes allow as well, where nothing tells which it is.
    """

    shape: tuple[int, ...]
    axes: str = ""
    undo: Callable[[Array], Array] | None = None
    restored: bool = True
    others: tuple[str, ...] = ()


def candidates(format: str, shape: tuple[int, ...], original: tuple[int, ...]) -> Iterator[str]:  # noqa: A002
    """Orders of axes in which `original` can have become `shape` in this format; the likeliest first."""
    if format in _PATTERNS:
        for order in _ORDERS.get(len(original), ()):
            if _device_shape(_PATTERNS[format], dict(zip(order, original, strict=True)), shape) == shape:
                yield order


def inverse_layout(
    format: str,  # noqa: A002
    shape: tuple[int, ...],
    *,
    original: tuple[int, ...],
    groups: int = 0,
    order: str = "",
) -> LayoutUndo:
    """How to undo a device format; without a way back the values stay as they are.

    Args:
        format: The name of the format.
        shape: The device's shape.
        original: The shape it had; empty when unknown: then padding stays.
        groups: Groups of a grouped convolution.
        order: The order of axes that `original` has, when known; else the likeliest.
    """
    if format in PLAIN or 0 in shape:
        return _plain(format, shape, original)
    if format in _MATRICES:
        return _matrix(_MATRICES[format], shape, original, order=order)
    if (special := _special(format, shape, original=original, groups=groups, order=order)) is not None:
        return special
    if format not in _PATTERNS:
        return LayoutUndo(shape, restored=False)
    known = list(candidates(format, shape, original))
    if known:
        axes = order if order in known else known[0]
        sizes = dict(zip(axes, original, strict=True))
    elif not original and (padded := _padded_sizes(_PATTERNS[format], shape)) is not None:
        axes = "NCDHW" if "D" in padded else "NCHW" if "N" in padded else "CHW"
        sizes = padded
    else:
        return LayoutUndo(shape, restored=False)
    undo = functools.partial(_gather, pattern=_PATTERNS[format], axes=axes, sizes=sizes)
    others = () if order in known else tuple(known[1:])
    return LayoutUndo(tuple(sizes[letter] for letter in axes), axes, undo, others=others)


def restore(array: Array, way: LayoutUndo) -> LaidOutValues:
    """Undo a device format."""
    return LaidOutValues(array if way.undo is None else way.undo(array), way.axes, way.restored)


def relayout(laid: LaidOutValues, axes: str) -> Array | None:
    """Put axes into another order; None when the letters do not allow it. Missing axes have one element."""
    if laid.axes == axes:
        return laid.array
    if not laid.axes or len(laid.axes) != len(axes) or set(laid.axes) != set(axes):
        return None
    return laid.array.transpose([laid.axes.index(letter) for letter in axes])


def to_device(laid: LaidOutValues, format: str, *, block: int, groups: int = 0) -> Array | None:  # noqa: A002
    """Bring values into a device format, padded with zeros; None when there is no way.

    Args:
        laid: The values, with the letters of their axes.
        format: A device format.
        block: Elements per block, 16 for most types.
        groups: Groups of a grouped convolution.
    """
    if format in ("FRACTAL_Z", "FRACTAL_Z_G") and groups > 1:
        weights = relayout(laid, "NCHW")
        return None if weights is None else group_weights(weights, groups=groups, columns=block)
    if format in _MATRICES and laid.array.ndim >= 2:
        lead = _LEADING[: laid.array.ndim - 2]
        pattern = " ".join([*lead, _MATRICES[format]])
        return _scatter(LaidOutValues(laid.array, f"{lead}MK"), pattern, block=block)
    if format not in _PATTERNS or not laid.axes:
        return None
    return _scatter(laid, _PATTERNS[format], block=block)


def as_format(laid: LaidOutValues, format: str, *, block: int, groups: int = 0) -> Array | None:  # noqa: A002
    """Bring values into any format, plain or of the device; None when there is no way."""
    if format in ("ND", "MD") or (laid.array.ndim < 4 and format in PLAIN):
        return laid.array
    if format in PLAIN:
        return relayout(laid, format)
    return to_device(laid, format, block=block, groups=groups)


def _special(
    format: str,  # noqa: A002
    shape: tuple[int, ...],
    *,
    original: tuple[int, ...],
    groups: int,
    order: str,
) -> LayoutUndo | None:
    """Undo what no pattern describes; None when the format is not of this kind."""
    if format == "FRACTAL_Z" and len(original) == 2:
        return _fractal_z_matrix(shape, original)
    if format in ("FRACTAL_Z", "FRACTAL_Z_G") and 1 < groups <= max(original, default=0):
        return _grouped(shape, original, groups=groups, order=order)
    if format == "FRACTAL_Z_C04":
        undo, axes = from_c04(shape, original), "NCHW"
    elif format == "FRACTAL_ZN_LSTM":
        undo, axes = from_recurrent(shape, original), ""
    else:
        return None
    return LayoutUndo(shape, restored=False) if undo is None else LayoutUndo(original, axes, undo)


def _grouped(shape: tuple[int, ...], original: tuple[int, ...], *, groups: int, order: str) -> LayoutUndo:
    """A weight of several groups, in the order asked for, or the first, of those that make the device's shape."""
    ways: dict[str, Undo] = {}
    for axes in _ORDERS[4] if len(original) == 4 else ():
        sizes = dict(zip(axes, original, strict=True))
        undo = ungroup(shape, tuple(sizes[letter] for letter in "NCHW"), groups=groups)
        if undo is not None:
            ways[axes] = undo
    if not ways:
        return LayoutUndo(shape, restored=False)
    axes, *others = [order] if order in ways else ways
    places = ["NCHW".index(letter) for letter in axes]
    undo = functools.partial(_reordered, undo=ways[axes], places=places)
    return LayoutUndo(original, axes, undo, others=tuple(others))


def _reordered(array: Array, *, undo: Callable[[Array], Array], places: list[int]) -> Array:
    return undo(array).transpose(places)


def _plain(format: str, shape: tuple[int, ...], original: tuple[int, ...]) -> LayoutUndo:  # noqa: A002
    axes = format if len(format) == len(shape) and format not in ("ND", "MD") else ""
    if original and original != shape and math.prod(original) == math.prod(shape):
        lettered = axes if len(axes) == len(original) else ""
        return LayoutUndo(original, lettered, functools.partial(np.reshape, shape=original))
    return LayoutUndo(shape, axes)


def _matrix(pattern: str, shape: tuple[int, ...], original: tuple[int, ...], *, order: str) -> LayoutUndo:
    if len(shape) < 4:
        return LayoutUndo(shape, restored=False)
    places = dict(zip(pattern.split(), shape[-4:], strict=True))
    rows, columns = places["M1"] * places["M0"], places["K1"] * places["K0"]
    lead = shape[:-4]
    wanted = original or (*lead, rows, columns)
    tail = (1, *wanted)[-2:]
    fits = tail[0] <= rows and tail[1] <= columns and math.prod(wanted[:-2]) == math.prod(lead)
    if not fits or 0 in wanted:
        return LayoutUndo(shape, restored=False)
    letters = _LEADING[: len(lead)]
    sizes = {**dict(zip(letters, lead, strict=True)), "M": tail[0], "K": tail[1]}

    def undo(array: Array) -> Array:
        return _gather(array, pattern=" ".join([*letters, pattern]), axes=f"{letters}MK", sizes=sizes).reshape(
            wanted
        )

    # A matrix does not tell what its leading axes are; whoever asks for a layout does.
    return LayoutUndo(wanted, order if order in _ORDERS.get(len(wanted), ()) else "", undo)


def _fractal_z_matrix(shape: tuple[int, ...], original: tuple[int, ...]) -> LayoutUndo:
    """A weight of two axes: its rows take the place of the channels."""
    sizes = dict(zip("KM", original, strict=True))
    if _device_shape(_ROWS, sizes, shape) != shape:
        return LayoutUndo(shape, restored=False)
    return LayoutUndo(original, undo=functools.partial(_gather, pattern=_ROWS, axes="KM", sizes=sizes))


def _blocks(pattern: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Sizes of the innermost blocks, which stand alone in a pattern: ``{"C": 16, "N": 16}``."""
    parts = pattern.split()
    if len(parts) != len(shape):
        return {}
    return {part[0]: size for part, size in zip(parts, shape, strict=True) if part.endswith("0")}


def _device_shape(pattern: str, sizes: dict[str, int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The device's shape of values with these sizes, with blocks as large as those in `shape`."""
    blocks = _blocks(pattern, shape)
    if not blocks or 0 in blocks.values() or any(letter not in pattern for letter in sizes):
        return ()
    return tuple(
        math.prod(_token_size(token, sizes, blocks) for token in _TOKEN.findall(part)) for part in pattern.split()
    )


def _token_size(token: str, sizes: dict[str, int], blocks: dict[str, int]) -> int:
    size = sizes.get(token[0], 1)
    if token.endswith("1"):
        return math.ceil(size / blocks[token[0]])
    return blocks[token[0]] if token.endswith("0") else size


def _padded_sizes(pattern: str, shape: tuple[int, ...]) -> dict[str, int] | None:
    """Sizes with their padding, where every axis stands alone in the pattern."""
    parts = pattern.split()
    if len(parts) != len(shape) or any(len(_TOKEN.findall(part)) > 1 for part in parts):
        return None
    sizes: dict[str, int] = {}
    for part, size in zip(parts, shape, strict=True):
        sizes[part[0]] = sizes.get(part[0], 1) * size
    return sizes


def _gather(array: Array, *, pattern: str, axes: str, sizes: dict[str, int]) -> Array:
    """Split the device's axes, bring the parts of each axis together, join them and cut off the padding."""
    blocks = _blocks(pattern, array.shape)
    tokens = _TOKEN.findall(pattern)
    split = array.reshape([_token_size(token, sizes, blocks) for token in tokens])
    order = [
        tokens.index(token) for letter in axes for token in (letter, f"{letter}1", f"{letter}0") if token in tokens
    ]
    rest = [place for place in range(len(tokens)) if place not in order]
    whole = split.transpose([*order, *rest])
    merged = [
        blocks[letter] * math.ceil(sizes[letter] / blocks[letter]) if letter in blocks else sizes[letter]
        for letter in axes
    ]
    return whole.reshape(merged)[tuple(slice(sizes[letter]) for letter in axes)]


def _scatter(laid: LaidOutValues, pattern: str, *, block: int) -> Array | None:
    tokens = _TOKEN.findall(pattern)
    letters = {token[0] for token in tokens}
    if not set(laid.axes) <= letters:
        return None
    sizes = dict(zip(laid.axes, laid.array.shape, strict=True))
    blocks = {token[0]: block for token in tokens if token.endswith("0")}
    missing = sorted(letters - set(laid.axes))
    array = laid.array.reshape(*laid.array.shape, *(1 for _ in missing))
    axes = laid.axes + "".join(missing)
    padding = [
        (0, -size % blocks[letter] if letter in blocks else 0)
        for letter, size in zip(axes, array.shape, strict=True)
    ]
    padded = np.pad(array, padding)
    split: list[int] = []
    names: list[str] = []
    for letter, size in zip(axes, padded.shape, strict=True):
        split += [size // block, block] if letter in blocks else [size]
        names += [f"{letter}1", f"{letter}0"] if letter in blocks else [letter]
    moved = padded.reshape(split).transpose([names.index(token) for token in tokens])
    full = {**dict.fromkeys(missing, 1), **sizes}
    shape = [
        math.prod(_token_size(token, full, blocks) for token in _TOKEN.findall(part)) for part in pattern.split()
    ]
    return moved.reshape(shape)
