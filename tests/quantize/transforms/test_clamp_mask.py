"""Masks of attention: limited without changing a bit, and no scale has to reach them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx.numpy_helper import to_array

from roundoff.core.plan import Step
from roundoff.core.tensors import Array
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import prepare
from roundoff.graph.transformers import find_parts
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.steps import StepContext, apply_transform
from roundoff.quantize.targets.files import load_target
from roundoff.run.bench import Bench
from tests.graph.transformer_nets import LOWEST, TOKENS, Form, feeds, transformer

INFINITE = float("-inf")
TARGET = load_target("generic-int8")


class Given:
    """Samples in memory."""

    label = "given"

    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self._feeds = feeds
        self.names = tuple(f"sample{at}" for at in range(len(feeds)))

    def feed(self, index: int) -> Mapping[str, Array]:
        return self._feeds[index]


def outputs(model: Model, feed: Mapping[str, Array]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(ort.InferenceSession(model.proto.SerializeToString(), options).run(None, dict(feed)))


FORMS = {
    "lowest": Form("multiplied"),
    "where": Form("where"),
    "infinite": Form("where", value=INFINITE, guarded=True),
    "1e9": Form("multiplied", value=-1e9),
    "1e4": Form("where", value=-1e4),
    "initializer": Form("causal", pre_norm=True),
    "mixed": Form("mixed", norm="rms", scale="none", pre_norm=True),
    "fed": Form("fed"),
    "selected": Form("selected", value=-1e9),
    "expanded": Form("expanded", value=INFINITE, scale="roots"),
    "reshaped": Form("reshaped", value=INFINITE, scale="roots"),
    "two": Form("two", scale="mul"),
    "subtracted": Form("subtracted", value=-1e10),
    "flattened": Form("flattened"),
    "lowered": Form("lowered", value=-1e9),
    "logarithm": Form("logarithm"),
    "spelled softmax": Form("where", softmax="spelled"),
}


@pytest.mark.parametrize("name", FORMS)
def test_no_bit_changes_and_no_mask_is_left(name: str) -> None:
    model = prepare(transformer(FORMS[name])).model
    given = feeds(model, 6)
    done = apply_transform(Step("clamp_mask"), model, StepContext(TARGET, Given(given)))
    assert done.taken
    # Other samples than those on which the limit was found.
    for feed in (*given, *feeds(model, 6, seed=9)):
        for before, after in zip(outputs(model, feed), outputs(done.model, feed), strict=True):
            np.testing.assert_array_equal(before, after)
    constants = [tensor for tensor in done.model.proto.graph.initializer if tensor.data_type == 1]
    assert min(float(to_array(tensor).min()) for tensor in constants if to_array(tensor).size) > -1e3


def test_a_row_without_a_key_is_refused_and_still_quantized_with_a_mask() -> None:
    model = transformer(Form("two", scale="mul"))
    given = feeds(model, 4)
    for feed in given:
        # The first token of a causal network sees only itself: padded on the left, it sees nothing.
        feed["mask"] = np.ones((2, TOKENS), np.int64)
        feed["mask"][:, 0] = 0
    done = apply_transform(Step("clamp_mask"), prepare(model).model, StepContext(TARGET, Given(given)))
    assert not done.taken
    assert any("every key masked" in str(note) for note in done.notes)
    assert all(low > -1e3 for low, _ in done.ranges.values())


def test_a_bias_beside_a_mask_that_stays_keeps_its_range() -> None:
    model = prepare(transformer(Form("flattened"))).model
    given = feeds(model, 4)
    for feed in given:
        feed["mask"][0] = 0
    done = apply_transform(Step("clamp_mask"), model, StepContext(TARGET, Given(given)))
    assert not done.taken
    operands = [each for part in find_parts(model).attentions for each in part.operands]
    assert {each.kind for each in operands} == {"mask", "bias"}
    assert all((each.tensor in done.ranges) == (each.kind == "mask") for each in operands)


def test_samples_without_padding_are_said() -> None:
    model = transformer(Form("multiplied"))
    context = StepContext(TARGET, Given(feeds(model, 3, padded=False)))
    done = apply_transform(Step("clamp_mask"), prepare(model).model, context)
    assert not done.taken
    assert any("padded samples" in str(note) for note in done.notes)


def test_a_learned_bias_is_left_alone() -> None:
    model = prepare(transformer(Form("mixed", value=-20.0))).model
    done = apply_transform(Step("clamp_mask"), model, StepContext(TARGET, Given(feeds(model, 3))))
    assert done.model is model
    assert not done.notes


def quantized(form: Form) -> tuple[Quantization, list[dict[str, Array]]]:
    model = transformer(form)
    given = feeds(model, 16)
    return quantize_model(model, Given(given), QuantizeSettings(TARGET)), given


def decibels(found: Quantization, model: Model, given: list[dict[str, Array]]) -> float:
    """Signal to noise of the first output, pooled over samples; computed here."""
    on = switch_on(found.float_model, found.best.numbers.quantizers)
    signal = noise = 0.0
    for feed in given:
        reference, candidate = outputs(model, feed)[0], outputs(on, feed)[0]
        signal += float(np.square(reference, dtype=np.float64).sum())
        noise += float(np.square(reference - candidate, dtype=np.float64).sum())
    return 10 * float(np.log10(signal / noise))


# Each value in two forms, each form with two values: what finds a mask asks for its values in one place.
@pytest.mark.parametrize(
    ("mask", "value"),
    [
        ("where", LOWEST), ("where", INFINITE), ("expanded", INFINITE), ("expanded", -1e4), ("reshaped", LOWEST),
        ("reshaped", -1e4), ("fed", LOWEST), ("fed", -1e4),
    ],
)  # fmt: skip
def test_quantize_limits_masks_by_itself(mask: str, value: float) -> None:
    form = Form(mask, value=value)
    found, given = quantized(form)
    if mask == "fed":
        for feed in given:
            feed["bias"] = np.where(feed["bias"] < -1, np.float32(value), np.float32(0))
        found = quantize_model(transformer(form), Given(given), QuantizeSettings(TARGET))
    assert decibels(found, transformer(form), given) >= 23
    assert any("clamp_mask" in str(note) for note in found.notes)
    assert {each.spec.bits for each in found.best.numbers.quantizers if each.kind == "activation"} == {8}
    assert max(float(each.params.scale.max()) for each in found.best.numbers.quantizers) < 10
    # What is written is what was judged.
    assert found.quantized.float_model is found.float_model


def test_the_range_of_masked_scores_is_that_of_scores_that_matter() -> None:
    """By hand: the largest score of each row, down to where a probability is half an 8-bit step."""
    form = Form("where", layers=1)
    found, given = quantized(form)
    (part,) = find_parts(found.float_model).attentions
    bench = Bench(found.prepared.model, Given(given))
    network = bench.open(tensors=[part.masked])
    rows = np.concatenate([network.run(feed)[part.masked].max(axis=-1).ravel() for feed in given])
    (quantizer,) = [each for each in found.best.plan.quantizers if each.tensor == part.masked]
    assert quantizer.fixed_range is not None
    low, high = quantizer.fixed_range
    assert low == pytest.approx(rows.min() - np.log(512) - np.log(TOKENS), rel=1e-6)
    assert high >= rows.max() - 1e-6


def test_a_mask_of_100_as_windows_have_it_takes_no_codes_from_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values are no mask by their size, and most codes of a sum with them would have no probability."""
    form = Form("causal", value=-100.0, layers=1)
    found, given = quantized(form)
    (part,) = find_parts(found.float_model).attentions
    (quantizer,) = [each for each in found.best.plan.quantizers if each.tensor == part.masked]
    assert quantizer.fixed_range is not None
    assert quantizer.fixed_range[0] > -30
    assert any("reach down to -1" in str(note) for note in found.notes)
    monkeypatch.setattr("roundoff.quantize.recipes.biased_attentions", lambda _: ())
    plain, _ = quantized(form)
    assert decibels(found, transformer(form), given) > decibels(plain, transformer(form), given) + 1


def test_a_mask_that_cannot_be_limited_costs_a_line_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: Any, **__: Any) -> None:
        raise ValueError("rows of another shape")

    monkeypatch.setattr("roundoff.quantize.transforms.clamp_mask.observe_rows", unreadable)
    found, _ = quantized(Form("where", value=-1e4))
    notes = [str(note) for note in found.notes]
    assert any("clamp_mask was left out, it fails on this model" in note for note in notes)
    assert any("rows of another shape" in note for note in notes)
