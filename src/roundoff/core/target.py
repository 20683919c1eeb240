"""What a chip can do, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.quantizers import QuantSpec, Rounding


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How integer hardware computes.

    Attributes:
        rounding: Rounding where a result is brought to the scale of its tensor.
        requantization: With a float multiplier, or with a fixed-point multiplier and a shift.
        multiplier_bits: Significant bits of the fixed-point multiplier.
        accumulator_bits: Width of the sums of products.
        overflow: What a sum does that does not fit.
        tables: Operations computed by looking up each input code in a table of output codes.
        in_float: Operations computed in float32 on the values of codes, and rounded behind.
        rounds_twice: The product with the fixed-point multiplier is first rounded (half up) to the width of the
            sum, and the shift rounds again, as the reference kernels of some runtimes do; otherwise only the shift
            rounds.
        narrow: Operations that requantize with a multiplier of fewer bits; sums of two tensors among them bring
            each operand to the scale of the result by itself, and round it, before they add.
        narrow_bits: Significant bits of that multiplier.
    """

    rounding: Rounding = "half_even"
    requantization: Literal["float", "fixed_point"] = "float"
    multiplier_bits: int = 31
    accumulator_bits: int = 32
    overflow: Literal["wrap", "saturate"] = "wrap"
    tables: frozenset[str] = frozenset()
    in_float: frozenset[str] = frozenset()
    rounds_twice: bool = False
    narrow: frozenset[str] = frozenset()
    narrow_bits: int = 7


WIDEST = Arithmetic(accumulator_bits=64, overflow="saturate")
"""For models whose hardware is not known: sums so wide that overflow is no part of what is measured."""


@dataclass(frozen=True, slots=True)
class CalibrationDefaults:
    """How a target's toolchain finds ranges when nothing else is asked for.

    Attributes:
        method: Name of the calibration method of activations.
        weight_method: Name of the calibration method of weights.
        weights_first: Whether activations are observed with weights already quantized.
    """

    method: str = "minmax"
    weight_method: str = "minmax"
    weights_first: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """What work costs on a chip, in units of one product of two 8-bit numbers.

    The defaults are those of an array of 8-bit multipliers: a wide operand takes it two passes, two wide operands
    four, and float is computed elsewhere. A byte that is moved counts as much as eight products.

    Attributes:
        product_8x8: A product of activation and weight, both of at most 8 bits.
        product_16x8: One of them has more.
        product_16x16: Both have more.
        product_float: In float.
        byte: Moving one byte of activations or weights.
    """

    product_8x8: float = 1.0
    product_16x8: float = 2.0
    product_16x16: float = 4.0
    product_float: float = 16.0
    byte: float = 8.0


@dataclass(frozen=True, slots=True)
class Target:
    """One chip, or one family of them.

    Attributes:
        name: How users call it.
        description: One sentence.
        activations: What activations can be, by dtype (``u8``, ``s16``, ...); the first is the default.
        weights: What weights can be, by dtype; the first is the default.
        weight_axes: Op type to the axis of its weight that has one scale per slice; other weights have one scale.
            For Gemm as of a weight that is not transposed, for MatMul as of a constant right operand.
        weight_axes_possible: The same for weights that have one scale by default and can have one per slice.
        live_operand: How operands are quantized when neither is constant (MatMul of two activations); None
            when they are like other activations.
        live_places: Which of the two operands those are.
        live_copies: Whether they are always quantized again from codes that are stored like other activations.
        bias: Integers at the product of input and weight scale, or float.
        float_allowed: Whether nodes can stay in float at all.
        only: Op types a precision is limited to, by part and dtype: ``activation.s16``, ``weight.s4``,
            ``activation.float``, ``weight.float``, ``output.float``; what is not listed has no limit.
        needs: Op type to what its nodes must fulfil to have an integer version, e.g. ``constant_weight``.
        fusions: Sequences of op types computed as one, the tensors between them never existing. Each entry is
            an op type, several with ``|`` between, or the name of a pattern of several nodes; ``residual`` is an
            Add of what was computed so far and of another tensor.
        rewrites: Transforms that its toolchain does to every network, by name.
        possible_rewrites: Transforms that it does by rules that are not known; its dumps tell where.
        pass_through: Op types whose output has the scale of its input.
        shared_scale: Op types whose inputs and output share one scale.
        shared_scale_decides: Who decides the precision of tensors that share a scale: the strongest wish for any
            of them, or the operation because of which they share it.
        quantized_ops: Op types with an integer version; all other nodes stay in float.
        fixed_ranges: Op type to the range its output always gets, whatever calibration says; ``Op:dtype`` for a
            range that holds for one dtype.
        input_ranges: Op type to the range that what it reads is cut to where it was observed to be wider.
        float_results: Whether integer operations hand on float values, so that only their inputs are quantized.
        quantize_outputs: Whether outputs of the network are quantized.
        weight_only: Whether only weights are quantized: stored as codes, and everything is computed in float.
        weight_block: Values of a MatMul's weight that share a scale, along a sum; 0 for whole slices.
        arithmetic: How its integer units compute.
        calibration: How its toolchain finds ranges.
        costs: What work costs on it.
        description_zh: The description in Chinese; empty where there is none.
    """

    name: str
    description: str
    activations: Mapping[str, QuantSpec]
    weights: Mapping[str, QuantSpec]
    weight_axes: Mapping[str, int] = field(default_factory=dict)
    weight_axes_possible: Mapping[str, int] = field(default_factory=dict)
    live_operand: QuantSpec | None = None
    live_places: tuple[int, ...] = (0, 1)
    live_copies: bool = False
    bias: Literal["s32", "float"] = "s32"
    float_allowed: bool = True
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fusions: tuple[tuple[str, ...], ...] = ()
    rewrites: tuple[str, ...] = ()
    possible_rewrites: tuple[str, ...] = ()
    pass_through: frozenset[str] = frozenset()
    shared_scale: frozenset[str] = frozenset()
    shared_scale_decides: Literal["strongest_wish", "operation"] = "strongest_wish"
    quantized_ops: frozenset[str] = frozenset()
    fixed_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    float_results: bool = False
    quantize_outputs: bool = True
    weight_only: bool = False
    weight_block: int = 0
    arithmetic: Arithmetic = Arithmetic()
    calibration: CalibrationDefaults = CalibrationDefaults()
    costs: Costs = Costs()
    description_zh: str = ""

    @property
    def activation(self) -> str:
        """Dtype of activations when nothing is asked for."""
        return next(iter(self.activations))

    @property
    def weight(self) -> str:
        """Dtype of weights when nothing is asked for."""
        return next(iter(self.weights))
