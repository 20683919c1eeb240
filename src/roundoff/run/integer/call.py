"""One call of a node: what an integer kernel is given, and how it declines."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.nodes import OnnxType, by_dtype, by_session_name
from roundoff.messages.message import english
from roundoff.run.integer.results import AccumulatorOverflow, Coded, Recorder, Result

KernelResult: TypeAlias = Sequence[Result | Array]
FloatRunner: TypeAlias = Callable[[Sequence[Array | None]], list[Array]]
_T = TypeVar("_T")


class NotInteger(Exception):
    """A node cannot be computed with integers.

    Args:
        why: The reason, as part of a sentence.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Operand:
    """One input of a node.

    Attributes:
        name: The tensor.
        value: Codes, another result, or plain numbers where nothing is quantized.
        constant: Whether it is the same in every run.
    """

    name: str
    value: Any
    constant: bool

    @property
    def result(self) -> Result:
        """What was computed from quantized tensors.

        Raises:
            NotInteger: It was not.
        """
        if isinstance(self.value, Result):
            return self.value
        raise NotInteger(english("its input {name!r} is not quantized", name=self.name))

    @property
    def coded(self) -> Coded:
        """Codes.

        Raises:
            NotInteger: It is not quantized here.
        """
        if isinstance(self.value, Coded):
            return self.value
        raise NotInteger(english("its input {name!r} is not quantized", name=self.name))

    @property
    def whole(self) -> Coded:
        """Codes with one scale for the whole tensor.

        Raises:
            NotInteger: It is not quantized here, or has several scales.
        """
        if self.coded.whole:
            return self.coded
        raise NotInteger(
            english("its input {name!r} has a scale for each slice, which sums cannot mix", name=self.name)
        )

    @property
    def plain(self) -> Array | None:
        """A constant that is not quantized; None for anything else."""
        if self.constant and isinstance(self.value, np.ndarray):
            return self.value
        return None


@dataclass(slots=True)
class KernelContext:
    """What all calls of a runner share.

    Attributes:
        arithmetic: How the hardware computes.
        opset: Version of the standard operators.
        recorder: Collects the report.
        kept: What kernels prepare once, by node.
    """

    arithmetic: Arithmetic
    opset: int
    recorder: Recorder
    kept: dict[tuple[str, str], Any] = field(default_factory=dict)


@dataclass(slots=True)
class KernelCall:
    """One call of a node.

    Attributes:
        node: Its name.
        op_type: Its operation.
        attributes: Its attributes by name; text as str.
        operands: Its inputs; None where an optional one is absent.
        outputs: Number of outputs that are used.
        run_in_float: Computes the node on plain arrays.
        context: What all calls share.
    """

    node: str
    op_type: str
    attributes: Mapping[str, Any]
    operands: Sequence[Operand | None]
    outputs: int
    run_in_float: FloatRunner
    context: KernelContext

    def operand(self, index: int) -> Operand:
        """An input that must be there.

        Raises:
            NotInteger: It is not.
        """
        found = self.optional(index)
        if found is None:
            raise NotInteger(english("it has no input {index}", index=index))
        return found

    def optional(self, index: int) -> Operand | None:
        """An input that may be absent."""
        return self.operands[index] if index < len(self.operands) else None

    def keep(self, what: str, make: Callable[[], _T], *, constant: bool) -> _T:
        """Make something once when it depends on constants only, else anew."""
        if not constant:
            return make()
        key = self.node, what
        if key not in self.context.kept:
            self.context.kept[key] = make()
        made: _T = self.context.kept[key]
        return made

    def accumulated(self, total: Array, largest: float = np.inf) -> Array:
        """What a register of the accumulator's width holds of these sums; what did not fit is recorded.

        Args:
            total: The sums, whole numbers.
            largest: Magnitude that they cannot exceed, where that is known.
        """
        limit = 1 << (self.context.arithmetic.accumulator_bits - 1)
        self.context.recorder.summed(self.node, total.size)
        if not total.size or largest < limit or (total.min() >= -limit and total.max() < limit):
            return total
        beyond = (total < -limit) | (total >= limit)
        worst = float(np.abs(total[beyond].astype(np.float64)).max()) / limit
        self.context.recorder.overflowed(
            AccumulatorOverflow(self.node, "accumulator", int(beyond.sum()), 0, worst)
        )
        if self.context.arithmetic.overflow == "wrap":
            total = _wrapped(total, limit)
        high = _largest_below(limit, total.dtype)
        return np.clip(total, -limit if high == limit - 1 else -high, high)


