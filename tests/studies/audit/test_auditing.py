"""Runs against their plans, and models against targets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.plan import Precision, QuantPlan, Resolution, Rule
from roundoff.core.quantizers import Consumer, QuantParams, QuantSpec
from roundoff.graph.insertion import bake_quantizers, insert_quantizers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.messages.message import verbatim
from roundoff.studies.audit.result import Audit
from roundoff.studies.audit.study import audit_against, audit_run
from tests.studies.audit.planted import changed, plan_of, scaled, sound, without


def audited(model: QuantizedModel, written: QuantizedModel, plan: QuantPlan | None = None) -> Audit:
    """The audit of a run whose plan is one model, and whose files are those of another."""
    files = {
        "fake-quant model": read_quantized(insert_quantizers(written.float_model, written.quantizers)),
        "deploy model": read_quantized(bake_quantizers(written.float_model, written.quantizers)),
    }
    return audit_run(plan or plan_of(model), model.quantizers, files, subject="run")


def kinds(audit: Audit) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in audit.rows:
        for finding in row.findings:
            if finding.severity == "silent":
                found.setdefault(row.node, set()).add(finding.kind)
    return found


def test_a_run_that_has_what_its_plan_says(tmp_path: Path) -> None:
    model = sound(tmp_path)
    audit = audited(model, model)
    assert kinds(audit) == {}
    assert audit.passed
    assert audit.request == "the plan of the run"
    assert [row.node for row in audit.rows][:3] == ["first", "relu", "depthwise"]
    assert audit.rows[0].requested == Precision("u8", "", "u8")


def one_scale(model: QuantizedModel) -> QuantizedModel:
    return changed(
        model,
        "w1_q",
        spec=QuantSpec(8, True, True),
        params=QuantParams(np.asarray(0.01, np.float32), np.zeros((), np.int64)),
    )


TAMPERED: dict[str, tuple[Callable[[QuantizedModel], QuantizedModel], dict[str, set[str]], str]] = {
    "scale": (
        lambda model: changed(model, "flat_q", params=scaled(model.quantizers[9], 1.0001).params),
        {"last": {"scale"}},
        "fake-quant model: tensor 'flat' should have the scale 0.0625, and has the scale 0.062506251",
    ),
    "type": (
        lambda model: changed(
            model,
            "image_q",
            spec=QuantSpec(16, False, False),
            params=model.quantizers[0].params,
        ),
        {"first": {"dtype"}},
        "fake-quant model: tensor 'image' should be u8 and is u16",
    ),
    "granularity": (
        one_scale,
        {"first": {"granularity"}},
        "fake-quant model: weight 'w1' should be per channel (axis 0, 4 scales) and is per tensor",
    ),
    "missing": (
        lambda model: without(model, "sum_q"),
        {"concat": {"missing"}},
        "fake-quant model: tensor 'sum' should be u8 and is not quantized",
    ),
    "zero point": (
        lambda model: changed(
            model, "deep_q", params=QuantParams(model.quantizers[6].params.scale, np.asarray(7))
        ),
        {"add": {"zero_point"}},
        "fake-quant model: tensor 'deep' should have the zero point 128 and has 7",
    ),
    "place": (
        lambda model: changed(model, "act_q", consumers=(Consumer("depthwise", 0), Consumer("add", 0))),
        {"depthwise": {"place"}, "add": {"place"}, "concat": {"place"}},
        "fake-quant model: tensor 'act' should be seen by input 0 of add, input 1 of concat, input 0 of depthwise",
    ),
}


@pytest.mark.parametrize(("tamper", "expected", "text"), TAMPERED.values(), ids=TAMPERED)
def test_a_request_that_was_silently_ignored_is_found(
    tmp_path: Path, tamper: Any, expected: dict[str, set[str]], text: str
) -> None:
    model = sound(tmp_path)
    audit = audited(model, tamper(model))
    assert kinds(audit) == expected
    assert not audit.passed
    texts = [finding.text for row in audit.rows for finding in row.findings]
    assert any(each.startswith(text) for each in texts), texts


def test_a_quantizer_nobody_asked_for(tmp_path: Path) -> None:
    model = sound(tmp_path)
    audit = audited(without(model, "sum_q"), model)
    assert kinds(audit) == {"concat": {"extra"}}


def test_other_integers_in_the_deployed_model(tmp_path: Path) -> None:
    model = sound(tmp_path)
    codes = np.zeros((4, 3, 3, 3), np.int8)
    learned = changed(model, "w1_q", codes=codes)
    files = {
        "fake-quant model": read_quantized(insert_quantizers(model.float_model, model.quantizers)),
        "deploy model": read_quantized(bake_quantizers(model.float_model, learned.quantizers)),
    }
    audit = audit_run(plan_of(model), model.quantizers, files, subject="run")
    assert kinds(audit) == {"first": {"codes"}}
    assert "weight 'w1' differs between the two models" in audit.rows[0].findings[0].text


def test_a_plan_that_is_not_what_was_asked_for(tmp_path: Path) -> None:
    model = sound(tmp_path)
    plan = plan_of(model)
    wish = Precision("u16", "", "u16")
    for reason, severity in (("", "silent"), ("the target has no u16", "explained")):
        nodes = tuple(
            replace(node, requested=wish, reason=verbatim(reason)) if node.node == "add" else node
            for node in plan.nodes
        )
        audit = audited(model, model, replace(plan, nodes=nodes))
        (row,) = [row for row in audit.rows if row.findings]
        assert (row.node, row.severity, row.requested.activation) == ("add", severity, "u16")
        assert audit.passed == (severity == "explained")
        assert reason in row.findings[0].text


def test_rules_without_effect(tmp_path: Path) -> None:
    model = sound(tmp_path)
    rule = Rule("node", ("conv*",), Precision("u16"))
    for resolution, text in (
        (Resolution(rule, (), (), {}), "the rule for 'conv*' matches no node"),
        (Resolution(rule, ("first",), (), {}), "the rule for 'conv*' has no effect on first"),
        (Resolution(rule, ("first",), (), {"first": verbatim("no u16 here")}), ""),
    ):
        audit = audited(model, model, replace(plan_of(model), resolutions=(resolution,)))
        assert [text for finding in audit.findings if finding.text.startswith(text)] == ([text] if text else [])
        assert audit.passed == (not text)


def test_against_a_target(tmp_path: Path) -> None:
    model = sound(tmp_path)
    assert audit_against(model, plan_of(model), subject="same").passed
    other = one_scale(without(model, "sum_q", "logits_q"))
    audit = audit_against(other, plan_of(model), subject="other")
    texts = {row.node: [each.text for each in row.findings] for row in audit.rows if row.findings}
    assert texts == {
        "first": ["input 1 (w1) is per tensor; target some chip makes it per channel (axis 0)"],
        "concat": ["input 0 (sum) is float; target some chip makes it u8"],
        "last": ["output logits is float; target some chip makes it u8"],
    }
    assert audit.request == "target some chip"


def test_symmetry_is_part_of_what_a_target_asks_for(tmp_path: Path) -> None:
    model = sound(tmp_path)
    plan = plan_of(model)
    spec = QuantSpec(8, False, True)
    quantizers = tuple(replace(each, spec=spec) if each.name == "flat_q" else each for each in plan.quantizers)
    skewed = changed(model, "flat_q", params=QuantParams(np.asarray(0.1, np.float32), np.asarray(5)))
    audit = audit_against(skewed, replace(plan, quantizers=quantizers), subject="skewed")
    assert kinds(audit) == {"last": {"symmetry"}}
