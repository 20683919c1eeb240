"""What quantize says of subgraphs, of sums that do not fit, of chance, and of outputs that are no numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from tests.models import loaded, value, wrapped
from tests.odd_models import images, with_branches, with_loop, with_tail
from tests.run.samples import MemorySamples

TERMS = 512


def quantized(
    proto: Any, folder: Path, samples: MemorySamples | None, *rules: str, target: str = "generic-int8"
) -> Quantization:
    settings = QuantizeSettings(load_target(target), rules=tuple(map(parse_rule, rules)))
    return quantize_model(loaded(proto, folder), samples, settings)


@pytest.mark.parametrize(
    ("build", "said", "node"),
    [
        (with_branches, "2 nodes inside 'choose' (If) stay in float: 1 Conv, 1 Neg", "choose"),
        (with_loop, "2 nodes inside 'loop' (Loop) stay in float: 1 Add, 1 Identity", "loop"),
    ],
)
def test_what_stays_in_float_inside_of_subgraphs_is_said(build: Any, said: str, node: str, tmp_path: Path) -> None:
    result = quantized(build(), tmp_path, images())
    assert f"{said}; what they read there of 'r' is not quantized for them" in map(str, result.notes)
    [planned] = [each for each in result.best.plan.nodes if each.node == node]
    assert planned.in_float
    assert str(planned.reason) == "control flow: it and the nodes inside (2) stay in float"


def product(low: float = 0.0) -> Any:
    """One product of many terms."""
    held = np.random.default_rng(1).uniform(low, 1, (TERMS, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="many")]
    return wrapped(nodes, [value("x", (1, TERMS))], [value("y")], [numpy_helper.from_array(held, "w")])


def positive() -> MemorySamples:
    rng = np.random.default_rng(0)
    return MemorySamples([{"x": rng.uniform(0, 1, (1, TERMS)).astype(np.float32)} for _ in range(4)])


def about_sums(result: Quantization) -> list[str]:
    return [str(note) for note in result.notes if str(note).startswith("sums of ")]


def test_sums_of_wide_products_that_do_not_fit_are_named_with_what_to_ask_for(tmp_path: Path) -> None:
    result = quantized(product(), tmp_path, positive(), "many=activation=u16,weight=s16")
    [note] = about_sums(result)
    # A product of 65535/2 and 32767/2 on average, 512 times, over 2^31 - 1.
    assert note.startswith(
        "sums of 'many' (MatMul) do not fit 32 bits and wrap: 12 of 12 on a few samples, up to "
    )
    assert 110 < float(note.split("up to ")[1].split()[0]) < 150
    rule = note.split("--set ")[1].split()[0]
    assert rule == "many=weight=s8"
    assert about_sums(quantized(product(), tmp_path, positive(), "many=activation=u16", rule)) == []


def test_sums_that_cancel_fit(tmp_path: Path) -> None:
    small = MemorySamples([{"x": np.eye(1, TERMS, dtype=np.float32)}])
    assert about_sums(quantized(product(-1.0), tmp_path, small, "many=activation=u16,weight=s16")) == []


def test_narrow_products_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("roundoff.run.integer.machine.IntegerRunner", never)
    assert about_sums(quantized(product(), tmp_path, positive())) == []


def test_without_samples_the_largest_possible_sum_is_told(tmp_path: Path) -> None:
    rule = parse_rule("many=activation=u16,weight=s16")
    model, settings = loaded(product(), tmp_path), QuantizeSettings(load_target("generic-int8"), rules=(rule,))
    seen = quantize_model(model, positive(), settings).calibration
    [note] = about_sums(quantize_model(model, None, settings, calibration=seen))
    assert note.startswith("sums of 'many' (MatMul) may reach 512 times what 32 bits hold; --set many=float")


def test_outputs_left_to_chance_are_not_compared(tmp_path: Path) -> None:
    noise = helper.make_node("RandomNormalLike", ["logits"], ["noise"], name="draw")
    noisy = helper.make_node("Add", ["logits", "noise"], ["odd"], name="noisy")
    result = quantized(with_tail([noise, noisy], [value("logits"), value("odd")]), tmp_path, images())
    logits, odd = result.best.agreement
    assert logits.score.values["sqnr_db"] > 20
    assert odd.score.values == {}
    assert odd.score.detail == "it depends on 'draw' (RandomNormalLike), which gives other values in each run"
    assert any("two runs cannot be compared by 'odd'" in str(note) for note in result.notes)
    assert any(str(note).startswith("the prepared model's outputs equal") for note in result.notes)
    assert result.best.sqnr_db == logits.score.values["sqnr_db"]


def test_text_is_compared_as_it_is_and_not_scored(tmp_path: Path) -> None:
    text = helper.make_node("Cast", ["logits"], ["odd"], name="print", to=TensorProto.STRING)
    proto = with_tail([text], [value("logits"), value("odd", None, TensorProto.STRING)])
    result = quantized(proto, tmp_path, images())
    logits, odd = result.best.agreement
    assert (odd.score.status, odd.score.values) == ("unreadable", {})
    assert odd.score.detail == "it holds text, not numbers; it differs in 4 samples"
    assert result.best.sqnr_db == logits.score.values["sqnr_db"]
    assert result.check is not None
    assert result.check.agrees


def test_an_empty_output_is_no_perfect_one(tmp_path: Path) -> None:
    cut = helper.make_node("Slice", ["logits", "five", "five", "one"], ["odd"], name="cut")
    held = [numpy_helper.from_array(np.array([number]), name) for name, number in (("five", 5), ("one", 1))]
    result = quantized(with_tail([cut], [value("odd")], held), tmp_path, images())
    [odd] = result.best.agreement
    assert (odd.score.status, odd.score.values, odd.score.detail) == ("degenerate", {}, "it is empty")


def test_options_of_a_method_also_count_for_weights(tmp_path: Path) -> None:
    model, target = loaded(product(), tmp_path), load_target("generic-int8")
    scales = []
    for share in (0.999, 0.6):
        settings = QuantizeSettings(target, weight_method="percentile", options={"percentile": share})
        result = quantize_model(model, positive(), settings)
        [held] = [each for each in result.best.numbers.quantizers if each.kind == "weight"]
        scales.append(held.params.scale)
    # Of values spread evenly from 0 to 1, 60 per cent of the magnitudes are below 0.6.
    assert scales[1] / scales[0] == pytest.approx([0.6] * 3, abs=0.06)
