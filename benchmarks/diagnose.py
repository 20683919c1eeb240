"""``diagnose`` of deep networks with six planted faults: CPU seconds, sessions, and how they grow with the nodes.

``--nodes 100,200,400,800`` chooses the sizes; by default small ones, that end within a minute.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.load import load_model
from roundoff.graph.nodes import make_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import add_session_observer, remove_session_observer
from roundoff.samples.sample_set import ArraySamples

CHANNELS, SIZE, SAMPLES, FAULTS = 16, 16, 48, 6
# By turns a range that cuts off most of its values, and one that leaves them few codes.
FACTORS = (1 / 16, 40.0)
MOST_GROWTH = 1.3
"""Of CPU seconds with the number of nodes, as an exponent."""


def residual_network(nodes: int) -> Any:
    """A residual network of about so many nodes, whose tensors keep their size."""
    rng, made, weights = np.random.default_rng(0), list[Any](), list[Any]()

    def conv(source: str, name: str, inputs: int, gain: float = 1.0) -> str:
        values = rng.standard_normal((CHANNELS, inputs, 3, 3)) * gain * (2 / (9 * inputs)) ** 0.5
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}_w"))
        weights.append(numpy_helper.from_array(np.full(CHANNELS, 0.05, np.float32), f"{name}_b"))
        read = [source, f"{name}_w", f"{name}_b"]
        made.append(helper.make_node("Conv", read, [f"{name}_out"], name=name, pads=[1] * 4))
        return f"{name}_out"

    def op(kind: str, name: str, *sources: str) -> str:
        made.append(helper.make_node(kind, list(sources), [f"{name}_out"], name=name))
        return f"{name}_out"

    x = op("Relu", "stem_relu", conv("image", "stem", 3))
    for at in range((nodes - 4) // 5):
        y = op("Relu", f"relu{at}", conv(x, f"first{at}", CHANNELS))
        y = conv(y, f"second{at}", CHANNELS, gain=0.3)
        x = op("Relu", f"joined{at}", op("Add", f"add{at}", x, y))
    op("Flatten", "flat", op("GlobalAveragePool", "pool", x))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    scores = helper.make_tensor_value_info("flat_out", TensorProto.FLOAT, ["n", CHANNELS])
    return make_model(helper.make_graph(made, "residual", [image], [scores], weights))


def planted(quantized: QuantizedModel) -> QuantizedModel:
    """The network with wrong scales of activations, evenly along it."""
    places = [each.name for each in quantized.quantizers if each.kind == "activation" and "relu" in each.tensor]
    chosen = {places[int(at)]: turn for turn, at in enumerate(np.linspace(1, len(places) - 2, FAULTS))}
    changed = tuple(
        replace(
            each,
            params=replace(each.params, scale=each.params.scale * np.float32(FACTORS[chosen[each.name] % 2])),
        )
        if each.name in chosen
        else each
        for each in quantized.quantizers
    )
    return replace(quantized, quantizers=changed)


def measure(nodes: int, folder: Path) -> float:
    """CPU seconds of one diagnosis."""
    path = folder / f"{nodes}.onnx"
    onnx.save(residual_network(nodes), path)
    images = np.random.default_rng(1).standard_normal((SAMPLES, 3, SIZE, SIZE)).astype(np.float32)
    samples = ArraySamples({"image": images})
    made = quantize_model(load_model(path), samples, QuantizeSettings(load_target("generic-int8"), threads=1))
    sessions: list[None] = []
    add_session_observer("benchmark", lambda session, source: sessions.append(None))
    began = time.process_time()
    found = diagnose_quantization(planted(made.quantized), samples)
    seconds = time.process_time() - began
    remove_session_observer("benchmark")
    named = sum(each.proven for each in found.findings)
    print(
        f"{nodes:5} nodes: {seconds:6.1f} CPU s, {len(sessions)} sessions, {found.kind}, {named} findings proven"
    )
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", default="100,200,400")
    sizes = [int(each) for each in parser.parse_args().nodes.split(",")]
    with TemporaryDirectory() as folder:
        seconds = [measure(nodes, Path(folder)) for nodes in sizes]
    growth = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else 0.0
    print(f"grows with nodes^{growth:.2f} (target: below {MOST_GROWTH})")
    return int(growth >= MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
