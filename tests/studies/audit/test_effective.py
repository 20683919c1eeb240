"""What nodes compute with, seen from the quantizers."""

from pathlib import Path

import numpy as np

from roundoff.core.plan import Precision
from roundoff.core.quantizers import QuantSpec
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.audit.checks import EffectiveView
from tests.graph.quantized_nets import U8, make_quantizer
from tests.graph.readers.tools import constant, node
from tests.models import loaded, value, weight, wrapped
from tests.studies.audit.planted import sound, without


def effective(model: QuantizedModel) -> dict[str, Precision]:
    view = EffectiveView(model)
    return {node.name: view.effective(node) for node in view.nodes}


def test_types_of_every_node(tmp_path: Path) -> None:
    found = effective(sound(tmp_path))
    assert found["first"] == Precision("u8", "s8", "u8")
    # Computed together with the convolution in front, whose input is what it reads.
    assert found["relu"] == Precision("u8", "", "u8")
    assert found["add"] == Precision("u8", "", "u8")
    assert found["last"] == Precision("u8", "s8", "u8")


def test_what_is_not_quantized_is_float(tmp_path: Path) -> None:
    found = effective(without(sound(tmp_path), "deep_q", "w2_q", "logits_q"))
    assert found["depthwise"] == Precision("u8", "float", "float")
    assert found["add"].activation == "u8/float"
    assert found["last"].output == "float"


def test_codes_go_through_nodes_that_move_them(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], "t", perm=[1, 0]),
        node("Reshape", ["t", "shape"], "r"),
        node("MatMul", ["r", "w"], "y"),
        node("Shape", ["y"], "s"),
    ]
    held = [constant("shape", np.array([3, 2])), weight("w", 2, 4)]
    model = loaded(wrapped(nodes, [value("x", (2, 3))], [value("y"), value("s", (2,), 7)], held), tmp_path)
    quantizers = (
        make_quantizer("x", U8, 0.1, ("t_Transpose", 0), zero_point=3),
        make_quantizer("w", QuantSpec(8, True, True), 0.1, ("y_MatMul", 1), kind="weight"),
    )
    found = effective(QuantizedModel(model, quantizers))
    assert found["y_MatMul"] == Precision("u8", "s8", "float")
    assert found["r_Reshape"] == Precision("u8", "", "u8")
    # Shapes are whole numbers: there is nothing to quantize.
    assert found["s_Shape"].output == ""


def test_scales_of_a_node(tmp_path: Path) -> None:
    model = sound(tmp_path)
    view = EffectiveView(model)
    parts = {part.part: part for part in view.parts(view.by_name["first"])}
    assert set(parts) == {"activation", "weight", "bias"}
    by_name = {each.name: each for each in model.quantizers}
    assert parts["weight"].granularity == "per channel (axis 0, 4 scales)"
    assert parts["weight"].scale_max == float(by_name["w1_q"].params.scale.max())
    assert parts["activation"].granularity == "per tensor"
    assert parts["activation"].zero_point_min == int(by_name["image_q"].params.zero_point)
