"""Writing a dialect's nodes anew as QuantizeLinear and DequantizeLinear around float operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizers import Rounding
from roundoff.graph.reading.dialect_draft import Draft
from roundoff.graph.reading.points import DEQUANTIZE, FORM, QUANTIZE, ROUNDING
from roundoff.graph.wiring import OnnxType

__all__ = ["Coding", "Rewriting", "plain_name"]

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

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._nodes: list[Any] = []
        self._renamed: dict[str, str] = {}
        self._reused: set[str] = set()

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

        if like is not None and name == like.name and name not in self._reused:
            self._reused.add(name)
        else:
            name = self.draft.free_node(name)
        node = make_node(op_type, list(inputs), [output], name=name)
        if like is not None:
            node.attribute.extend(item for item in like.attribute if item.name not in without)
        self._nodes.append(node)
        return node

    def dequantize(self, codes: str, coding: Coding, values: str = "") -> str:
        """Add the DequantizeLinear of codes; gives the tensor of their values."""
        codes = self.current(codes)
        values = values or self.draft.free(f"{codes}_dequantized")
        name = f"{plain_name(codes)}_{DEQUANTIZE}"
        self._describe(self.add(DEQUANTIZE, [codes, *coding.inputs()], values, name=name), coding)
        return values

    def quantize(self, values: str, coding: Coding, codes: str = "", *, name: str = "") -> str:
        """Add the QuantizeLinear of values; gives the tensor of their codes."""
        codes = codes or self.draft.free(f"{values}_quantized")
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
            return self.draft.free(values), codes
        self.rename(codes, self.draft.free(f"{codes}_codes"))
        return codes, self.current(codes)


def plain_name(name: str) -> str:
    """A name without the ending that says that it is quantized."""
    return next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end) and name != end), name)
