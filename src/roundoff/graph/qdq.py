"""How a quantizer becomes ONNX nodes: the one place that knows.

A tensor passes ``QuantizeLinear`` and ``DequantizeLinear``; a constant may be kept as codes, and then passes the
second one only. All nodes and tensors of a quantizer are named after it: ``<name>_QuantizeLinear`` and so on; only
codes that are kept are named after their tensor, ``<tensor>_codes``, so that its name is not lost.

``QuantizeLinear`` rounds half to even and uses every code of its type. Where the quantizer does otherwise, plain
operators in front bring each value to the value of its code first: ``<name>_Round...`` for another rounding,
``<name>_Clip...`` for codes that are not used.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model
from roundoff.graph.nodes import DEFAULT_OPSET, OnnxType, by_dtype
from roundoff.graph.shapes import ValueTypes, values
from roundoff.messages.message import english

FLOAT32 = 1
"""Number of the element type that ``QuantizeLinear`` computes in here; others are cast."""

MICROSOFT = "com.microsoft"
"""Domain of onnxruntime's own operators, which take more types at any opset."""

WIDEST_COMPUTED = 16
"""Bits of the widest codes that ``QuantizeLinear`` computes; ``DequantizeLinear`` takes 32."""

# Where the standard operators learned a type, and one scale per slice.
_FIRST_OPSET, _FIRST_PER_AXIS, _FIRST_ALL_WIDTHS = 10, 13, 21
_CODE_BITS = (4, 8, 16, 32)
_CLIP_TAKES_INPUTS = 11
# Further from zero than any code from any zero point, yet exact with halves in float32.
_FAR_STEPS = 2.0 ** (WIDEST_COMPUTED + 4)
# Where an operator appeared, or learned to broadcast.
_FIRST_VERSION = {"Sign": 9, "Max": 8, "Min": 8}


def code_element(spec: QuantSpec) -> OnnxType:
    """The element type of a model file that holds the codes.

    Raises:
        BadInput: None is wide enough.
    """
    return _code_element(spec.bits, spec.signed)


@cache
def _code_element(bits: int, signed: bool) -> OnnxType:
    width = next((width for width in _CODE_BITS if width >= bits), 0)
    element = by_dtype(f"{'int' if signed else 'uint'}{width}") if width else None
    if element is None:
        what = english("Codes of {bits} bits cannot be written to an ONNX model.", bits=bits)
        raise BadInput(what, fix=english("choose {code_bits} bits or fewer", code_bits=_CODE_BITS[-1]))
    return element


def uses_every_code(spec: QuantSpec) -> bool:
    """Whether its codes are all that their element type can hold, so that saturation needs no help."""
    return spec.bits in _CODE_BITS and not (spec.signed and spec.narrow)


def operator_domain(spec: QuantSpec, opset: int, *, per_axis: bool) -> str:
    """The domain whose ``QuantizeLinear`` and ``DequantizeLinear`` take these codes at this opset."""
    if code_element(spec).bits not in (8, 32):
        first = _FIRST_ALL_WIDTHS
    else:
        first = _FIRST_PER_AXIS if per_axis else _FIRST_OPSET
    return "" if opset >= first else MICROSOFT


def add_quantizer(
    graph: Assembly,
    quantizer: Quantizer,
    source: str,
    *,
    target: str,
    element: int = FLOAT32,
    rank: int | None = None,
) -> str:
    """Add the nodes that quantize a tensor and dequantize it again; gives the name of the codes between them.

    Args:
        graph: Where they are added, in order of execution.
        quantizer: What to do.
        source: The tensor to quantize.
        target: Name of the result; must be free.
        element: Number of the element type of the source, which the result has too.
        rank: Number of axes of the source; needed for one scale per slice when the rounding is not half to even
            or some codes are not used.

    Raises:
        BadInput: ONNX has no operator for codes of this width, or the rank is needed and not known.
    """
    spec, name = quantizer.spec, quantizer.name
    if spec.bits > WIDEST_COMPUTED:
        what = english(
            "Quantizer {name!r} has codes of {bits} bits; QuantizeLinear has at most {widest_computed}.",
            name=name,
            bits=spec.bits,
            widest_computed=WIDEST_COMPUTED,
        )
        raise BadInput(
            what,
            fix=english(
                "choose {widest_computed} bits or fewer for tensors that are computed",
                widest_computed=WIDEST_COMPUTED,
            ),
        )
    tensor = source
    if element != FLOAT32:
        tensor = _chained(graph, name, "Cast", [tensor], suffix="to_float32", to=FLOAT32)
    tensor = _clipped(graph, quantizer, _rounded(graph, quantizer, tensor, rank), rank)
    parameters = _parameters(graph, quantizer)
    codes = graph.free_tensor(f"{name}_quantized")
    attributes = _axis(quantizer)
    domain = operator_domain(spec, graph.opset, per_axis=bool(attributes))
    graph.add_node(
        "QuantizeLinear",
        [tensor, *parameters],
        codes,
        name=f"{name}_QuantizeLinear",
        domain=domain,
        attributes=attributes,
    )
    _dequantize(graph, quantizer, [codes, *parameters], target=target, element=element)
    return codes


