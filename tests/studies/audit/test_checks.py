"""Faults planted into a sound model are found at their node, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams
from roundoff.graph.quantized_model import Oddity, QuantizedModel
from roundoff.messages.message import verbatim
from roundoff.studies.audit.checks import EffectiveView, check_structure
from roundoff.studies.audit.study import audit_model
from tests.graph.readers.tools import node
from tests.models import loaded, value, weight, wrapped
from tests.studies.audit.planted import changed, scaled, sound, without

Plant = Callable[[QuantizedModel], QuantizedModel]


def by_name(model: QuantizedModel, name: str) -> Quantizer:
    return next(each for each in model.quantizers if each.name == name)


def numbers(scale: object, zero_point: object = 0) -> QuantParams:
    array = np.asarray(scale, np.float32)
    return QuantParams(array, np.broadcast_to(np.asarray(zero_point, np.int64), array.shape))


def second_scale(model: QuantizedModel) -> QuantizedModel:
    act = by_name(model, "act_q")
    first = replace(act, consumers=act.consumers[:1])
    other = replace(scaled(act, 2), name="other", consumers=act.consumers[1:])
    rest = tuple(each for each in model.quantizers if each.name != "act_q")
    return replace(model, quantizers=(*rest, first, other))


PLANTS: dict[str, tuple[Plant, str, str, str]] = {
    "float island": (
        lambda model: without(model, "act_q", "w2_q", "b2_q", "deep_q"),
        "depthwise",
        "float_island",
        "left in float between quantized nodes, while 1 of 2 Conv nodes are quantized",
    ),
    "one operand in float": (
        lambda model: without(model, "deep_q"),
        "add",
        "partial_inputs",
        "input 1 (deep) in float while its other inputs are quantized",
    ),
    "weight in float": (
        lambda model: without(model, "w3_q", "b3_q"),
        "last",
        "partial_inputs",
        "input 1 (w3) in float while its other inputs are quantized",
    ),
    "bias scale": (
        lambda model: changed(model, "b1_q", params=scaled(by_name(model, "b1_q"), 2).params),
        "first",
        "bias_scale",
        "the scale of bias 'b1' is off the product of input and weight scale by 100.00 %",
    ),
    "two scales": (
        second_scale,
        "relu",
        "two_scales",
        "'act' has scale 0.03125 and zero point 0 for some readers and scale 0.0625 and zero point 0 for others",
    ),
    "broken scale": (
        lambda model: changed(model, "sum_q", params=numbers(0.0, 128)),
        "concat",
        "degenerate_scale",
        "'sum' has the scale 0, with which nothing can be quantized",
    ),
    "zero point out of range": (
        lambda model: changed(model, "flat_q", params=numbers(0.1, 300)),
        "last",
        "zero_point_range",
        "the zero point 300 of 'flat' is not among the codes of u8",
    ),
    "bias that does not fit": (
        lambda model: changed(model, "b2_q", params=numbers(np.full(4, 1e-12))),
        "depthwise",
        "bias_overflow",
        "bias 'b2' does not fit into 32 bits: its codes are cut off",
    ),
}


@pytest.mark.parametrize(("plant", "node", "kind", "text"), PLANTS.values(), ids=PLANTS)
def test_a_planted_fault_is_found(tmp_path: Path, plant: Plant, node: str, kind: str, text: str) -> None:
    audit = audit_model(plant(sound(tmp_path)), subject="planted")
    found = {(row.node, each.kind): each for row in audit.rows for each in row.findings}
    assert (node, kind) in found
    assert found[node, kind].text == text
    assert found[node, kind].severity == "silent"
    assert not audit.passed


def test_a_sound_model_is_not_accused(tmp_path: Path) -> None:
    audit = audit_model(sound(tmp_path), subject="sound")
    assert [(row.node, each.text) for row in audit.rows for each in row.findings] == []
    assert (audit.passed, audit.count("info"), len(audit.rows)) == (True, 0, 8)


def test_a_weight_with_one_scale_among_those_with_many(tmp_path: Path) -> None:
    model = sound(tmp_path)
    # Two convolutions are too few to tell what is usual: with a third the odd one stands out.
    names = ("a", "b", "c")
    sources = {"a": "x", "b": "ha", "c": "hb"}
    nodes = [node("Conv", [sources[name], name], f"h{name}", name=name) for name in names]
    held = [weight(name, 3, 3, 1, 1, seed=seed) for seed, name in enumerate(names)]
    net = loaded(wrapped(nodes, [value("x", (1, 3, 2, 2))], [value("hc")], held), tmp_path)
    kernel = by_name(model, "w1_q")
    quantizers = tuple(
        replace(
            kernel,
            name=name,
            tensor=name,
            consumers=(Consumer(name, 1),),
            params=numbers(0.01 if name == "b" else np.full(3, 0.01)),
            spec=kernel.spec.along(None if name == "b" else 0),
        )
        for name in names
    )
    found = check_structure(EffectiveView(QuantizedModel(net, quantizers)))
    granularity = {
        name: [each for each in each_node if each.kind == "granularity"] for name, each_node in found.items()
    }
    assert {name for name, each in granularity.items() if each} == {"b"}
    assert granularity["b"][0].text == (
        "weight 'b' has one scale per tensor, while 2 of 3 Conv weights are per channel"
    )


@pytest.mark.parametrize(
    ("plant", "node", "kind"),
    [
        (
            lambda model: changed(model, "w1_q", params=scaled(by_name(model, "w1_q"), 16).params),
            "first",
            "unused_codes",
        ),
        (
            lambda model: changed(model, "b2_q", params=numbers(np.full(4, 4e-10))),
            "depthwise",
            "bias_near_overflow",
        ),
        (
            lambda model: changed(model, "w2_q", params=numbers([0.01, 0.01, 1e-9, 0.01])),
            "depthwise",
            "uneven_scales",
        ),
        (lambda model: changed(model, "sum_q", params=numbers(1e12, 128)), "concat", "extreme_scale"),
    ],
)
def test_remarks_are_no_differences(tmp_path: Path, plant: Plant, node: str, kind: str) -> None:
    audit = audit_model(plant(sound(tmp_path)), subject="planted")
    found = {(row.node, each.kind): each.severity for row in audit.rows for each in row.findings}
    assert found[node, kind] == "info"


def test_quantizing_twice_is_a_remark(tmp_path: Path) -> None:
    model = sound(tmp_path)
    again = replace(scaled(by_name(model, "deep_q"), 2), name="again", after="deep_q", consumers=())
    model = replace(model, quantizers=(*model.quantizers, again))
    audit = audit_model(model, subject="planted")
    kinds = {each.kind: each.severity for row in audit.rows for each in row.findings}
    assert kinds == {"requantized": "info"}


def test_what_the_reader_of_the_file_found_is_part_of_the_audit(tmp_path: Path) -> None:
    oddities = (
        Oddity(
            "disagreement", "deep", verbatim("'deep' is quantized with one scale but dequantized with another")
        ),
        Oddity("dynamic", "last", verbatim("'flat' has no fixed scale")),
        Oddity("not_represented", "gone", verbatim("QLinearX 'gone' stays as it is")),
        Oddity("restored", "first", verbatim("Relu put back")),
    )
    audit = audit_model(replace(sound(tmp_path), oddities=oddities), subject="odd")
    found = {row.node: [(each.kind, each.severity) for each in row.findings] for row in audit.rows if row.findings}
    assert found == {"depthwise": [("disagreement", "silent")], "last": [("dynamic", "info")]}
    assert [each.kind for each in audit.findings] == ["not_represented"]