def _wrapped(total: Array, limit: int) -> Array:
    """What is left of whole numbers in a register that reaches up to a limit; exact in every type."""
    if total.dtype.kind != "f":
        return np.asarray(((total + limit) & (2 * limit - 1)) - limit)
    span = 2.0 * limit
    rest = np.fmod(total, span)
    return np.asarray(rest - span * (rest >= limit) + span * (rest < -limit))


def _largest_below(limit: int, dtype: np.dtype) -> Any:
    """The largest whole number of a type below a power of two: a wide register ends between two floats."""
    if dtype.kind != "f":
        return limit - 1
    edge = dtype.type(limit)
    return np.floor(min(dtype.type(limit - 1), np.nextafter(edge, dtype.type(0))))


IntegerKernel: TypeAlias = Callable[[KernelCall], KernelResult]


# Values that nodes run one at a time hand on, with the types that numpy and Python do not tell.

_NESTED = re.compile(r"(tensor|seq|optional|map)\((.*)\)")
_FLOATS = re.compile(r"float|double")
_UNKNOWN = "tensor()"


@dataclass(frozen=True, slots=True, eq=False)
class NonTensor:
    """A sequence, an optional or a map.

    Python shows none of them with its whole type: an empty list has no elements to tell, and an optional tensor
    looks like a tensor, or like nothing.

    Attributes:
        value: What onnxruntime takes and gives.
        type_name: What onnxruntime calls its type.
    """

    value: Any
    type_name: str


def type_name(value: Any) -> str:
    """What onnxruntime calls the type of a value."""
    if isinstance(value, NonTensor):
        return value.type_name
    if isinstance(value, list):
        return f"seq({type_name(value[0]) if value else 'tensor(float)'})"
    dtype = np.asarray(value).dtype
    element = by_dtype("string" if dtype.kind in "OUS" else dtype.name)
    return f"tensor({element.session_name})" if element else _UNKNOWN


def is_tensor(name: str) -> bool:
    """Whether a type is that of a tensor."""
    return name.startswith("tensor(")


def holds_floats(value: Any) -> bool:
    """Whether a value is made of numbers of a float type."""
    return _FLOATS.search(type_name(value)) is not None


def narrow_element(name: str) -> OnnxType | None:
    """The element type within a type if numpy does not have it; None when it has."""
    inner = re.search(r"tensor\((\w+)\)", name)
    element = by_session_name(inner.group(1)) if inner else None
    return element if element is not None and element.widened != element.dtype else None


def widened(value: Any) -> Any:
    """An array in a type that numpy has, without loss; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.isbuiltin == 1:
        return value
    element = by_dtype(value.dtype.name)
    return value if element is None or element.widened == element.dtype else value.astype(element.widened)


def narrowed(array: Array, dtype: str) -> Array:
    """An array in a type that numpy may not have."""
    import ml_dtypes

    return array.astype(getattr(ml_dtypes, dtype, dtype), copy=False)


def plain_value(value: Any) -> Any:
    """A value as users read it: in types that numpy has, without the type beside it."""
    return value.value if isinstance(value, NonTensor) else widened(value)


def declare(declared: Any, name: str) -> bool:
    """Write a type that onnxruntime names into an `onnx.TypeProto`.

    Returns:
        False when a model cannot declare it.
    """
    found = _NESTED.fullmatch(name)
    if found is None:
        return False
    kind, inner = found.groups()
    if kind == "tensor":
        element = by_session_name(inner)
        declared.tensor_type.elem_type = element.number if element else 0
        return True
    if kind == "map":
        key, _, inner = inner.partition(",")
        element = by_session_name(key)
        declared.map_type.key_type = element.number if element else 0
        return declare(declared.map_type.value_type, inner)
    holder = declared.sequence_type if kind == "seq" else declared.optional_type
    return declare(holder.elem_type, inner)