class QuantizerNodes:
    """Quantizers in a graph that is made to be run: each is added once behind each tensor it is asked for.

    Args:
        graph: Where nodes are added, in order of execution.
        types: Types of the tensors that quantizers are on.
        prefix: What new names begin with.
    """

    def __init__(self, graph: Assembly, types: ValueTypes, *, prefix: str = "") -> None:
        self._graph, self._types, self._prefix = graph, types, prefix
        self._values: dict[tuple[int, str], str] = {}
        self._codes: dict[tuple[int, str], str] = {}

    def add(self, chain: Sequence[Quantizer], source: str) -> str:
        """The values of a tensor, or of a copy of it, after quantizers.

        Raises:
            BadInput: ONNX has no operators for one of them.
        """
        for quantizer in chain:
            key = id(quantizer), source
            if key not in self._values:
                target = self._graph.free_tensor(f"{self._prefix}{source}//{quantizer.name}")
                self._codes[key] = add_quantizer(
                    self._graph,
                    replace(quantizer, name=f"{self._prefix}{quantizer.name}"),
                    source,
                    target=target,
                    element=self._types.element(quantizer.tensor),
                    rank=self._types.rank(quantizer.tensor) if quantizer.spec.axis is not None else None,
                )
                self._values[key] = target
            source = self._values[key]
        return source

    def codes(self, quantizer: Quantizer, source: str, *, alone: bool) -> str:
        """The codes of a tensor.

        Args:
            quantizer: What makes them.
            source: The tensor.
            alone: Nobody is to read their values, which take as long as the codes to compute.
        """
        key = id(quantizer), source
        if key not in self._codes or not alone:
            self.add([quantizer], source)
            if alone:
                del self._values[key]
                del self._graph.proto.graph.node[-1]
        return self._codes[key]


def add_codes(graph: Assembly, quantizer: Quantizer, codes: str, *, target: str, element: int = FLOAT32) -> None:
    """Add the node that turns codes kept in the model into values.

    Args:
        graph: Where it is added.
        quantizer: What the codes mean.
        codes: Name of the initializer that holds them, of the type `code_element`.
        target: Name of the result; must be free.
        element: Number of the element type of the result.
    """
    _dequantize(graph, quantizer, [codes, *_parameters(graph, quantizer)], target=target, element=element)


def _dequantize(graph: Assembly, quantizer: Quantizer, inputs: list[str], *, target: str, element: int) -> None:
    attributes, name = _axis(quantizer), quantizer.name
    result = target if element == FLOAT32 else graph.free_tensor(f"{name}_float32")
    graph.add_node(
        "DequantizeLinear",
        inputs,
        result,
        name=f"{name}_DequantizeLinear",
        domain=operator_domain(quantizer.spec, graph.opset, per_axis=bool(attributes)),
        attributes=attributes,
    )
    if result != target:
        graph.add_node("Cast", [result], target, name=f"{name}_Cast_back", attributes={"to": element})


def _parameters(graph: Assembly, quantizer: Quantizer) -> list[str]:
    """Add scale and zero point."""
    from onnx.helper import make_tensor

    scale = _per_slice(quantizer, quantizer.params.scale.astype(np.float32))
    zero_point = _per_slice(quantizer, quantizer.params.zero_point)
    scale_name = graph.add_constant(scale, f"{quantizer.name}_scale")
    zero_name = graph.free_tensor(f"{quantizer.name}_zero_point")
    number = code_element(quantizer.spec).number
    graph.add_tensor(make_tensor(zero_name, number, zero_point.shape, zero_point.ravel().tolist()))
    return [scale_name, zero_name]


