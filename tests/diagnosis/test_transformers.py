"""Masks and residual streams of transformers: found where they are planted, and not where they are sound."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx.numpy_helper import from_array, to_array

from roundoff.core.plan import Recipe
from roundoff.diagnosis.causes.transformers import ResidualOutliers
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from tests.graph.transformer_nets import LOWEST, WIDTH, Form, feeds, transformer
from tests.quantize.transforms.test_clamp_mask import Given

TARGET = load_target("generic-int8")


def sharp(model: Model) -> Model:
    """With attention that looks somewhere: random weights look everywhere, and no mask is missed."""
    for tensor in model.proto.graph.initializer:
        if list(tensor.dims) == [WIDTH, WIDTH]:
            tensor.CopyFrom(from_array((to_array(tensor) * np.float32(2.5)), tensor.name))
    return model


@cache
def quantized(value: float, clamped: bool) -> tuple[QuantizedModel, Given]:
    model = sharp(transformer(Form("where", value=value)))
    samples = Given(feeds(model, 16))
    builder = RecipeBuilder(model, samples, TARGET)
    recipe = builder.plain(Recipe()) if clamped else Recipe()
    return builder.build(recipe).quantized, samples


def diagnosed(value: float, *, clamped: bool) -> Any:
    return diagnose_quantization(*quantized(value, clamped))


@pytest.mark.parametrize("value", [LOWEST, -1e4])
def test_a_mask_that_sets_the_scale_of_scores_is_named(value: float) -> None:
    found = diagnosed(value, clamped=False)
    first = found.accused[0]
    assert (found.kind, first.cause, first.proven) == ("culprits", "attention-mask", True)
    assert first.remedy is not None
    assert first.remedy.cost == "free"
    assert first.remedy.changes[0].step is not None
    assert first.remedy.changes[0].step.name == "clamp_mask"
    assert first.evidence["lowest"] == pytest.approx(value, rel=0.01)
    assert not any(change.kind == "bits" for change in first.remedy.changes)


def test_a_limited_mask_is_not_accused() -> None:
    found = diagnosed(LOWEST, clamped=True)
    assert "attention-mask" not in {each.cause for each in found.accused}


def _signals(patches: float) -> list[float]:
    """How far tensors of the stream reach beyond their rms, where that is said."""
    model = transformer(Form("none", pre_norm=True, images=True, layers=1))
    given = feeds(model, 16)
    given[3]["patches"][0, 2, 5] = patches
    samples = Given(given)
    case = open_case(RecipeBuilder(model, samples, TARGET).build(Recipe()).quantized, samples)
    found = [ResidualOutliers().signal(case, suspect) for suspect in case.facts.suspects]
    return [each.numbers["reach_over_rms"] for each in found if each is not None]


def test_one_token_far_from_the_rest_of_the_stream_is_a_sign_and_a_usual_stream_is_none() -> None:
    assert _signals(2.0) == []
    assert max(_signals(2000.0)) > 20
