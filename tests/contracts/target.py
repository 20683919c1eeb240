"""What a plan promises for every target; subclass `TargetContract` for a target of your own."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from roundoff.core.plan import PlannedQuantizer, QuantPlan, Rule
from roundoff.core.quantizers import Consumer, QuantSpec
from roundoff.core.target import Target
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.targets.files import load_target
from tests.models import loaded
from tests.quantize.planning.networks import NETWORKS

_loaded = cache(load_target)


class TargetContract:
    """Set `name` to the name or path of a target."""

    name: str

    @property
    def target(self) -> Target:
        return _loaded(self.name)

    def test_it_describes_itself(self) -> None:
        assert self.target.name
        assert self.target.description.endswith(".")
        assert len(self.target.description) <= 100

    def test_it_can_quantize_a_convolution(self, tmp_path: Path) -> None:
        if self.target.weight_only:
            pytest.skip("it stores the weights of matrix products, and nothing else")
        plan = plan_quantization(loaded(NETWORKS["conv_net"](), tmp_path), self.target)
        kinds = Counter(quantizer.kind for quantizer in plan.quantizers)
        assert kinds["weight"] == 3
        assert kinds["activation"] >= 3

    @pytest.mark.parametrize("network", NETWORKS)
    def test_its_plans_are_sound(self, network: str, tmp_path: Path) -> None:
        model = loaded(NETWORKS[network](), tmp_path)
        plan = plan_quantization(model, self.target)
        check_plan(plan, model, self.target)
        assert plan == plan_quantization(model, self.target)


def check_plan(plan: QuantPlan, model: Model, target: Target, rules: Iterable[Rule] = ()) -> None:
    """Everything that holds for any plan."""
    nodes = {node.name: node for node in model.proto.graph.node if node.op_type != "Constant"}
    _check_wiring(plan, nodes)
    _check_values(plan, model)
    _check_order(plan, nodes)
    _check_groups(plan)
    _check_copies(plan)
    _check_dtypes(plan, target)
    _check_biases(plan, Weights(model))
    _check_units(plan, nodes)
    _check_words(plan, nodes)
    outputs = {value.name for value in model.proto.graph.output}
    assert all(each.tensor in outputs and target.quantize_outputs for each in plan.quantizers if each.output)
    assert [resolution.rule for resolution in plan.resolutions] == list(rules)


def _check_wiring(plan: QuantPlan, nodes: dict[str, Any]) -> None:
    assert len({each.name for each in plan.quantizers}) == len(plan.quantizers)
    readers: Counter[Consumer] = Counter()
    for quantizer in plan.quantizers:
        readers.update(quantizer.consumers)
        for consumer in quantizer.consumers:
            assert nodes[consumer.node].input[consumer.input] == quantizer.tensor
    assert all(count == 1 for count in readers.values())


def _check_values(plan: QuantPlan, model: Model) -> None:
    """Only floats are quantized."""
    known = {value.name: value for value in values(model)}
    weights = Weights(model)
    for quantizer in plan.quantizers:
        if quantizer.kind == "activation":
            element = known[quantizer.tensor].element
            assert element is None or element.dtype in ("float16", "float32", "float64", "bfloat16")
        else:
            assert weights[quantizer.tensor].dtype.kind in "fV"  # types numpy does not have count as void
            assert weights[quantizer.tensor].size


def _check_order(plan: QuantPlan, nodes: dict[str, Any]) -> None:
    """In execution order of their tensors; constants stand where they are first read."""
    place = {tensor: at for at, node in enumerate(nodes.values()) for tensor in node.output}
    at_node = {name: at for at, name in enumerate(nodes)}

    def moment(quantizer: PlannedQuantizer) -> tuple[int, int]:
        if quantizer.kind == "activation":
            return place.get(quantizer.tensor, -1), 1
        return min(at_node[consumer.node] for consumer in quantizer.consumers), 0

    moments = [moment(quantizer) for quantizer in plan.quantizers]
    assert moments == sorted(moments)


def _check_groups(plan: QuantPlan) -> None:
    sizes = Counter(each.group for each in plan.quantizers if each.group)
    assert all(size > 1 for size in sizes.values())
    for group in sizes:
        members = [each for each in plan.quantizers if each.group == group]
        assert len({(each.spec, each.fixed_range) for each in members}) == 1
        assert all(each.kind != "bias" for each in members)


def _check_copies(plan: QuantPlan) -> None:
    named = {each.name: each for each in plan.quantizers}
    read_again = {each.after for each in plan.quantizers}
    for quantizer in plan.quantizers:
        if quantizer.after:
            first = named[quantizer.after]
            assert (first.tensor, first.after, first.kind) == (quantizer.tensor, "", "activation")
            assert first.spec != quantizer.spec or first.group != quantizer.group
        assert quantizer.consumers or quantizer.output or quantizer.name in read_again


def _check_dtypes(plan: QuantPlan, target: Target) -> None:
    live = target.live_operand
    lives: set[QuantSpec] = set()
    if live is not None:
        lives = {replace(live, bits=spec.bits) for spec in target.activations.values()}
    activations = {*target.activations.values(), *lives}
    for quantizer in plan.quantizers:
        if quantizer.kind == "activation":
            assert quantizer.spec in activations
        elif quantizer.kind == "weight":
            assert quantizer.spec.along(None) in {*target.weights.values(), *activations}
        else:
            assert quantizer.spec.dtype == "s32"
        settled = quantizer.kind == "bias" or quantizer.fixed_range is not None
        assert (quantizer.method == "") == settled


def _check_biases(plan: QuantPlan, weights: Weights) -> None:
    named = {each.name: each for each in plan.quantizers}
    for quantizer in plan.quantizers:
        assert (quantizer.kind == "bias") == (quantizer.scale_of is not None)
        if quantizer.scale_of is None:
            continue
        source, weight = (named[name] for name in quantizer.scale_of)
        assert source.kind == "activation"
        if weight.spec.axis is None:
            assert quantizer.spec.axis is None
        else:
            assert quantizer.spec.axis == 0
            assert weights.shape(quantizer.tensor) == (weights.shape(weight.tensor)[weight.spec.axis],)


def _check_units(plan: QuantPlan, nodes: dict[str, Any]) -> None:
    """No tensor between two nodes of a unit is quantized."""
    unit = {name: each.unit for name, each in zip(nodes, plan.nodes, strict=True)}
    producer = {tensor: name for name, node in nodes.items() for tensor in node.output}
    for quantizer in plan.quantizers:
        if quantizer.tensor in producer:
            assert all(unit[consumer.node] != unit[producer[quantizer.tensor]] for consumer in quantizer.consumers)


def _check_words(plan: QuantPlan, nodes: dict[str, Any]) -> None:
    """Every node is there, and nothing differs from what was asked for without a word."""
    assert [each.op_type.rpartition(".")[2] for each in plan.nodes] == [node.op_type for node in nodes.values()]
    for each in plan.nodes:
        assert each.requested == each.effective or each.reason, each
    for resolution in plan.resolutions:
        assert resolution.matched
        assert {*resolution.applied, *resolution.reasons} == {*resolution.matched}
        assert not {*resolution.applied} & {*resolution.reasons}
        assert all(resolution.reasons.values())
