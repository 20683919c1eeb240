"""What one QuantizeLinear or DequantizeLinear says, and how a dialect's nodes are written anew as such."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import QuantParams, QuantSpec, Rounding
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.draft import Draft
from roundoff.graph.load import Model
from roundoff.graph.nodes import OnnxType, attribute, by_dtype, by_number, input_at
from roundoff.graph.quantized_model import Oddity, OddityKind
from roundoff.graph.weights import DerivedConstants
from roundoff.messages.message import Message, english, message

QUANTIZE = "QuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
MICROSOFT = "com.microsoft"
_DOMAINS = ("", "ai.onnx", MICROSOFT)
# Attributes by which the rewriting of a dialect says what the operators have no words for; no file has them.
FORM = "roundoff_form"
ROUNDING = "roundoff_rounding"


class DialectDraft(Draft):
    """A quantized model while its dialect is rewritten to QuantizeLinear and DequantizeLinear.

    Attributes:
        constants: Stored, added and derived constants.
        oddities: What the float model and its quantizers will not say.
    """

    constants: DerivedConstants

    def __init__(self, model: Model) -> None:
        super().__init__(model, constants=DerivedConstants(model), only_replaced=True)
        self.oddities: list[Oddity] = []

    def odd(self, kind: OddityKind, node: str, text: Message) -> None:
        """Write down what the float model and its quantizers will not say."""
        oddity = Oddity(kind, node, text)
        if oddity not in self.oddities:
            self.oddities.append(oddity)


class CannotRepresent(Exception):
    """A quantizer cannot be made of a node; the reason is the end of a sentence about it.

    Attributes:
        dynamic: Whether the reason is that its numbers are computed while the model runs.
    """

    def __init__(self, reason: str, *, dynamic: bool = False) -> None:
        super().__init__(reason)
        self.dynamic = dynamic


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """How values are quantized at one place.

    Attributes:
        spec: The form of the codes.
        params: Scale and zero point.
        values: numpy name of the type of the values.
    """

    spec: QuantSpec
    params: QuantParams
    values: str = "float32"

    def same(self, other: "Point") -> bool:
        """Whether both give the same codes the same meaning; one scale per slice of a single one is one scale."""
        whole = self.params.scale.size == other.params.scale.size == 1
        alike = self.spec.signed == other.spec.signed and (whole or self.spec.axis == other.spec.axis)
        pairs = (
            (self.params.scale, other.params.scale),
            (self.params.zero_point, other.params.zero_point),
        )
        return alike and all(np.array_equal(one.ravel(), two.ravel()) for one, two in pairs)

    def describe(self) -> Message:
        """Type, scale and zero point in a few words."""
        scale, zero = self.params.scale, self.params.zero_point
        if scale.size > 1:
            low, high = float(scale.min()), float(scale.max())
            return message("graph.point_many", dtype=self.spec.dtype, count=scale.size, low=low, high=high)
        return message("graph.point_one", dtype=self.spec.dtype, scale=float(scale.item()), zero=int(zero.item()))


def is_operator(node: Any, op_type: str) -> bool:
    """Whether a node is QuantizeLinear or DequantizeLinear, the standard one or onnxruntime's own."""
    return node.op_type == op_type and node.domain in _DOMAINS


def spec_of(element: OnnxType, zero_point: Array, *, rounding: Rounding = "half_even") -> QuantSpec:
    """The form of codes of an element type; symmetric when all zero points are where symmetric ones are.

    Raises:
        CannotRepresent: The type is no integer.
    """
    signed = element.dtype.startswith("int")
    if not signed and not element.dtype.startswith("uint"):
        raise CannotRepresent(
            english(
                "its codes are {session_name}, and only integer codes can be represented",
                session_name=element.session_name,
            )
        )
    spec = QuantSpec(element.bits, signed, symmetric=False, rounding=rounding)
    return replace(spec, symmetric=_is_symmetric(spec, zero_point))


def limited(point: "Point", low: int, high: int) -> "Point | None":
    """The same with no other codes than those from low to high; None when that is no whole number of bits."""
    spec = point.spec
    bits = high.bit_length() + spec.signed
    for narrow in (False, True) if spec.signed else (False,):
        found = replace(spec, bits=bits, narrow=narrow)
        if bits > 0 and (found.code_min, found.code_max) == (low, high):
            symmetric = _is_symmetric(found, point.params.zero_point)
            return replace(point, spec=replace(found, symmetric=symmetric))
    return None


def _is_symmetric(spec: QuantSpec, zero_point: Array) -> bool:
    return bool(np.all(zero_point == (0 if spec.signed else 1 << (spec.bits - 1))))


