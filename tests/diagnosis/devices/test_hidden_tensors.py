"""What a device computed of tensors that it did not write, and what it says of those that it did."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from benchmarks.planted.subject import run
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from roundoff.core.progress import Deadline
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Diagnosis
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import make_model
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps

CHANNELS, COUNT = 12, 4


def network(seed: int = 0) -> Model:
    """Three convolutions, each with the activation x * sigmoid(x)."""
    rng = np.random.default_rng(seed)
    nodes, weights, last = [], [], "x"
    for place in ("first", "second", "third"):
        filters = rng.normal(0, 0.12, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(filters, f"{place}/weights"))
        weights.append(numpy_helper.from_array(rng.normal(0, 0.3, CHANNELS).astype(np.float32), f"{place}/bias"))
        read = [last, f"{place}/weights", f"{place}/bias"]
        nodes.append(helper.make_node("Conv", read, [f"{place}/conv"], f"{place}_conv", pads=[1] * 4))
        nodes.append(helper.make_node("Sigmoid", [f"{place}/conv"], [f"{place}/gate"], f"{place}_gate"))
        nodes.append(helper.make_node("Mul", [f"{place}/conv", f"{place}/gate"], [f"{place}/out"], f"{place}_out"))
        last = f"{place}/out"
    shape = [1, CHANNELS, 10, 10]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", last)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    return model_from_proto(make_model(graph, opset=17), path=Path("net.onnx"))


def samples() -> Array:
    return np.random.default_rng(1).normal(0, 1, (COUNT, CHANNELS, 10, 10)).astype(np.float32)


def dumped(model: Model, change: Callable[[str, Array], Array]) -> list[dict[str, Array]]:
    """All tensors of a device whose weights were changed, in execution order."""
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model.proto)
    for tensor in wrong.graph.initializer:
        values = change(tensor.name, numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))
    written = [name for node in model.proto.graph.node for name in node.output]
    made = run(model_from_proto(wrong, path=Path("device.onnx")), {"x": samples()}, written)
    return [{name: values[at : at + 1] for name, values in made.items()} for at in range(COUNT)]


def rolled(name: str, values: Array) -> Array:
    return np.roll(values, 1, axis=0) if name == "second/weights" else values


def diagnosed(rows: list[dict[str, Array]], settings: DiagnoseSettings | None = None) -> Diagnosis:
    given = settings or DiagnoseSettings()
    return diagnose_device(network(), ArraySamples({"x": samples()}), HeldDumps(rows), settings=given)


def test_one_fault_behind_a_tensor_that_was_not_dumped_is_one_place() -> None:
    """The gate and the product read it, and both show what its kernel does."""
    rows = [
        {name: values for name, values in row.items() if name != "second/conv"}
        for row in dumped(network(), rolled)
    ]
    found = diagnosed(rows)
    (finding,) = found.accused
    assert finding.nodes[0] == "second_conv"
    assert "takes the weights of another output channel" in str(finding.summary)
    assert "1 place of 8 tensors" in str(found.verdict)
    assert "second/out" in found.victims


def test_without_time_to_tell_why_a_tensor_is_wrong_it_is_still_said_that_it_is() -> None:
    rows = dumped(network(), lambda _name, values: values)
    for row in rows:
        row["second/gate"] = row["second/gate"] * np.float32(0.5)  # in the dump only: the outputs are right
    assert diagnosed(rows).kind == "culprits"
    found = diagnosed(rows, DiagnoseSettings(deadline=Deadline.after(1e-9)))
    assert found.kind == "not_enough_evidence"
    assert "1 of 9 tensors do not follow" in str(found.verdict)
    assert any("why second/gate is wrong" in str(each) for each in found.not_looked_at)


def on_grid(values: Array, low: float, high: float) -> Array:
    """As codes of 8 bits hold it, cut off where they end."""
    step = (high - low) / 255
    zero = round(-low / step)
    codes = np.clip(np.round(values / step) + zero, 0, 255)
    return ((codes - zero) * step).astype(np.float32)


def test_what_a_fault_in_front_pushes_beyond_a_range_is_no_fault_of_those_that_end_there() -> None:
    """Ranges hold what the float model computes, and more above: four times that is cut off below."""
    model = network()
    right = dumped(model, lambda _name, values: values)
    ends = {
        name: (
            min(0.0, *(float(row[name].min()) for row in right)),
            8 * max(float(row[name].max()) for row in right),
        )
        for name in right[0]
    }
    nodes = {node.output[0]: node for node in model.proto.graph.node}
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.proto.graph.initializer}
    rows = []
    for at in range(COUNT):
        held: dict[str, Array] = {"x": samples()[at : at + 1]}
        for name, node in nodes.items():
            part = helper.make_graph(
                [node],
                "part",
                [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in node.input],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
            )
            feed = {each: held.get(each, weights.get(each)) for each in node.input}
            (made,) = ReferenceEvaluator(part, opsets={"": 17}).run(None, feed)
            made = 4 * made if name == "first/conv" else made
            held[name] = on_grid(made, *ends[name]) if name != "first/conv" else on_grid(made, -60, 60)
        rows.append({name: held[name] for name in nodes})
    found = diagnosed(rows)
    (finding,) = found.accused
    assert finding.tensors == ("first/conv",)
