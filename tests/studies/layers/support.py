"""Evaluating a network node by node with quantization in numpy: slow, and independent of the graph of copies."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from roundoff.core.quantizers import Consumer, Quantizer, dequantize, fake_quantize
from roundoff.core.tensors import Array
from roundoff.demo import load_split, model_path
from roundoff.graph.load import Model, load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import units
from roundoff.graph.weights import Weights
from roundoff.run.session import open_session
from tests.models import wrapped
from tests.quantized import Recipe, quantized_simply
from tests.run.samples import MemorySamples


def run_node(node: Any, values: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Outputs of one node, in a session of its own."""
    fed = [name for name in dict.fromkeys(node.input) if name]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in fed
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
    for output in outputs:
        output.ClearField("type")
    model = Model(wrapped([node], inputs, outputs, opset=opset), Path("node.onnx"), 0)
    found = open_session(model).run({name: values[name] for name in fed})
    return dict(zip((name for name in node.output if name), found, strict=True))


class _Evaluation:
    """Runs nodes one after the other; what each of them reads is decided by `read`."""

    def __init__(self, quantized: QuantizedModel) -> None:
        self.graph = quantized.float_model.proto.graph
        self.opset = quantized.float_model.proto.opset_import[0].version
        self.weights = dict(Weights(quantized.float_model))
        self.quantizers = {each.name: each for each in quantized.quantizers}
        self.edges = {consumer: each for each in quantized.quantizers for consumer in each.consumers}
        self.inside = units(quantized.float_model, quantized.quantizers).inside

    def quantize(self, values: Array, quantizer: Quantizer) -> Array:
        if quantizer.codes is not None:
            return dequantize(quantizer.codes, quantizer.params, quantizer.spec.axis)
        if quantizer.after:
            values = self.quantize(values, self.quantizers[quantizer.after])
        return fake_quantize(values, quantizer.params, quantizer.spec)

    def written(self, name: str) -> Quantizer | None:
        found = [each for each in self.quantizers.values() if each.tensor == name and not each.after]
        return max(found, key=lambda each: len(each.consumers)) if found else None

    def step(
        self, node: Any, read: Mapping[str, Array], exact: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Outputs of a node, not yet quantized.

        Args:
            node: The node.
            read: What it reads where nothing else is said.
            exact: What it reads from outside of its unit; the same by default.
        """
        values = {}
        inner = helper.make_node(node.op_type, [], node.output, name=node.name, domain=node.domain)
        inner.attribute.extend(node.attribute)
        for position, name in enumerate(node.input):
            edge = Consumer(node.name, position)
            inner.input.append(f"{position}" if name else "")
            if not name:
                continue
            source = self.weights.get(name)
            if source is None:
                source = (read if exact is None or edge in self.inside else exact)[name]
            quantizer = self.edges.get(edge)
            values[f"{position}"] = source if quantizer is None else self.quantize(source, quantizer)
        return run_node(inner, values, self.opset)

    def seen(self, raw: Mapping[str, Array]) -> dict[str, Array]:
        """Tensors as they are written, after their quantizers."""
        found = {}
        for name, values in raw.items():
            quantizer = self.written(name)
            found[name] = values if quantizer is None else self.quantize(values, quantizer)
        return found


def float_values(quantized: QuantizedModel, feed: Mapping[str, Array]) -> dict[str, Array]:
    """All tensors with no quantizer on."""
    evaluation = _Evaluation(replace(quantized, quantizers=()))
    values = dict(feed)
    for node in evaluation.graph.node:
        if node.op_type != "Constant":
            values |= evaluation.step(node, values)
    return values


def local_values(quantized: QuantizedModel, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Each tensor when only its unit is quantized, fed with quantized float tensors."""
    evaluation, exact = _Evaluation(quantized), float_values(quantized, feed)
    raw: dict[str, Array] = {}
    for node in evaluation.graph.node:
        if node.op_type != "Constant":
            raw |= evaluation.step(node, raw, exact)
    return evaluation.seen(raw)


def accumulated_values(quantized: QuantizedModel, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Each tensor of the quantized network."""
    evaluation = _Evaluation(quantized)
    raw: dict[str, Array] = dict(feed)
    for node in evaluation.graph.node:
        if node.op_type != "Constant":
            raw |= evaluation.step(node, raw)
    return evaluation.seen({name: values for name, values in raw.items() if name not in feed})


def demo_network(recipe: Recipe | None = None) -> tuple[QuantizedModel, MemorySamples]:
    """The demo's network quantized on its calibration images, and test images in samples of eight."""
    test = load_split("test")[0]
    return _demo(recipe or Recipe()), MemorySamples([{"image": test[at : at + 8]} for at in range(0, 40, 8)])


@cache
def _demo(recipe: Recipe) -> QuantizedModel:
    calibration = load_split("calibration")[0]
    return quantized_simply(load_model(model_path()), [{"image": calibration[:128]}], recipe)


def quantizer_of(quantized: QuantizedModel, tensor: str) -> Quantizer:
    """The quantizer of a tensor."""
    return next(each for each in quantized.quantizers if each.tensor == tensor)


def with_quantizer(quantized: QuantizedModel, changed: Quantizer) -> QuantizedModel:
    """The same with one quantizer replaced."""
    quantizers = tuple(changed if each.name == changed.name else each for each in quantized.quantizers)
    return replace(quantized, quantizers=quantizers)