def code_type(draft: DialectDraft, node: Any, known: OnnxType | None) -> OnnxType:
    """The type of the codes that a QuantizeLinear writes or a DequantizeLinear reads."""
    if known is not None:
        return known
    zero_point = input_at(node, 2)
    element = draft.constants.element(zero_point) if zero_point and zero_point in draft.constants else None
    if element is None and node.op_type == QUANTIZE:
        element = by_number(attribute(node, "output_dtype", 0))
    if element is None:
        element = by_dtype("uint8")
    if element is None:
        raise CannotRepresent(english("the type of its codes is not known"))
    return element


def read_point(
    draft: DialectDraft, node: Any, *, known: OnnxType | None = None, shape: tuple[int, ...] | None = None
) -> Point:
    """What a QuantizeLinear or DequantizeLinear says.

    Args:
        draft: The model.
        node: The node.
        known: Type of the codes, where something else than the node tells.
        shape: Shape of what is quantized, as far as it is known.

    Raises:
        CannotRepresent: It cannot be said by scale and zero point.
    """
    if attribute(node, "block_size", 0):
        raise CannotRepresent(
            english(
                "it has one scale per block of {attribute} elements; only one scale for the whole "
                "tensor, or one per slice along an axis, can be represented",
                attribute=attribute(node, "block_size"),
            )
        )
    scale, zero_point = parameters(draft, node)
    spec = spec_of(code_type(draft, node, known), zero_point, rounding=attribute(node, ROUNDING, "half_even"))
    form = attribute(node, FORM)
    if form is not None:
        spec = replace(spec, bits=int(form[0]), signed=bool(form[1]), narrow=bool(form[2]))
        spec = replace(spec, symmetric=_is_symmetric(spec, zero_point))
    if scale.ndim > 1:
        raise CannotRepresent(
            english("its scale has the shape {shape}; only [] and [C] can be represented", shape=list(scale.shape))
        )
    given = attribute(node, "axis")
    if scale.ndim == 1 and scale.size == 1 and not (given is not None and _has_one_slice(shape, int(given))):
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    if scale.ndim:
        asked = 1 if given is None else int(given)
        spec = replace(spec, axis=_axis(asked, scale.size, shape))
        if shape is not None and asked not in (spec.axis, (spec.axis or 0) - len(shape)):
            text = message(
                "graph.other_axis",
                op=node.op_type,
                node=node.name,
                count=scale.size,
                asked=asked,
                shape=str(list(shape)),
                axis=spec.axis,
            )
            draft.odd("disagreement", node.name, text)
    stored = draft.constants.element(node.input[1])
    return Point(spec, QuantParams(scale, zero_point), "float32" if stored is None else stored.dtype)


def parameters(draft: DialectDraft, node: Any) -> tuple[Array, Array]:
    """Scale and zero point of a node, float32 and int64 of one shape.

    Raises:
        CannotRepresent: They are not constants.
    """
    names = [name for name in node.input[1:3] if name]
    if not node.input[1]:
        raise CannotRepresent(english("it has no scale"))
    if any(name not in draft.constants for name in names):
        raise CannotRepresent(english("its scale is computed while the model runs"), dynamic=True)
    try:
        scale = draft.constants.value(names[0]).astype(np.float32)
        zeros = np.zeros(scale.shape, np.int64)
        zero_point = draft.constants.value(names[1]).astype(np.int64) if len(names) > 1 else zeros
    except (BadInput, ValueError, TypeError) as error:
        raise CannotRepresent(english("its scale cannot be read")) from error
    if zero_point.shape != scale.shape:
        if zero_point.size not in (1, scale.size):
            raise CannotRepresent(
                english("it has {size} scales and {size2} zero points", size=scale.size, size2=zero_point.size)
            )
        zero_point = np.broadcast_to(zero_point.ravel(), scale.size).reshape(scale.shape)
    return scale, np.asarray(zero_point)


def _has_one_slice(shape: tuple[int, ...] | None, axis: int) -> bool:
    return shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 1


def _axis(axis: int, slices: int, shape: tuple[int, ...] | None) -> int:
    """The axis, counted from the front where the rank is known."""
    if shape is None:
        return axis
    if -len(shape) <= axis < len(shape) and shape[axis] == slices:
        return axis % len(shape)
    fitting = [index for index, size in enumerate(shape) if size == slices]
    if len(fitting) != 1:
        raise CannotRepresent(
            english(
                "it has {slices} scales along axis {axis} of a tensor of shape {shape}",
                slices=slices,
                axis=axis,
                shape=list(shape),
            )
        )
    return fitting[0]


# What other tools call the quantizer of a tensor, so that names from their logs and documents are understood.

# Horizon's calibration nodes; the nodes that onnxruntime's quantizer adds.
_SUFFIXES = ("_HzCalibration", "_QuantizeLinear", "_DequantizeLinear")


def quantizer_names(tensor: str) -> tuple[str, ...]:
    """What the quantizer of a tensor may be called."""
    return tuple(tensor + suffix for suffix in _SUFFIXES)


