"""Networks with several inputs and operators with several outputs, and values that are not finite on their way."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from roundoff.core.progress import SILENT
from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model
from roundoff.vendors.ascend.causes import cause_of
from roundoff.vendors.ascend.comparison import Request, compare_network
from roundoff.vendors.ascend.culprits import Located
from roundoff.vendors.ascend.dump_rules import rule_of_dump
from roundoff.vendors.ascend.folders import open_folder
from roundoff.vendors.ascend.rules import Operator
from roundoff.vendors.ascend.scenarios import RuleFiles
from tests.ascend_dumps import TIME, write_dump
from tests.vendors.ascend.models import op, output, write_model
from tests.vendors.ascend.simulated import stored

SHAPES = {"left": (1, 4, 6, 6), "right": (1, 4, 6, 6)}
READS = {"sum": ("left", "right"), "split": ("sum",), "relu": ("split:1",), "tanh": ("split:0",)}
KINDS = {"sum": "Add", "split": "SplitVD", "relu": "Relu", "tanh": "Tanh"}


def computed(feeds: dict[str, Array], *, broken: str = "", value: float = np.nan) -> dict[str, Array]:
    """Every tensor in half precision; one of them with a first value that is wrong."""
    found = {name: array.astype(np.float16) for name, array in feeds.items()}

    def put(name: str, array: Array) -> None:
        found[name] = array.astype(np.float16)
        if name == broken:
            found[name].reshape(-1)[:4] = value

    put("sum:0", found["left"] + found["right"])
    put("split:0", found["sum:0"][:, :2])
    put("split:1", found["sum:0"][:, 2:])
    put("relu:0", np.maximum(found["split:1"], 0))
    put("tanh:0", np.tanh(found["split:0"].astype(np.float32)))
    return found


def write_network(folder: Path, *, broken: str = "", value: float = np.nan) -> Path:
    """The model, golden data, and the dump with its rule; gives the rule."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    nodes = [
        helper.make_node("Add", ["left", "right"], ["added"], name="sum"),
        helper.make_node("Split", ["added"], ["top", "rest"], name="split", axis=1),
        helper.make_node("Relu", ["rest"], ["positive"], name="relu"),
        helper.make_node("Tanh", ["top"], ["bent"], name="tanh"),
    ]
    half = (1, 2, 6, 6)
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPES[name]) for name in SHAPES],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, half) for name in ("positive", "bent")],
    )  # fmt: skip
    onnx.save(make_model(graph, opset=13, ir_version=8), folder / "net.onnx")
    (folder / "golden").mkdir()
    (folder / "npu").mkdir()
    for place, (name, array) in enumerate({**feeds, **computed(feeds)}.items()):
        step, _, index = name.partition(":")
        np.save(folder / "golden" / f"{step}.{index or 0}.{TIME + place}.npy", array.astype(np.float32))
    device = computed(feeds, broken=broken, value=value)
    ops = [op(name, "Data", outputs=[output(SHAPES[name], layout="NCHW")]) for name in SHAPES]
    for place, (name, reads) in enumerate(READS.items()):
        inputs = [device.get(read, device.get(f"{read}:0")) for read in reads]
        outputs = [device[key] for key in device if key.startswith(f"{name}:")]
        edges = [read if ":" in read else f"{read}:0" for read in reads]
        described = [output(array.shape, layout="NCHW") for array in outputs]
        ops.append(op(name, KINDS[name], inputs=edges, outputs=described))
        path = folder / "npu" / f"{KINDS[name]}.{name}.{place}.1.{TIME + place}"
        items = [[stored(array) for array in side if array is not None] for side in (outputs, inputs)]
        write_dump(path, *items, op_name=name)
    return write_model(folder / "om.json", *ops)


def located(folder: Path, rule: Path) -> Located:
    request = Request(
        folder / "npu", folder / "golden", RuleFiles(rule), out=folder / "out", replay=folder / "net.onnx"
    )
    result = compare_network(request, warn=lambda text: None, progress=SILENT)
    assert not result.not_replayed
    assert result.located is not None
    return result.located


def test_every_output_of_an_operator_is_computed_again_as_itself(tmp_path: Path) -> None:
    found = located(tmp_path, write_network(tmp_path))
    assert (found.kind, found.replayed, found.faults) == ("none", 4, ())


@pytest.mark.parametrize("broken", ["sum:0", "split:1", "relu:0"])
def test_readers_of_what_is_not_finite_are_not_accused(tmp_path: Path, broken: str) -> None:
    found = located(tmp_path, write_network(tmp_path, broken=broken, value=np.inf))
    assert [each.op for each in found.faults] == [broken[:-2]]
    (fault,) = found.faults
    assert fault.cause is not None
    assert fault.cause.kind == "overflow"


def test_a_wrong_second_output_is_found(tmp_path: Path) -> None:
    found = located(tmp_path, write_network(tmp_path, broken="split:1", value=9.0))
    assert [each.op for each in found.faults] == ["split"]


def test_a_dump_alone_tells_several_inputs_and_outputs(tmp_path: Path) -> None:
    write_network(tmp_path)
    folders = [open_folder(tmp_path / name, warn=lambda text: None) for name in ("npu", "golden")]
    known = [Operator(0, name, kind, originals=(name,)) for name, kind in KINDS.items()]
    rule = rule_of_dump(folders[0], known, golden=folders[1])
    operators = {operator.name: operator for operator in rule.in_order}
    assert operators["sum"].inputs == ("left:0", "right:0")
    assert operators["relu"].inputs == ("split:1",)
    assert [(origin.name, origin.index) for origin in operators["split"].outputs] == [("split", 0), ("split", 1)]


def test_the_last_of_a_few_values_is_not_cut_off() -> None:
    exact = np.array([3.0, 60.0, 131.0, 254.0]).reshape(1, 4, 1, 1)
    assert cause_of(exact - [[[[0.0]], [[0.0]], [[0.0]], [[30.0]]]], exact, numbers="codes", coded=True) is None
