"""Constants of a model as integer hardware stores them."""

from typing import Any

import numpy as np

from roundoff.core.quantization import code_dtype, quantize
from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.weights import Weights
from roundoff.runtime.integer.node_values import widened
from roundoff.runtime.integer.program import Program
from roundoff.runtime.integer.report import Overflow, Recorder
from roundoff.runtime.integer.results import Coded, Result, aligned
from roundoff.runtime.integer.single_node import SingleNodes

__all__ = ["Constants", "coded"]


def coded(value: Any, quantizer: Quantizer, arithmetic: Arithmetic) -> Coded:
    """Codes of a value, plain or computed with integers, as a quantizer sees it."""
    params, spec = quantizer.params, quantizer.spec
    if isinstance(value, Result):
        return Coded(value.codes_for(params, spec, arithmetic), params, spec)
    return Coded(quantize(widened(value), params, spec), params, spec)


class Constants:
    """Values and codes of constants, each computed once.

    Plain values are kept only while codes are made of them, unless a node reads them as they are.

    Args:
        program: The model.
        nodes: Computes constants that are not stored.
        recorder: Learns of biases that do not fit.
        arithmetic: How codes are quantized again.
    """

    def __init__(self, program: Program, nodes: SingleNodes, recorder: Recorder, arithmetic: Arithmetic) -> None:
        self._program, self._nodes = program, nodes
        self._recorder, self._arithmetic = recorder, arithmetic
        self._weights = Weights(program.model)
        self._plain: dict[str, Any] = {}
        self._coded: dict[str, Coded] = {}

    def plain(self, name: str) -> Any:
        """The float values, or whatever else the constant holds."""
        if name not in self._plain:
            self._plain[name] = self._compute(name)
        return self._plain[name]

    def coded(self, quantizer: Quantizer) -> Coded:
        """The codes that a quantizer gives a constant."""
        if quantizer.name not in self._coded:
            self._coded[quantizer.name] = self._quantized(quantizer)
        return self._coded[quantizer.name]

    def _quantized(self, quantizer: Quantizer) -> Coded:
        before = self._program.edges.before(quantizer)
        if before is not None:
            return coded(self.coded(before), quantizer, self._arithmetic)
        values = self._plain.get(quantizer.tensor)
        values = self._compute(quantizer.tensor) if values is None else values
        if quantizer.kind == "bias":
            self._check_bias(values, quantizer)
        if quantizer.codes is None:
            return coded(values, quantizer, self._arithmetic)
        if quantizer.codes.shape != values.shape:
            raise BadInput(
                f"Quantizer {quantizer.name!r} has codes of shape {list(quantizer.codes.shape)}; "
                f"its tensor {quantizer.tensor!r} is of shape {list(values.shape)}.",
                fix="give codes of the tensor's shape",
            )
        codes = quantizer.codes.astype(code_dtype(quantizer.spec), copy=False)
        return Coded(codes, quantizer.params, quantizer.spec)

    def _compute(self, name: str) -> Any:
        step = self._program.constant_steps.get(name)
        if step is None:
            return self._weights.require(name)
        node = step.node
        results = self._nodes.run(node, [self.plain(source) if source else None for source in node.input])
        found = dict(zip((output for output in node.output if output), results, strict=True))
        return found[name]

    def _check_bias(self, values: Array, quantizer: Quantizer) -> None:
        """Record biases that have no code: their true value in steps lies outside of the register."""
        spec = quantizer.spec
        scale = aligned(quantizer.params.scale, values.ndim, spec.axis).astype(np.float64)
        steps = np.abs(values.astype(np.float64) / scale)
        limit = spec.code_max
        beyond = steps > limit + 0.5
        if beyond.any():
            for edge in quantizer.consumers:
                ratio = float(steps.max()) / limit
                self._recorder.overflowed(Overflow(edge.node, "bias", int(beyond.sum()), values.size, ratio))