def tensor_named_by(name: str) -> str | None:
    """The tensor that such a name belongs to; None when it is not of that kind."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), None)


_ENDINGS = ("_quantized", "_quant")


@dataclass(frozen=True, slots=True)
class Coding:
    """How codes are to be understood.

    Attributes:
        scale: The constant that holds the scale.
        zero_point: The constant that holds the zero point; empty for zero.
        axis: Axis along which each slice has its own; None for one scale.
        element: Type of the codes where there is no zero point to tell it.
        form: Number of bits, signed or not, narrow or not, where codes do not use all of their type.
        rounding: How values are rounded to codes.
    """

    scale: str
    zero_point: str = ""
    axis: int | None = None
    element: OnnxType | None = None
    form: tuple[int, bool, bool] | None = None
    rounding: Rounding = "half_even"

    def inputs(self) -> list[str]:
        """Scale and zero point as inputs of an operator."""
        return [self.scale, self.zero_point] if self.zero_point else [self.scale]


class Rewriting:
    """Collects the nodes that take the place of a draft's.

    Attributes:
        draft: What is rewritten.
    """

    def __init__(self, draft: DialectDraft) -> None:
        self.draft = draft
        self._nodes: list[Any] = []
        self._renamed: dict[str, str] = {}
        self._used: set[str] = set()

    def finish(self) -> None:
        """Put the collected nodes into the draft."""
        outputs = self.draft.outputs
        outputs.update({name: self.current(tensor) for name, tensor in outputs.items()})
        self.draft.replace(self._nodes)

    def keep(self, node: Any) -> Any:
        """Take a node over as it is, but for tensors that have another name now; gives what was taken."""
        if any(name in self._renamed for name in node.input):
            copy = type(node)()
            copy.CopyFrom(node)
            for at, name in enumerate(node.input):
                copy.input[at] = self.current(name)
            node = copy
        self._nodes.append(node)
        self._used.add(node.name)
        return node

    def replace_last(self, node: Any) -> None:
        """Put another node in the place of the last one."""
        self._nodes[-1] = node

    def current(self, tensor: str) -> str:
        """What a tensor of the original model is called now."""
        return self._renamed.get(tensor, tensor)

    def rename(self, tensor: str, other: str) -> None:
        """Let all nodes that follow read another tensor in the place of one."""
        self._renamed[tensor] = self.current(other)

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        output: str,
        *,
        name: str,
        like: Any = None,
        without: Sequence[str] = (),
    ) -> Any:
        """Add a node of the standard operators with one output.

        Args:
            op_type: Its operation.
            inputs: Names of its inputs.
            output: Name of its output.
            name: What it is called, if that is free.
            like: The node in whose place it comes, whose attributes it gets.
            without: Names of attributes that it does not get.
        """
        from onnx.helper import make_node

        if like is None or name != like.name or name in self._used:
            name = self.draft.free_node(name)
        self._used.add(name)
        node = make_node(op_type, list(inputs), [output], name=name)
        if like is not None:
            node.attribute.extend(item for item in like.attribute if item.name not in without)
        self._nodes.append(node)
        return node

    def dequantize(self, codes: str, coding: Coding, values: str = "") -> str:
        """Add the DequantizeLinear of codes; gives the tensor of their values."""
        codes = self.current(codes)
        values = values or self.draft.free_tensor(f"{codes}_dequantized")
        name = f"{plain_name(codes)}_{DEQUANTIZE}"
        self._describe(self.add(DEQUANTIZE, [codes, *coding.inputs()], values, name=name), coding)
        return values

    def quantize(self, values: str, coding: Coding, codes: str = "", *, name: str = "") -> str:
        """Add the QuantizeLinear of values; gives the tensor of their codes."""
        codes = codes or self.draft.free_tensor(f"{values}_quantized")
        name = f"{name or values}_{QUANTIZE}"
        self._describe(self.add(QUANTIZE, [values, *coding.inputs()], codes, name=name), coding)
        return codes

    def _describe(self, node: Any, coding: Coding) -> None:
        from onnx.helper import make_attribute

        form = None if coding.form is None else [int(part) for part in coding.form]
        facts: dict[str, Any] = {"axis": coding.axis, FORM: form}
        if coding.element is not None and node.op_type == QUANTIZE:
            facts["output_dtype"] = coding.element.number
        if coding.rounding != "half_even":
            facts[ROUNDING] = coding.rounding
        node.attribute.extend(make_attribute(key, fact) for key, fact in facts.items() if fact is not None)

    def name_values(self, codes: str) -> tuple[str, str]:
        """Names for values that a node computed as codes, and for those codes.

        The values are called like the codes, or what is left when an ending like ``_quantized`` is taken off.
        """
        values = plain_name(codes)
        if values != codes and not self.draft.is_taken(values):
            return self.draft.free_tensor(values), codes
        self.rename(codes, self.draft.free_tensor(f"{codes}_codes"))
        return codes, self.current(codes)


def plain_name(name: str) -> str:
    """A name without the ending that says that it is quantized."""
    return next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end) and name != end), name)