def _per_slice(quantizer: Quantizer, parameter: Array) -> Array:
    """A parameter of shape [] for the whole tensor, or [C]."""
    return np.asarray(parameter) if _axis(quantizer) else parameter.reshape(())


def _axis(quantizer: Quantizer) -> dict[str, Any]:
    """The axis attribute of both operators; none where one scale serves the whole tensor."""
    axis = quantizer.spec.axis
    return {} if axis is None or quantizer.params.scale.ndim == 0 else {"axis": axis}


def _rounded(graph: Assembly, quantizer: Quantizer, tensor: str, rank: int | None) -> str:
    """Values that are whole numbers of steps, rounded as the quantizer does."""
    rounding, name = quantizer.spec.rounding, quantizer.name
    if rounding == "half_even":
        return tensor
    scale = graph.add_constant(
        _broadcast(quantizer, quantizer.params.scale.astype(np.float32), rank), f"{name}_Round_scale"
    )
    steps = _chained(graph, name, "Div", [tensor, scale], suffix="Round_steps")
    if rounding == "floor":
        whole = _chained(graph, name, "Floor", [steps], suffix="Round_floor")
    elif rounding == "half_up":
        whole = _half_up(graph, name, steps)
    else:
        size = _chained(graph, name, "Abs", [steps], suffix="Round_abs")
        sign = _chained(graph, name, "Sign", [steps], suffix="Round_sign")
        whole = _chained(graph, name, "Mul", [_half_up(graph, name, size), sign], suffix="Round_signed")
    return _chained(graph, name, "Mul", [whole, scale], suffix="Round_values")


def _half_up(graph: Assembly, name: str, steps: str) -> str:
    """The floor, and one more when at least one half was cut off.

    Adding one half before the floor would be one operator, but its sum is itself rounded: it takes the largest
    float below one half up to one. Twice the part cut off is exact; next to zero from below that part rounds to
    one, hence the limit. What is far outside of all codes is brought nearer first: of infinity nothing can be cut.
    """
    far = np.full((), _FAR_STEPS, np.float32)
    steps = _limited(graph, name, steps, low=-far, high=far, suffix="Round_near")
    low = _chained(graph, name, "Floor", [steps], suffix="Round_floor")
    cut = _chained(graph, name, "Sub", [steps, low], suffix="Round_cut")
    twice = _chained(graph, name, "Add", [cut, cut], suffix="Round_twice")
    halves = _chained(graph, name, "Floor", [twice], suffix="Round_halves")
    up = _limited(
        graph, name, halves, low=np.zeros((), np.float32), high=np.ones((), np.float32), suffix="Round_up"
    )
    return _chained(graph, name, "Add", [low, up], suffix="Round_whole")


def _clipped(graph: Assembly, quantizer: Quantizer, tensor: str, rank: int | None) -> str:
    """Values within those of the codes that are used."""
    spec, params, name = quantizer.spec, quantizer.params, quantizer.name
    if uses_every_code(spec):
        return tensor
    scale = params.scale.astype(np.float64)
    low, high = (
        _broadcast(quantizer, ((code - params.zero_point) * scale).astype(np.float32), rank)
        for code in (spec.code_min, spec.code_max)
    )
    return _limited(graph, name, tensor, low=low, high=high, suffix="Clip")


def _limited(graph: Assembly, name: str, tensor: str, *, low: Array, high: Array, suffix: str) -> str:
    if low.ndim == 0 and graph.opset < _CLIP_TAKES_INPUTS:
        return _chained(graph, name, "Clip", [tensor], suffix=suffix, min=float(low), max=float(high))
    bounds = graph.add_constant(low, f"{name}_{suffix}_low"), graph.add_constant(high, f"{name}_{suffix}_high")
    if low.ndim == 0:
        return _chained(graph, name, "Clip", [tensor, *bounds], suffix=suffix)
    raised = _chained(graph, name, "Max", [tensor, bounds[0]], suffix=f"{suffix}_Max")
    return _chained(graph, name, "Min", [raised, bounds[1]], suffix=f"{suffix}_Min")


def _broadcast(quantizer: Quantizer, parameter: Array, rank: int | None) -> Array:
    axis = _axis(quantizer).get("axis")
    if axis is None:
        return parameter.reshape(())
    if rank is None:
        what = english(
            "Quantizer {name!r} has one scale per slice of {tensor!r}, whose rank is unknown.",
            name=quantizer.name,
            tensor=quantizer.tensor,
        )
        raise BadInput(
            what, fix=english("give the model's inputs fixed shapes, or choose one scale for the whole tensor")
        )
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape)


