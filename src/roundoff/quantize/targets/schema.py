"""The layout of a target file: which keys there are and what they may hold."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, model_validator

from roundoff.core.quantizers import QuantSpec, Rounding, SymmetricScale
from roundoff.core.target import Arithmetic, CalibrationDefaults, Costs, Target
from roundoff.errors import nearest
from roundoff.graph.patterns import PATTERNS
from roundoff.quantize.calibration.methods import all_methods
from roundoff.quantize.planning.view import NEEDS, RESIDUAL

Dtype = Literal["u8", "s8", "u16", "s16", "u4", "s4"]

_MOST_AXES = 8


@cache
def _standard_ops() -> dict[str, None]:
    """Op types of ONNX, sorted."""
    from onnx.defs import get_all_schemas

    return dict.fromkeys(sorted(schema.name for schema in get_all_schemas() if schema.domain == ""))


def _check_op(name: str) -> str:
    """An op type of ONNX; one of another domain is written with it and a dot, and cannot be checked."""
    if "." not in name and name not in (known := _standard_ops()):
        raise ValueError(f"{name!r} is no ONNX op type; {nearest(name, known)}")
    return name


def _check_step(entry: str) -> str:
    own = [*sorted(PATTERNS), RESIDUAL]
    for name in entry.split("|"):
        if name not in own and "." not in name and name not in (known := _standard_ops()):
            raise ValueError(f"{name!r} is no ONNX op type and no pattern; {nearest(name, [*known, *own])}")
    return entry


def _check_need(name: str) -> str:
    if name not in NEEDS:
        raise ValueError(f"{name!r} is nothing a node can fulfil; {nearest(name, NEEDS)}")
    return name


def _check_method(name: str) -> str:
    known = [each.name for each in all_methods()]
    if name not in known:
        raise ValueError(f"there is no calibration method {name!r}; {nearest(name, known)}")
    return name


def _check_rewrite(name: str) -> str:
    from roundoff.quantize.steps import transform_names

    if name not in transform_names():
        raise ValueError(f"there is no transform {name!r}; {nearest(name, transform_names())}")
    return name


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


OpType = Annotated[str, AfterValidator(_check_op)]
Step = Annotated[str, AfterValidator(_check_step)]
Need = Annotated[str, AfterValidator(_check_need)]
Method = Annotated[str, AfterValidator(_check_method)]
Rewrite = Annotated[str, AfterValidator(_check_rewrite)]
Axis = Annotated[int, Field(ge=-_MOST_AXES, lt=_MOST_AXES)]
Cost = Annotated[FiniteFloat, Field(ge=0)]
Range = Annotated[tuple[FiniteFloat, FiniteFloat], BeforeValidator(_as_tuple)]


class _TargetTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SpecTable(_TargetTable):
    """How one dtype is used."""

    symmetric: bool
    symmetric_scale: SymmetricScale = "max_code"
    power_of_two: bool = False
    narrow: bool = False
    rounding: Rounding = "half_even"
    smallest_scale: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    only: list[OpType] | None = None

    def spec(self, dtype: str) -> QuantSpec:
        """As a spec for a whole tensor."""
        options = self.model_dump(exclude={"only"})
        return QuantSpec(bits=int(dtype[1:]), signed=dtype[0] == "s", **options)


class LiveTable(SpecTable):
    """How operands are quantized of which neither is constant."""

    dtype: Dtype
    only: None = None
    places: Annotated[list[Literal[0, 1]], Field(min_length=1)] = [0, 1]
    copies: bool = False

    def live_spec(self) -> QuantSpec:
        """As a spec for a whole tensor."""
        return QuantSpec(
            bits=int(self.dtype[1:]),
            signed=self.dtype[0] == "s",
            **self.model_dump(exclude={"only", "dtype", "places", "copies"}),
        )


class FloatTable(_TargetTable):
    """What can stay in float when that is asked for."""

    allowed: bool = True
    only: list[OpType] | None = None
    weights: list[OpType] | None = None
    outputs: list[OpType] | None = None


class ArithmeticTable(_TargetTable):
    """How integer units compute."""

    rounding: Rounding = "half_even"
    requantization: Literal["float", "fixed_point"] = "float"
    multiplier_bits: Annotated[int, Field(ge=1, le=62)] = 31
    accumulator_bits: Annotated[int, Field(ge=8, le=64)] = 32
    overflow: Literal["wrap", "saturate"] = "wrap"
    rounds_twice: bool = False
    tables: list[OpType] = Field(default_factory=list)
    in_float: list[OpType] = Field(default_factory=list)
    narrow: list[OpType] = Field(default_factory=list)
    narrow_bits: Annotated[int, Field(ge=1, le=31)] = 7

    def arithmetic(self) -> Arithmetic:
        """As the rest of roundoff knows it."""
        sets = ("tables", "in_float", "narrow")
        return Arithmetic(**(self.model_dump() | {name: frozenset(getattr(self, name)) for name in sets}))


class CalibrationTable(_TargetTable):
    """How ranges are found."""

    method: Method = "minmax"
    weight_method: Method = "minmax"
    weights_first: bool = False


class CostTable(_TargetTable):
    """What work costs, in units of one product of two 8-bit numbers."""

    product_8x8: Cost = 1.0
    product_16x8: Cost = 2.0
    product_16x16: Cost = 4.0
    product_float: Cost = 16.0
    byte: Cost = 8.0

    def costs(self) -> Costs:
        """As the rest of roundoff knows it."""
        return Costs(**self.model_dump())


class TargetFile(_TargetTable):
    """A whole target file, after what it extends was filled in."""

    name: Annotated[str, Field(min_length=1)]
    description: str
    description_zh: str = ""
    default_activation: Dtype
    default_weight: Dtype
    activations: dict[Dtype, SpecTable]
    weights: dict[Dtype, SpecTable]
    weight_axes: dict[OpType, Axis] = Field(default_factory=dict)
    weight_axes_possible: dict[OpType, Axis] = Field(default_factory=dict)
    live_operand: LiveTable | None = None
    bias: Literal["s32", "float"] = "s32"
    float_: Annotated[FloatTable, Field(alias="float")] = FloatTable()
    needs: dict[OpType, list[Need]] = Field(default_factory=dict)
    fusions: list[Annotated[list[Step], Field(min_length=1)]] = Field(default_factory=list)
    rewrites: list[Rewrite] = Field(default_factory=list)
    possible_rewrites: list[Rewrite] = Field(default_factory=list)
    pass_through: list[OpType] = Field(default_factory=list)
    shared_scale: list[OpType] = Field(default_factory=list)
    shared_scale_decides: Literal["strongest_wish", "operation"] = "strongest_wish"
    quantized_ops: list[OpType] = Field(default_factory=list)
    fixed_ranges: dict[str, Range] = Field(default_factory=dict)
    input_ranges: dict[OpType, Range] = Field(default_factory=dict)
    float_results: bool = False
    quantize_outputs: bool = True
    weight_only: bool = False
    weight_block: Literal[0, 16, 32, 64, 128, 256] = 0
    arithmetic: ArithmeticTable = ArithmeticTable()
    calibration: CalibrationTable = CalibrationTable()
    cost: CostTable = CostTable()

    @model_validator(mode="after")
    def _agree(self) -> "TargetFile":
        both = sorted({*self.pass_through} & {*self.shared_scale})
        problems = [
            *self._defaults(),
            *(f"fixed_ranges.{key}: {text}" for key in self.fixed_ranges if (text := self._range_problem(key))),
            *(f"{op} is both in pass_through and in shared_scale" for op in both),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _defaults(self) -> list[str]:
        pairs = (
            ("default_activation", self.default_activation, "activations", self.activations),
            ("default_weight", self.default_weight, "weights", self.weights),
        )
        return [
            f"{key}: there is no [{table}.{dtype}]; {nearest(dtype, offered)}"
            for key, dtype, table, offered in pairs
            if dtype not in offered
        ]

    def _range_problem(self, key: str) -> str:
        op_type, _, dtype = key.partition(":")
        if dtype and dtype not in self.activations:
            return f"{dtype!r} is no dtype of its activations; {nearest(dtype, self.activations)}"
        if self.fixed_ranges[key][0] >= self.fixed_ranges[key][1]:
            return "the first number must be less than the second"
        try:
            _check_op(op_type)
        except ValueError as error:
            return str(error)
        return ""

    def target(self) -> Target:
        """As the rest of roundoff knows it."""
        return Target(
            name=self.name,
            description=self.description,
            activations=_specs(self.activations, self.default_activation),
            weights=_specs(self.weights, self.default_weight),
            weight_axes=dict(self.weight_axes),
            weight_axes_possible=dict(self.weight_axes_possible),
            live_operand=self.live_operand.live_spec() if self.live_operand else None,
            live_places=tuple(self.live_operand.places) if self.live_operand else (0, 1),
            live_copies=self.live_operand is not None and self.live_operand.copies,
            bias=self.bias,
            float_allowed=self.float_.allowed,
            only=self._only(),
            needs={op: tuple(needs) for op, needs in self.needs.items()},
            fusions=tuple(tuple(steps) for steps in self.fusions),
            rewrites=tuple(self.rewrites),
            possible_rewrites=tuple(self.possible_rewrites),
            pass_through=frozenset(self.pass_through),
            shared_scale=frozenset(self.shared_scale),
            shared_scale_decides=self.shared_scale_decides,
            quantized_ops=frozenset({*self.quantized_ops, *self.pass_through, *self.shared_scale}),
            fixed_ranges=dict(self.fixed_ranges),
            input_ranges=dict(self.input_ranges),
            float_results=self.float_results,
            quantize_outputs=self.quantize_outputs,
            weight_only=self.weight_only,
            weight_block=self.weight_block,
            arithmetic=self.arithmetic.arithmetic(),
            calibration=CalibrationDefaults(**self.calibration.model_dump()),
            costs=self.cost.costs(),
            description_zh=self.description_zh,
        )

    def _only(self) -> dict[str, frozenset[str]]:
        limits = {
            "activation.float": self.float_.only,
            "weight.float": self.float_.weights,
            "output.float": self.float_.outputs,
            **{f"activation.{dtype}": table.only for dtype, table in self.activations.items()},
            **{f"weight.{dtype}": table.only for dtype, table in self.weights.items()},
        }
        return {key: frozenset(ops) for key, ops in limits.items() if ops is not None}


def _specs(tables: dict[Dtype, SpecTable], first: Dtype) -> dict[str, QuantSpec]:
    """By dtype, the default first."""
    return {dtype: tables[dtype].spec(dtype) for dtype in sorted(tables, key=lambda dtype: dtype != first)}
