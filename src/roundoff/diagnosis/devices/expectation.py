"""How far a device may be from the reference before its arithmetic no longer explains it."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantSpec, parameters_from_range
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array, NodeInfo, Topology
from roundoff.graph.draft import Draft
from roundoff.graph.interface import topology
from roundoff.graph.load import Model
from roundoff.graph.nodes import consumers
from roundoff.graph.weights import Weights
from roundoff.measure.pairs import channel_axis_of
from roundoff.quantize.calibration.calibration import value_limits
from roundoff.run.integer.machine import IntegerRunner

NumberKind = Literal["integer", "float16", "bfloat16", "float32"]

# Codes of more levels are not told from float: too few of them are met to see the smallest gap. Of codes of 16
# bits two next to each other are met in large tensors; what they are beside is float32.
_MOST_LEVELS, _FINE_LEVELS = 1 << 12, 1 << 17
# Fewer different values lie on some grid by chance.
_FEWEST_VALUES = 6
# How far from a multiple of the step a value may be, in steps; float32 leaves a millionth.
_OFF_GRID = 0.02
# Two codes of 8 bits have no step in common but their own that they are less than a 255th of off.
_APART = 0.003
# Half precision moves values by this part of them; off by more than that part of a step, chance would do as well.
_HALF_ROUNDOFF, _NO_CHANCE = 2.0**-11, 0.2
_LOOKED_AT = 1 << 16
# Share of the tensors that must be on grids; others may be outputs in float, or too small to tell. So many grids
# that not one kernel alone makes them need be no more than the second share: what is fused is not rounded.
_MOST_ON_GRID, _MANY_GRIDS, _FUSED_ON_GRID = 0.4, 4, 0.2
_ALMOST_ALL = 0.9
# Codes that are used this far, of 8 bits and of 16, were chosen so; values beyond them are cut off by right.
_FULL_RANGE, _FULL_FINE_RANGE = 180, 46_000
# Of fewer values whose grid cannot be seen, of 8 bits and of 16, nobody can tell whether they end where codes do.
_FEW_VALUES, _FEW_FINE_VALUES = 64, 1024
_CODES = 255


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """What a device computes with.

    Attributes:
        kind: Kind of most of its numbers.
        steps: For tensors whose values lie on a grid, its step.
        limits: Where values end by right, as far as was seen: of tensors that use most codes of 8 bits, and of
            those too small to tell.
        fine: Whether the grids are those of 16 bits: activations are then stored so, and computed in float.
    """

    kind: NumberKind
    steps: Mapping[str, float]
    limits: Mapping[str, tuple[float, float]]
    fine: bool = False


def grid_step(values: Array, most_levels: int = _MOST_LEVELS) -> float | None:
    """The step of the grid that values lie on, as dequantized codes do; None when they lie on none.

    Args:
        values: The values.
        most_levels: How many steps there may be between the smallest and the largest.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    if flat.size > _LOOKED_AT:
        flat = flat[:: flat.size // _LOOKED_AT + 1]
    flat = np.unique(flat[np.isfinite(flat)])
    if flat.size < _FEWEST_VALUES:
        return None
    span = float(flat[-1] - flat[0])
    gaps = np.diff(flat)
    # The same code may be dequantized to floats that differ in their last bit.
    gaps = gaps[gaps > span / most_levels / 4]
    if not gaps.size or span == 0:
        return None
    step = float(gaps.min())
    # The mean of all gaps that are about one step is more exact than the smallest.
    near = gaps[gaps < 1.5 * step]
    step = float(near.mean())
    # Steps that are farther apart say it more exactly, once it is known how many they are.
    for distances in (gaps, flat - flat[0]):
        for reach in (4, 16, 64, 256, 1024, 4096, most_levels) if most_levels > _MOST_LEVELS else ():
            few = distances[distances < reach * step]
            count = np.rint(few / step)
            step = float(few @ count / (count @ count)) if count.any() else step
    step = span / max(1, round(span / step))
    places = (flat - flat[0]) / step
    if np.all(np.abs(places - np.rint(places)) <= _OFF_GRID):
        return step
    return _rounded_step(np.unique(np.abs(flat))) if kind_of(flat) == "float16" else None


def coarsest_step(values: Array) -> float | None:
    """The coarsest step of 8-bit codes that few different values allow; zero is one of the codes.

    Returns:
        Infinity where all are zero; None where they are no codes, or so many that their own grid would be seen.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    sizes = np.unique(np.abs(flat[np.isfinite(flat)]))
    if sizes.size > _FEW_VALUES:
        return None
    if not sizes.any():
        return np.inf
    gaps = np.diff(sizes, prepend=0.0)
    steps = float(gaps[gaps > sizes[-1] / _CODES / 4].min()) / np.arange(1, _CODES + 1)
    places = sizes[:, None] / steps
    off = np.where(places[-1] <= _CODES + _OFF_GRID, np.abs(places - np.rint(places)).max(axis=0), np.inf)
    found = [float(steps[at]) for most in (_APART, _OFF_GRID) for at in np.flatnonzero(off <= most)[:1]]
    return found[0] if found else None


def _rounded_step(sizes: Array) -> float | None:
    """The step of codes that were dequantized and then stored in half precision; zero is one of them.

    Args:
        sizes: Magnitudes, from the smallest on; the smaller they are, the more exact.
    """
    gaps = np.diff(sizes, prepend=0.0)
    exact = (sizes <= sizes[-1] / 8) & (gaps > sizes[-1] / _MOST_LEVELS)
    step = float(gaps[exact].min(initial=sizes[-1]))
    for reach in (4, 16, 64, 256, _MOST_LEVELS):
        near = sizes[(sizes <= reach * step) & (sizes > step / 2)]
        count = np.rint(near / step)
        step = float(near @ count / (count @ count)) if near.size else step
    places = sizes / step
    allowed = np.minimum(_OFF_GRID + places * _HALF_ROUNDOFF, _NO_CHANCE)
    return step if np.all(np.abs(places - np.rint(places)) <= allowed) else None


def kind_of(values: Array) -> NumberKind:
    """The narrowest float type that holds all values exactly."""
    flat = np.asarray(values, dtype=np.float32).ravel()[:_LOOKED_AT]
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        return "float32"
    if np.all((flat.view(np.uint32) & 0xFFFF) == 0):
        return "bfloat16"
    with np.errstate(over="ignore"):
        half = flat.astype(np.float16).astype(np.float32)
    return "float16" if np.array_equal(half, flat) else "float32"


def infer_arithmetic(tensors: Mapping[str, Array]) -> DeviceNumbers:
    """What a device computes with, by its tensors; inputs of the network are best left out."""
    steps = {name: step for name, values in tensors.items() if (step := grid_step(values)) is not None}
    large = [name for name, values in tensors.items() if np.unique(values).size >= _FEWEST_VALUES]
    least = _FUSED_ON_GRID if len(steps) >= _MANY_GRIDS else _MOST_ON_GRID
    if large and len(steps) >= least * len(large):
        return DeviceNumbers("integer", steps, _full_ranges(tensors, steps, _FULL_RANGE, _FEW_VALUES))
    kinds = [kind_of(tensors[name]) for name in large]
    narrow: tuple[NumberKind, ...] = ("bfloat16", "float16")
    for kind in narrow:
        fitting = sum(each in (kind, "bfloat16") for each in kinds)
        if kinds and fitting >= _ALMOST_ALL * len(kinds):
            return DeviceNumbers(kind, {}, {})
    steps = {name: step for name in large if (step := grid_step(tensors[name], _FINE_LEVELS)) is not None}
    if len(steps) < _MOST_ON_GRID * len(large):
        return DeviceNumbers("float32", {}, {})
    full = _full_ranges(tensors, steps, _FULL_FINE_RANGE, _FEW_FINE_VALUES)
    return DeviceNumbers("float32", steps, full, fine=True)


def _full_ranges(
    tensors: Mapping[str, Array], steps: Mapping[str, float], full: int, few: int
) -> dict[str, tuple[float, float]]:
    """Where tensors end that use so many codes, or have too few values to tell."""
    found = {}
    for name, values in tensors.items():
        step = steps.get(name)
        if 0 < values.size < few if step is None else float(np.ptp(values)) >= full * step:
            found[name] = float(values.min()), float(values.max())
    return found


# What each part of a network should compute from the inputs that the device itself had.


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a network between known tensors and one more.

    Attributes:
        nodes: Its nodes, the one that computes the tensor first.
        reads: Known tensors and inputs of the network that it starts from.
        hidden: Tensors inside of it.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    hidden: tuple[str, ...]


class Golden:
    """Computes single tensors of a network from others, as its arithmetic says.

    Args:
        model: The float model.
        quantizers: Its quantizers; without any, all is computed in float.
        arithmetic: How integers are rounded.
        threads: Threads of matrix products.
    """

    def __init__(
        self,
        model: Model,
        quantizers: Sequence[Quantizer] = (),
        arithmetic: Arithmetic = WIDEST,
        *,
        threads: int | None = None,
    ) -> None:
        self.model, self.quantizers, self.arithmetic = model, tuple(quantizers), arithmetic
        self._threads = threads
        self._runner = IntegerRunner(model, self.quantizers, arithmetic, threads=threads)

    def compute(self, tensor: str, given: Mapping[str, Array]) -> Array:
        """A tensor, from what is given of others.

        Raises:
            BadInput: An input of the network is needed and not given.
            ModelFailed: A node failed.
        """
        return self._runner.run_local(given, (tensor,)).values[tensor]

    def compute_all(self, tensors: Collection[str], given: Mapping[str, Array]) -> Mapping[str, Array]:
        """Several tensors, each from what is given."""
        return self._runner.run_local(given, tensors).values

    def with_arithmetic(self, arithmetic: Arithmetic) -> "Golden":
        """The same network with other rounding."""
        return Golden(self.model, self.quantizers, arithmetic, threads=self._threads)

    def with_quantizers(self, quantizers: Sequence[Quantizer]) -> "Golden":
        """The same network with other quantizers."""
        return Golden(self.model, quantizers, self.arithmetic, threads=self._threads)

    def with_short_constants(self, kind: NumberKind, *, stored: bool) -> "Golden":
        """The same network with constants of a shorter kind of float.

        Args:
            kind: That kind.
            stored: All that is stored is of that kind; otherwise only what layers multiply with.
        """
        draft, weights = Draft(self.model), Weights(self.model)
        for node in self.model.proto.graph.node:
            factors = 3 if node.op_type in _RECURRENT else 2
            held = node.op_type in _WEIGHTED or (stored and node.op_type in _WITH_CONSTANTS)
            for name in node.input[: None if stored else factors] if held else ():
                if name in draft.constants and weights[name].dtype == np.float32:
                    draft.set_constant(name, with_digits_of(weights[name], kind))
        return Golden(draft.finish(), self.quantizers, self.arithmetic, threads=self._threads)

    @cached_property
    def coded(self) -> dict[str, Quantizer]:
        """For each activation the quantizer through which it is stored."""
        found: dict[str, Quantizer] = {}
        for each in self.quantizers:
            if each.kind == "activation" and not each.after and (each.output or each.tensor not in found):
                found[each.tensor] = each
        return found

    def rounded(
        self, tensors: Collection[str], feed: Mapping[str, Array], kind: NumberKind
    ) -> Mapping[str, Array]:
        """Tensors, with every one before them stored in half precision, or in bfloat16 where that is the kind."""
        given = dict(feed)
        for node in self._topology.nodes:
            for name, values in self.compute_all([each for each in node.outputs if each], given).items():
                short = "bfloat16" if kind == "bfloat16" else "float16"
                given[name] = rounded_to(values, short) if values.dtype.kind == "f" else values
        return {name: given[name] for name in tensors}

    @cached_property
    def limits(self) -> dict[str, tuple[float, float]]:
        """Of the first tensor that each operation gives, what it cannot go beyond; others have no limits."""
        weights = Weights(self.model)
        return {node.output[0]: value_limits(node, weights) for node in self.model.proto.graph.node if node.output}

    def in_float(self, nodes: Collection[str]) -> bool:
        """Whether one of these nodes, of those that ran, was computed in float or from a table."""
        report = self._runner.report
        loose = {each.node for each in report.float_nodes} | set(report.table_nodes)
        return not loose.isdisjoint(nodes)

    def span(self, tensor: str, known: Collection[str]) -> Span:
        """The part of the network that computes a tensor from known ones."""
        producers = self._producers
        nodes: dict[str, None] = {}
        reads: dict[str, None] = {}
        hidden: dict[str, None] = {}
        waiting = [tensor]
        while waiting:
            name = waiting.pop(0)
            if name != tensor and (name in known or name not in producers):
                reads[name] = None
                continue
            if name != tensor:
                hidden[name] = None
            node = producers[name]
            if node.name not in nodes:
                nodes[node.name] = None
                waiting += node.inputs
        return Span(tuple(nodes), tuple(reads), tuple(hidden))

    def behind(self, tensor: str) -> frozenset[str]:
        """All tensors that depend on a tensor."""
        found = {tensor}
        for node in self._topology.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return frozenset(found - {tensor})

    def readers(self, tensor: str) -> list[NodeInfo]:
        """The nodes that read a tensor."""
        return [node for node in self._topology.nodes if tensor in node.inputs]

    @cached_property
    def _topology(self) -> Topology:
        return topology(self.model)

    @cached_property
    def _producers(self) -> dict[str, NodeInfo]:
        return self._topology.producers()


def rounded_to(values: Array, kind: str) -> Array:
    """Values with the digits of a shorter kind of float, to the nearest and halves to even, as float32."""
    plain = np.asarray(values, np.float32)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return plain.astype(np.float16).astype(np.float32)
    bits = plain.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isfinite(plain), rounded.astype(np.uint32).view(np.float32), plain)


def with_digits_of(values: Array, kind: str) -> Array:
    """The same, and what is beyond the range of that kind as it is."""
    short = rounded_to(values, kind)
    return np.where(np.isfinite(short), short, values)


_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_RECURRENT = ("GRU", "LSTM", "RNN")
_WEIGHTED = frozenset((*_LAYERS, *_RECURRENT))
# What else computes with constants that a device stores as it does its tensors.
_WITH_CONSTANTS = frozenset(
    {
        "Add",
        "BatchNormalization",
        "Div",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "Mul",
        "PRelu",
        "Sub",
    }
)
# Rounding to codes may differ by one step; a table or a float routine in between may add another.
_STEPS, _STEPS_LOOSE = 1.02, 2.02
# Errors of tensors that are rounded inside of a span, times this, are within what their arithmetic explains.
_SPREAD = 6.0
# What is not coded on a device with integers is computed in half precision, or by a short table.
_LOOSE_SHARE = 5e-3
# Errors of float types relative to the largest value: unit roundoff, and what sums make of it.
_ROUNDOFF = {"float32": 2.0**-19, "float16": 2.0**-11, "bfloat16": 2.0**-8, "integer": 2.0**-11}
_ADDS_UP = 8.0
_WEIGHT = QuantSpec(bits=8, signed=True, symmetric=True)
_ACTIVATION = QuantSpec(bits=8, signed=False, symmetric=False)
_ELEMENTWISE = frozenset({"Add", "Sub", "Concat", "Sum", "Mul", "Div", "Where", "Max", "Min"})
# Means cancel as well, and often keep the codes of what they are of.
_MEANS = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})


UNLIMITED = (-np.inf, np.inf)
"""The limits of what may be any number."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What may differ in one tensor.

    Attributes:
        tolerance: How far single elements may be off; broadcasts against the tensor.
        noise: Mean square of the error that is expected.
        step: Step of the codes, where there are some; broadcasts likewise.
        limits: What no value that the operation gives goes beyond, however it is rounded.
    """

    tolerance: Array
    noise: float
    step: Array | None = None
    limits: tuple[float, float] = UNLIMITED

    def wider(self, error: float) -> "Expected":
        """The same with one more error of this root mean square."""
        return (
            self
            if error == 0
            else replace(self, tolerance=self.tolerance + _SPREAD * error, noise=self.noise + error**2)
        )

    def with_error(self, error: Array) -> "Expected":
        """The same with one more error of the size of this one, channel by channel."""
        squares = np.square(error.astype(np.float64))
        size = float(np.sqrt(squares.mean()))
        tolerance = self.tolerance + _SPREAD * np.maximum(size, _by_channel(squares))
        return replace(self, tolerance=np.asarray(tolerance), noise=self.noise + size**2)


def expect_coded(
    exact: Array, quantizer: Quantizer | None, *, loose: bool, without_hidden: Array | None = None
) -> Expected:
    """What may differ where it is known how tensors are coded.

    Args:
        exact: What the reference computes.
        quantizer: Codes of the tensor; None where it stays in float.
        loose: Whether something in between is computed by a table or in float.
        without_hidden: What the reference computes without rounding tensors that were not dumped.
    """
    # Tensors inside the span were rounded on the device at values nobody dumped. How far that may move the result
    # is estimated by what leaving their rounding out does to it: one draw of the same noise.
    hidden = 0.0 if without_hidden is None else float(np.sqrt(np.square(exact - without_hidden).mean()))
    if quantizer is None:
        size = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
        share = _LOOSE_SHARE * size
        return Expected(np.asarray(share + _SPREAD * hidden), (share / 4) ** 2 + hidden**2)
    scale = quantizer.params.scale.astype(np.float64)
    if scale.ndim and quantizer.spec.axis is not None:
        shape = [1] * exact.ndim
        shape[quantizer.spec.axis] = -1
        scale = scale.reshape(shape)
    steps = _STEPS_LOOSE if loose else _STEPS
    return Expected(steps * scale + _SPREAD * hidden, float(np.square(scale).mean()) / 12 + hidden**2, scale)


def expect_uncoded(  # noqa: PLR0913 - a tensor, and what is known of its codes
    tensor: str,
    exact: Array,
    found: Array,
    *,
    numbers: DeviceNumbers,
    simulated: Array | None,
    largest_input: float,
    coarsest: float = 0.0,
) -> Expected:
    """What may differ where only the dump tells what the device computes with.

    Args:
        tensor: The tensor.
        exact: What the float model computes from the device's inputs.
        found: What the device wrote.
        numbers: What the device computes with.
        simulated: The same with weights, and with what was not rounded yet, in 8 bits; None on a float device.
        largest_input: Largest magnitude that sums of the node are made of, where they may cancel.
        coarsest: The coarsest step that the device may have there, where its values are too few to show it.
    """
    # Roundoff is relative to the operands: where a sum cancels, its inputs set the scale of the error.
    size = max(float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)), largest_input)
    roundoff = _ROUNDOFF[numbers.kind] * size
    if simulated is None:
        step = (numbers.steps.get(tensor) or 2 * float(np.ptp(found)) / 65_535) if numbers.fine else 0.0
        return Expected(np.asarray(_ADDS_UP * roundoff + _STEPS * step), (2 * roundoff) ** 2 + step**2 / 12)
    # A tensor whose grid cannot be seen may have codes for more than its values in this sample.
    step = numbers.steps.get(tensor) or max(coarsest, 2 * float(np.ptp(found)) / _CODES)
    error = np.square((simulated - exact).astype(np.float64))
    spread = float(np.sqrt(error.mean()))
    # Channels with large weights are noisier than others.
    tolerance = _STEPS_LOOSE * step + _SPREAD * np.maximum(spread, _by_channel(error)) + _ADDS_UP * roundoff
    # Few values are no even spread of errors: all of them may be half a step off.
    noise = step**2 / (4 if coarsest and tensor not in numbers.steps else 12)
    return Expected(np.asarray(tolerance), noise + spread**2 + roundoff**2, np.asarray(step))


def expect_rounded(exact: Array, kind: NumberKind | Literal["codes", "sums"]) -> Expected:
    """What may differ where it is known what a tensor holds, and the device's own inputs are computed with.

    Args:
        exact: What the model computes from them; codes and sums of codes in units.
        kind: What the tensor holds.
    """
    if kind == "codes":
        return Expected(np.asarray(_STEPS), 1 / 12)
    size = np.abs(exact.astype(np.float64))
    if kind == "sums":
        # Whole numbers, which float32 holds exactly up to 2^24.
        return Expected(np.asarray(0.5 + 2.0**-20 * size.max(initial=0.0)), 0.0)
    # Roundoff of single values, and of those that cancelled inside of a fused operator.
    spread = float(np.sqrt(np.square(size).mean())) if size.size else 0.0
    return Expected(_ADDS_UP * _ROUNDOFF[kind] * (size + spread), (_ROUNDOFF[kind] * spread) ** 2)


def possible_values(
    limits: tuple[float, float], exact: Array, kind: NumberKind, noise: float
) -> tuple[float, float]:
    """The limits of an operation, as far apart as half precision and noise of the whole device put them.

    Args:
        limits: What the operation cannot go beyond.
        exact: What it should give.
        kind: What the device computes with.
        noise: Root mean square of what all its tensors are off by.
    """
    size = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
    slack = max(_ROUNDOFF[kind], _ROUNDOFF["float16"]) * size + _SPREAD * noise
    return limits[0] - slack, limits[1] + slack


def _by_channel(squares: Array) -> Array:
    """Root mean square of each channel, shaped so that it broadcasts."""
    axis = channel_axis_of(squares.shape)
    if axis is None:
        return np.zeros(())
    others = tuple(place for place in range(squares.ndim) if place != axis)
    return np.asarray(np.sqrt(squares.mean(axis=others, keepdims=True)))


# Plain weights of 8 bits make errors of about this part and up to this many times those of one scale for all; a
# device whose weights have fewer makes more, in every layer alike.
_LEAST_COARSE, _EIGHT_BITS, _FEWEST_BITS = 0.05, 1.2, 40.0
# Errors are alike when this part of the tensors has at least this part of the usual one; so many must be seen.
_ALIKE, _ALIKE_PART, _FEWEST_ALIKE = 0.75, 0.25, 3
# Layers differ in how much rounding their weights costs.
_VARIES = 2.0
# Relative noise beyond this is no noise.
_NOISIEST = 0.1


@dataclass(frozen=True, slots=True)
class Coarseness:
    """How much coarser than its numbers a device is everywhere, so that no kernel in particular is wrong.

    Attributes:
        weights: Errors of its layers, over those that 8-bit weights with one scale make; 0 for weights in float.
        relative: Noise of all its tensors, over their spread.
    """

    weights: float = 0.0
    relative: float = 0.0


# Short operands explain a layer when they leave no more than this part of its error.
_EXPLAINED_BY_OPERANDS = 0.25


def infer_operands(errors: Sequence[tuple[float, float]]) -> bool:
    """Whether most layers are what short operands make them: of each, its error as it is and with these."""
    fitting = sum(short < _EXPLAINED_BY_OPERANDS * plain for plain, short in errors)
    return len(errors) >= _FEWEST_ALIKE and fitting >= _ALIKE * len(errors)


def storage_noise(exact: Array, kind: NumberKind) -> float:
    """Mean square of the error that storing values in a kind of float makes."""
    return _ROUNDOFF[kind] ** 2 * float(np.square(exact.astype(np.float64)).mean())


def infer_weight_precision(errors: Sequence[float]) -> float:
    """How coarse weights are: of each layer, its error over that of plain 8-bit weights."""
    usual = statistics.median_low(errors) if errors else 0.0
    if usual < _LEAST_COARSE:
        return 0.0
    if usual <= _EIGHT_BITS:
        return _EIGHT_BITS
    return _VARIES * usual if usual <= _FEWEST_BITS and _are_alike(errors, usual) else 0.0


def infer_noise_floor(errors: Sequence[float]) -> float:
    """The noise that all tensors have: of each, its error over its spread."""
    usual = statistics.median_low(errors) if errors else 0.0
    return usual if 0 < usual <= _NOISIEST and _are_alike(errors, usual) else 0.0


def _are_alike(errors: Sequence[float], usual: float) -> bool:
    near = sum(1 for each in errors if each >= _ALIKE_PART * usual)
    return len(errors) >= _FEWEST_ALIKE and near >= _ALIKE * len(errors)


def ideal_quantizers(
    model: Model, ranges: Mapping[str, tuple[float, float]], rounded: Collection[str]
) -> list[Quantizer]:
    """The plainest 8-bit quantizers: one scale for each weight, and for each activation that is not rounded yet.

    Args:
        model: The float model.
        ranges: Smallest and largest value of activations.
        rounded: Activations that the device rounded already.
    """
    weights = Weights(model)
    found: dict[str, Quantizer] = {}
    readers = consumers(model.proto.graph.node)
    for node in model.proto.graph.node:
        if node.op_type not in _WEIGHTED:
            continue
        for name in node.input[:3] if node.op_type in _RECURRENT else node.input[:2]:
            own = tuple(each for each in readers[name] if each.node == node.name)
            if name in weights and weights[name].dtype == np.float32:
                size = float(np.abs(weights[name]).max(initial=0.0))
                params = parameters_from_range(-size, size, _WEIGHT)
                found[f"{node.name}:{name}"] = Quantizer(
                    f"ideal:{node.name}:{name}", name, "weight", _WEIGHT, params, own
                )
            elif name in ranges and name not in rounded:
                params = parameters_from_range(*ranges[name], _ACTIVATION)
                found.setdefault(
                    name,
                    Quantizer(f"ideal:{name}", name, "activation", _ACTIVATION, params, tuple(readers[name])),
                )
    return list(found.values())


def has_weights(golden: Golden, span: Span) -> bool:
    """Whether a span has a layer."""
    kinds = {node.name: node.op_type for node in golden.model.proto.graph.node}
    return any(kinds[name] in _WEIGHTED for name in span.nodes)


def cancelling_input(golden: Golden, span: Span, given: Mapping[str, Array]) -> float:
    """Largest magnitude among the inputs of a span that adds or joins them; 0 for others."""
    kinds = {node.name: node.op_type for node in golden.model.proto.graph.node}
    if not any(kinds[name] in _ELEMENTWISE or kinds[name] in _MEANS for name in span.nodes):
        return 0.0
    sizes = [np.abs(given[name]) for name in span.reads if name in given and given[name].dtype.kind == "f"]
    return max((float(each[np.isfinite(each)].max(initial=0.0)) for each in sizes), default=0.0)


# Operations in half precision all the way, as far as it matters where their sums and squares end.

_EPSILON = 1e-5


def is_emulated(op_type: str) -> bool:
    """Whether what happens inside of an operation can overflow half precision although its result does not."""
    return op_type in _WAYS


def in_half(op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Array]) -> Array | None:
    """The result with every step in half precision, float32; None where the operation is not known.

    Args:
        op_type: The operation.
        attributes: Its attributes by name.
        inputs: Its inputs.
    """
    way = _WAYS.get(op_type)
    if way is None or not inputs:
        return None
    with np.errstate(all="ignore"):
        result = way([each.astype(np.float16) for each in inputs], attributes)
    return np.asarray(result, dtype=np.float32)


def _sum(values: Array, axes: tuple[int, ...]) -> Array:
    """A sum whose result does not fit becomes infinite; how it is added up does not matter for that."""
    return np.asarray(values.astype(np.float32).sum(axis=axes, keepdims=True).astype(np.float16))


def _layer_norm(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    x = inputs[0]
    first = int(attributes.get("axis", -1)) % x.ndim
    axes = tuple(range(first, x.ndim))
    count = np.float16(np.prod([x.shape[axis] for axis in axes]))
    centred = x - _sum(x, axes) / count
    # The square of what is above 255 is infinite.
    variance = _sum(centred * centred, axes) / count
    result = centred / np.sqrt(variance + np.float16(max(float(attributes.get("epsilon", _EPSILON)), 6e-8)))
    for scale, apply in zip(inputs[1:3], (np.multiply, np.add), strict=False):
        result = apply(result, scale)
    return np.asarray(result)


def _softmax(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """Without the largest value taken away first."""
    raised = np.exp(inputs[0])
    axis = int(attributes.get("axis", -1)) % inputs[0].ndim
    return np.asarray(raised / _sum(raised, (axis,)))


def _mean_of_pictures(inputs: Sequence[Array], _attributes: Mapping[str, Any]) -> Array:
    x = inputs[0]
    axes = tuple(range(2, x.ndim))
    return np.asarray(_sum(x, axes) / np.float16(np.prod([x.shape[axis] for axis in axes])))


_WAYS = {
    "GlobalAveragePool": _mean_of_pictures,
    "LayerNormalization": _layer_norm,
    "Softmax": _softmax,
}