def _chained(
    graph: Assembly, name: str, op_type: str, inputs: list[str], *, suffix: str, **attributes: Any
) -> str:
    """Add a node; gives its output."""
    first = _FIRST_VERSION.get(op_type, 0)
    if graph.opset < first:
        what = english(
            "Quantizer {name!r} needs {op_type} of opset {first}; the model has opset {opset}.",
            name=name,
            op_type=op_type,
            first=first,
            opset=graph.opset,
        )
        fix = english(
            "convert the model first: onnx.version_converter.convert_version(model, {default_opset})",
            default_opset=DEFAULT_OPSET,
        )
        raise BadInput(what, fix=fix)
    result = graph.free_tensor(f"{name}_{suffix}")
    graph.add_node(op_type, inputs, result, name=f"{name}_{suffix}", attributes=attributes)
    return result


# Whether the numbers of quantizers are possible: files of others may hold any.

_FIX = english("quantize the model again, or mend that number; roundoff audit lists all of them")


def check_numbers(model: Model, quantizers: Iterable[Quantizer]) -> None:
    """Refuse scales and zero points that nothing can be computed with.

    Raises:
        BadInput: A scale is not positive and finite, a zero point is no code, or there are too few or too many.
    """
    shapes = TensorShapes(model)
    for quantizer in quantizers:
        scale, zero_point, spec = quantizer.params.scale, quantizer.params.zero_point, quantizer.spec
        _refuse(quantizer, scale, ~(np.isfinite(scale) & (scale > 0)), what="scale {}, which is not above zero")
        outside = (zero_point < spec.code_min) | (zero_point > spec.code_max)
        limits = f"zero point {{}}, and its codes go from {spec.code_min} to {spec.code_max}"
        _refuse(quantizer, zero_point, outside, what=limits)
        if spec.axis is not None and scale.ndim:
            problem = wrong_count(quantizer, shapes.of(quantizer.tensor))
            if problem:
                raise BadInput(
                    english("{named} has {problem}.", named=_named(quantizer), problem=problem), fix=_FIX
                )


def _refuse(quantizer: Quantizer, numbers: Array, wrong: Array, *, what: str) -> None:
    if not wrong.any():
        return
    place = int(np.argmax(wrong.ravel()))
    slice_ = f" for slice {place}" if numbers.size > 1 else ""
    said = what.format(f"{numbers.ravel()[place]:.6g}{slice_}")
    if "scale" in what and not np.isfinite(numbers.ravel()[place]):
        said = said.replace("above zero", "finite")
    raise BadInput(english("{named} has the {said}.", named=_named(quantizer), said=said), fix=_FIX)


def wrong_count(quantizer: Quantizer, shape: tuple[int, ...] | None) -> str:
    """Why scales do not fit a tensor of this shape, as the end of a sentence; empty when they do."""
    axis, count = quantizer.spec.axis, quantizer.params.scale.size
    if shape is None or axis is None or not quantizer.params.scale.ndim:
        return ""
    if not -len(shape) <= axis < len(shape):
        return english(
            "one scale per slice along axis {axis} of a tensor of rank {count}", axis=axis, count=len(shape)
        )
    return (
        ""
        if count in (1, shape[axis])
        else english(
            "{count} scales for {shape} slices along axis {axis}", count=count, shape=shape[axis], axis=axis
        )
    )


class TensorShapes:
    """Shapes of constants and computed tensors; those of the latter are inferred when the first is asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def of(self, tensor: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None when not all of it is known."""
        return self._constants[tensor] if tensor in self._constants else self._computed.get(tensor)

    @cached_property
    def _constants(self) -> dict[str, tuple[int, ...]]:
        return {tensor.name: tuple(tensor.dims) for tensor in self._model.proto.graph.initializer}

    @cached_property
    def _computed(self) -> dict[str, tuple[int, ...] | None]:
        return {value.name: value.shape for value in values(self._model)}


def _named(quantizer: Quantizer) -> str:
    readers = list(dict.fromkeys(consumer.node for consumer in quantizer.consumers))
    read_by = english(", which node {readers!r} reads,", readers=readers[0]) if readers else ""
    return english("The quantizer of {tensor!r}{read_by}", tensor=quantizer.tensor, read_by=read_by)
