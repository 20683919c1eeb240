"""Whatever is asked for: plans stay sound, every rule is answered, nothing differs without a word."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from roundoff.core.plan import FLOAT, Precision, QuantPlan, Rule
from roundoff.graph.load import Model
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.targets.files import load_target, target_names
from tests.contracts.target import check_plan
from tests.models import loaded, value, wrapped
from tests.quantize.planning.networks import NETWORKS

DTYPES = ("", "u8", "s8", "u16", "s16", "s4", FLOAT)
WHOLE = [Precision(dtype, FLOAT if dtype == FLOAT else "", dtype) for dtype in DTYPES if dtype]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return {name: loaded(build(), tmp_path_factory.mktemp(name)) for name, build in NETWORKS.items()}


TARGETS = {name: load_target(name) for name in target_names()}


def precisions() -> st.SearchStrategy[Precision]:
    parts = st.builds(Precision, *(st.sampled_from(DTYPES) for _ in range(3)))
    return st.one_of(st.sampled_from(WHOLE), parts.filter(lambda each: each != Precision()))


def rules(model: Model) -> st.SearchStrategy[Rule]:
    graph = model.proto.graph
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    tensors = [value.name for value in graph.input] + [name for node in nodes for name in node.output if name]
    tensors += [tensor.name for tensor in graph.initializer]
    choices: list[tuple[Any, list[str]]] = [
        ("node", [node.name for node in nodes]),
        ("tensor", tensors),
        ("op", [node.op_type for node in nodes if not node.domain]),
        ("any", ["*", *(node.name[:1] + "*" for node in nodes)]),
    ]
    simple = st.one_of(
        *(st.builds(lambda k, n, p: Rule(k, (n,), p), st.just(kind), st.sampled_from(names), precisions())
          for kind, names in choices)
    )  # fmt: skip
    whole = st.builds(lambda p: Rule("between", ("DEFAULT",), p, ("DEFAULT",)), precisions())
    return st.one_of(simple, whole)


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rules_on_any_network_for_any_target(data: st.DataObject, models: dict[str, Model]) -> None:
    model = models[data.draw(st.sampled_from(sorted(models)))]
    target = TARGETS[data.draw(st.sampled_from(sorted(TARGETS)))]
    given_rules = data.draw(st.lists(rules(model), max_size=4))
    plan = plan_quantization(model, target, rules=given_rules)
    check_plan(plan, model, target, given_rules)
    for resolution in plan.resolutions:
        for name in resolution.applied:
            check_applied(resolution.rule, name, plan, str(resolution.remarks.get(name, "")))


def check_applied(rule: Rule, name: str, plan: QuantPlan, remark: str) -> None:
    """A rule that counts as applied to a node by its name really is, but for what is said to be another rule's."""
    if rule.kind == "tensor" or (rule.kind == "any" and name not in {each.node for each in plan.nodes}):
        return
    own = next(each for each in plan.nodes if each.node == name)
    last = [each for each in plan.nodes if each.unit == own.unit][-1]
    # What nodes at the beginning of a unit are asked to write is what its last node writes.
    output = last.effective.output if own.effective.activation else own.effective.output
    got = {"activation": own.effective.activation, "weight": own.effective.weight, "output": output}
    asked = {part: wanted for part in got if (wanted := getattr(rule.precision, part)) and got[part]}
    told = [part for part, wanted in asked.items() if got[part] != wanted]
    assert any(got.values())
    assert len(told) < len(asked)
    assert all(f"its {part} is {got[part]}: " in remark and "counts more" in remark for part in told)


@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_rules_of_different_rank_does_not_matter(
    data: st.DataObject, models: dict[str, Model]
) -> None:
    model = models[data.draw(st.sampled_from(["conv_net", "residual", "attention", "detector_head"]))]
    target = TARGETS[data.draw(st.sampled_from(sorted(TARGETS)))]
    nodes = list(model.proto.graph.node)
    chosen = data.draw(st.sampled_from(nodes))
    ranked = [
        Rule("node", (chosen.name,), data.draw(precisions())),
        Rule("op", (data.draw(st.sampled_from(nodes)).op_type,), data.draw(precisions())),
        Rule("between", ("DEFAULT",), data.draw(precisions()), ("DEFAULT",)),
    ]
    shuffled = data.draw(st.permutations(ranked))
    one, other = (plan_quantization(model, target, rules=each) for each in (ranked, shuffled))
    assert one.quantizers == other.quantizers
    assert [each.effective for each in one.nodes] == [each.effective for each in other.nodes]


def test_long_networks_are_planned_too(tmp_path: Path) -> None:
    """Two thousand nodes, each group of tensors reaching through all of them."""
    nodes, last = [], "x"
    for place in range(1000):
        nodes += [
            helper.make_node("Sigmoid", [last], [f"s{place}"], name=f"sigmoid{place}"),
            helper.make_node("Concat", [last, f"s{place}"], [f"j{place}"], name=f"concat{place}", axis=0),
        ]
        last = f"j{place}"
    model = loaded(wrapped(nodes, [value("x", (None, 3))], [value(last)]), tmp_path)
    plan = plan_quantization(model, TARGETS["axera-ax650"])
    assert len(plan.nodes) == 2000
    assert len({quantizer.group for quantizer in plan.quantizers}) == 1
