"""What nodes read and hand on, seen alike from a plan and from the model that was made of it."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.plan import PlannedQuantizer
from roundoff.core.quantizers import Quantizer, QuantParams
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.units import NodePrecisions
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target, target_names
from tests.models import loaded
from tests.quantize.planning.networks import NETWORKS


def with_numbers(planned: PlannedQuantizer, model: Model) -> Quantizer:
    held = next((each for each in model.proto.graph.initializer if each.name == planned.tensor), None)
    slices = () if planned.spec.axis is None or held is None else (held.dims[planned.spec.axis],)
    # Nowhere at the end of the codes: where they begin at zero, a Relu might have been left out.
    zero = 0 if planned.spec.symmetric and planned.spec.signed else (planned.spec.code_max + 1) // 2
    params = QuantParams(np.full(slices, 0.1, np.float32), np.full(slices, zero, np.int64))
    places = (planned.consumers, planned.output, planned.after)
    return Quantizer(planned.name, planned.tensor, planned.kind, planned.spec, params, *places)


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize(
    "network", ["conv_net", "attention", "gelu_mlp", "swish_net", "detector_head", "residual"]
)
def test_a_plan_sees_what_its_model_has(network: str, target: str, tmp_path: Path) -> None:
    model = loaded(NETWORKS[network](), tmp_path)
    rules = [parse_rule("op:Conv=float")] if network == "residual" and target == "generic-int8" else []
    plan = plan_quantization(model, load_target(target), rules=rules)
    written = insert_quantizers(model, [with_numbers(each, model) for each in plan.quantizers])
    read = read_quantized(written)
    view = NodePrecisions(read.float_model, read.quantizers)
    assert {node.name: view.effective(node) for node in view.nodes} == {
        node.node: node.seen for node in plan.nodes
    }


def test_nodes_inside_a_unit_are_not_in_float(tmp_path: Path) -> None:
    plan = plan_quantization(loaded(NETWORKS["gelu_mlp"](), tmp_path), load_target("generic-int8"))
    inner = next(node for node in plan.nodes if node.node == "erf")
    assert (inner.in_float, inner.unit, str(inner.reason)) == (False, "fc1", "computed inside the unit of fc1")
    assert not any(node.in_float for node in plan.nodes)


def test_a_node_in_float_that_reads_integers(tmp_path: Path) -> None:
    model = loaded(NETWORKS["residual"](), tmp_path)
    plan = plan_quantization(model, load_target("generic-int8"), rules=[parse_rule("add=float")])
    add = next(node for node in plan.nodes if node.node == "add")
    # What it alone reads is float; what others read as well is stored for them.
    assert (add.effective.activation, add.seen.activation) == ("float", "u8/float")
    assert (add.in_float, add.float_between_integers) == (True, False)
    stored = [parse_rule("add=float"), parse_rule("body=output=u8")]
    plan = plan_quantization(model, load_target("generic-int8"), rules=stored)
    add = next(node for node in plan.nodes if node.node == "add")
    assert (add.effective.activation, add.seen.activation) == ("float", "u8")
    assert (add.in_float, add.float_between_integers) == (False, True)
    plan = plan_quantization(model, load_target("generic-int8"), rules=[parse_rule("body=float")])
    body = next(node for node in plan.nodes if node.node == "body")
    assert (body.in_float, body.float_between_integers) == (True, False)
