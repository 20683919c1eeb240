"""Damaged models are read, or refused in words; nothing else."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType

from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.studies.audit.study import audit_model
from tests.graph.quantized_nets import mixed_net
from tests.graph.readers.test_ascend import deploy, simulated
from tests.graph.readers.test_fake_nodes import calibrated
from tests.graph.readers.tools import Net, node, quantized_by_onnxruntime
from tests.models import loaded, save, value, wrapped

OPERATIONS = (
    "Cast", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "AscendQuant", "AscendDequant", "Clip", "Pad",
    "HzCalibration", "FakeQuantize", "Quant", "MatMulInteger", "DynamicQuantizeLinear", "Round",
)  # fmt: skip


def sources(folder: Path) -> list[Any]:
    """One model of each kind."""
    net: Net = mixed_net(), {"image": (1, 3, 4, 4)}
    options = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    models = [quantized_by_onnxruntime(net, folder, quant_format=form, **options) for form in QuantFormat]
    models += [deploy(folder), simulated(folder)]
    models += [calibrated(folder, activation={"scales": [0.02]}, weights={"scales": [0.1, 0.2], "axis": 1})]
    return [model.proto for model in models]


def damage(proto: Any, rng: random.Random) -> None:
    """Break one thing."""
    graph = proto.graph
    victim = rng.choice(graph.node)
    names = [tensor.name for tensor in graph.initializer] + [name for each in graph.node for name in each.output]
    kind = rng.randrange(6)
    if kind == 0 and victim.input:
        del victim.input[rng.randrange(len(victim.input)) :]
    elif kind == 1 and victim.input:
        victim.input[rng.randrange(len(victim.input))] = rng.choice([*names, ""])
    elif kind == 2:
        victim.op_type = rng.choice(OPERATIONS)
    elif kind == 3:
        name = rng.choice(["axis", "block_size", "scale", "levels", "to", "perm", "output_dtype"])
        victim.attribute.append(helper.make_attribute(name, rng.choice([1, -7, 0.5, "x", [1, 2]])))
    elif kind == 4 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        array = np.nan_to_num(numpy_helper.to_array(tensor).astype(np.float64)).clip(-100, 100)
        other = array.astype(rng.choice([np.float32, np.int64, np.int8])).reshape(rng.choice([(-1,), array.shape]))
        tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    else:
        del victim.output[:]


def test_damage_never_ends_in_a_traceback(tmp_path: Path) -> None:
    rng = random.Random(3)  # noqa: S311
    whole = sources(tmp_path)
    read, fixes = 0, []
    for _ in range(150):
        proto = onnx.ModelProto()
        proto.CopyFrom(rng.choice(whole))
        for _ in range(rng.randint(1, 2)):
            damage(proto, rng)
        try:
            found = read_quantized(load_model(save(proto, tmp_path / "damaged.onnx")))
            audit_model(found, subject="damaged")
            read += 1
        except RoundoffError as error:
            fixes.append(error.fix)
    assert min(read, len(fixes)) > 30
    assert all(fixes)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (node("QuantizeLinear", ["x"], "y", name="q"), r"node 'q' \(QuantizeLinear\) has 1 input; it needs 2"),
        (node("HzCalibration", [], "y", name="h"), r"node 'h' \(HzCalibration\) has 0 inputs; it needs 1"),
        (node("Cast", ["x"], "y", name="c", to="float"), "Attribute 'to' of node 'c' .* is 'float'"),
    ],
)
def test_what_a_node_lacks_is_named(tmp_path: Path, broken: Any, says: str) -> None:
    nodes = [broken] if broken.op_type != "Cast" else [node("QuantizeLinear", ["x", "s"], "c"), broken]
    held = [numpy_helper.from_array(np.float32(1), "s")]
    if broken.op_type == "Cast":
        broken.input[0] = "c"
    with pytest.raises(BadInput, match=says):
        read_quantized(loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")], held), tmp_path))


def test_inputs_that_may_be_empty_are_no_damage(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Tanh", ["state"], "next"), node("Identity", ["going"], "goes")],
        "body",
        [value("at", (), TensorProto.INT64), value("going", (), TensorProto.BOOL), value("state", (2, 3))],
        [value("goes", (), TensorProto.BOOL), value("next", (2, 3))],
    )
    loop = helper.make_node("Loop", ["times", "", "x"], ["y"], name="loop", body=body)
    times = numpy_helper.from_array(np.array(3, np.int64), "times")
    model = loaded(wrapped([loop], [value("x", (2, 3))], [value("y", (2, 3))], [times]), tmp_path)
    assert [each.op_type for each in model.proto.graph.node] == ["Loop"]
