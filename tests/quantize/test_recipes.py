"""Recipes become models; what they have in common is done once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.core.plan import Precision, Recipe, Rule, Step
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import verbatim
from roundoff.quantize import recipes
from roundoff.quantize.calibration.calibration import calibrate as observe
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.recipes import BuildSettings, RecipeBuilder, possible_variations, varied_target
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import StepContext, StepLibrary
from roundoff.quantize.targets.files import load_target
from tests.models import conv_net, loaded, residual

TARGET = load_target("generic-int8")


class Images:
    label = "random"
    names = tuple(f"s{number}" for number in range(6))

    def __init__(self, name: str = "image", shape: tuple[int, ...] = (1, 3, 8, 8)) -> None:
        values = np.random.default_rng(0).standard_normal((6, *shape)).astype(np.float32)
        self._feeds = [{name: value} for value in values]

    def feed(self, index: int) -> Mapping[str, Array]:
        return self._feeds[index]


@dataclass
class FakeStepLibrary(StepLibrary):
    """A transform that changes nothing, and a correction that doubles the scales of weights."""

    done: list[str] = field(default_factory=list)

    def transforms(self) -> tuple[str, ...]:
        return ("same",)

    def corrections(self) -> tuple[str, ...]:
        return ("coarse",)

    def transform(self, step: Step, model: Model, context: StepContext) -> Any:
        self.done.append(step.name)
        return SimpleNamespace(
            model=replace(model),
            taken=(Participation("everybody", "", verbatim("")),),
            notes=("transformed",),
            ranges={},
        )

    def correct(self, step: Step, quantized: QuantizedModel, context: StepContext) -> Any:
        self.done.append(step.name)
        coarse = tuple(
            replace(each, params=replace(each.params, scale=each.params.scale * 2))
            if each.kind == "weight"
            else each
            for each in quantized.quantizers
        )
        return SimpleNamespace(
            model=replace(quantized, quantizers=coarse),
            taken=(Participation("w", "", verbatim("")),),
            notes=("corrected",),
        )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often activations were observed."""
    calls: list[int] = []

    def calibrate(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return observe(*args, **options)

    monkeypatch.setattr(recipes, "calibrate", calibrate)
    return calls


def scales(built: recipes.BuiltModel) -> dict[str, list[float]]:
    return {each.name: np.atleast_1d(each.params.scale).tolist() for each in built.quantized.quantizers}


def test_the_plain_recipe_is_what_quantize_makes(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    built = RecipeBuilder(model, Images(), TARGET).build(Recipe())
    other = quantize_model(model, Images(), QuantizeSettings(TARGET)).best
    assert scales(built) == {
        each.name: np.atleast_1d(each.params.scale).tolist() for each in other.numbers.quantizers
    }
    assert built.plan == other.plan


def test_activations_are_observed_once_for_each_chain_of_transforms(counted: list[int], tmp_path: Path) -> None:
    library = FakeStepLibrary()
    making = BuildSettings(library=library, folder=tmp_path, key="k")
    builder = RecipeBuilder(loaded(conv_net(), tmp_path), Images(), TARGET, making=making)
    wide = Rule("node", ("Conv2",), Precision("s16", "", "s16"))
    for recipe in (
        Recipe(),
        Recipe(method="mse"),
        Recipe(rules=(wide,)),
        Recipe(method="percentile", rules=(Rule("node", ("Conv1",), Precision("float", "float")),)),
        Recipe(corrections=(Step("coarse"),)),
    ):
        builder.build(recipe)
    assert len(counted) == 1
    built = builder.build(Recipe(transforms=(Step("same"),), corrections=(Step("coarse"),)))
    builder.build(Recipe(method="mse", transforms=(Step("same"),)))
    assert len(counted) == 2
    assert library.done.count("same") == 1
    assert [(step.name, step.kind, step.taken) for step in built.steps] == [
        ("same", "transform", (Participation("everybody", "", verbatim("")),)),
        ("coarse", "correction", (Participation("w", "", verbatim("")),)),
    ]
    assert {"transformed", "corrected"} <= set(built.notes)
    again = RecipeBuilder(loaded(conv_net(), tmp_path), Images(), TARGET, making=making)
    assert scales(again.build(Recipe(method="mse"))) == scales(builder.build(Recipe(method="mse")))
    assert len(counted) == 2


def test_a_correction_of_the_same_numbers_is_computed_once(tmp_path: Path) -> None:
    library = FakeStepLibrary()
    builder = RecipeBuilder(
        loaded(conv_net(), tmp_path), Images(), TARGET, making=BuildSettings(library=library, folder=None)
    )
    coarse = (Step("coarse"),)
    first = builder.build(Recipe(corrections=coarse))
    # Another recipe of the same numbers: the method is the one that the target has by default.
    again = builder.build(Recipe(method=TARGET.calibration.method, corrections=coarse))
    assert library.done == ["coarse"]
    assert scales(first) == scales(again) != scales(builder.build(Recipe()))
    builder.build(Recipe(method="mse", corrections=coarse))
    builder.build(Recipe(corrections=(Step("coarse", (("by", 2),)),)))
    assert library.done == ["coarse"] * 3


def test_tensors_that_a_transform_adds_are_observed(tmp_path: Path) -> None:
    class Renaming(FakeStepLibrary):
        def transform(self, step: Step, model: Model, context: StepContext) -> Any:
            proto = onnx.ModelProto()
            proto.CopyFrom(model.proto)
            for node in proto.graph.node:
                for names in (node.input, node.output):
                    names[:] = ["renamed" if name == "relu1" else name for name in names]
            return SimpleNamespace(model=replace(model, proto=proto), taken=(), notes=(), ranges={})

    builder = RecipeBuilder(
        loaded(conv_net(), tmp_path), Images(), TARGET, making=BuildSettings(library=Renaming())
    )
    plain = builder.build(Recipe())
    built = builder.build(Recipe(transforms=(Step("same"),)))
    assert scales(built)["renamed"] == scales(plain)["relu1"]


def test_the_same_recipe_gives_the_same_numbers_whatever_came_before(tmp_path: Path) -> None:
    builders = [RecipeBuilder(loaded(conv_net(), tmp_path), Images(), TARGET) for _ in range(2)]
    builders[0].build(Recipe(method="mse", rules=(Rule("node", ("Conv1",), Precision("s16")),)))
    assert scales(builders[0].build(Recipe(method="mse"))) == scales(builders[1].build(Recipe(method="mse")))


def test_single_tensors_have_methods_of_their_own(tmp_path: Path) -> None:
    builder = RecipeBuilder(loaded(conv_net(), tmp_path), Images(), TARGET)
    plain, one = builder.build(Recipe()), builder.build(Recipe(tensor_methods=(("relu1", "mse"),)))
    other = builder.build(Recipe(method="mse"))
    changed = {name for name, scale in scales(one).items() if scale != scales(plain)[name]}
    assert changed <= {"relu1", *(each.name for each in plain.quantized.quantizers if each.kind == "bias")}
    assert scales(one)["relu1"] == scales(other)["relu1"] != scales(plain)["relu1"]
    with pytest.raises(BadInput, match="No calibration method finds a range for the tensor 'relu3'"):
        builder.build(Recipe(tensor_methods=(("relu3", "mse"),)))
    # What a rule leaves in float needs no range.
    builder.build(
        Recipe(tensor_methods=(("image", "mse"),), rules=(Rule("node", ("Conv1",), Precision("float")),))
    )


def test_the_best_methods_are_those_with_the_least_error(tmp_path: Path) -> None:
    builder = RecipeBuilder(loaded(conv_net(), tmp_path), Images(), TARGET)
    found = dict(builder.best_methods(Recipe()))
    assert set(found.values()) <= {"percentile", "mse", "entropy", "ifmr", "hfmg"}
    assert builder.best_methods(Recipe(tensor_methods=())) == tuple(sorted(found.items()))


def test_variations_are_what_the_target_allows(tmp_path: Path) -> None:
    model = loaded(residual(), tmp_path)
    able = replace(TARGET, weight_axes={}, weight_axes_possible={"Conv": 0})
    assert possible_variations(TARGET, model) == ("shared_scale:Add",)
    assert possible_variations(able, model) == ("per_channel", "shared_scale:Add")
    assert varied_target(able, ["per_channel"]).weight_axes == {"Conv": 0}
    assert "Add" in varied_target(TARGET, ["shared_scale:Add"]).shared_scale
    with pytest.raises(BadInput, match="does not allow the variation 'per_channel'"):
        varied_target(TARGET, ["per_channel"])
    with pytest.raises(BadInput, match="has no integer version of 'Loop'"):
        varied_target(TARGET, ["shared_scale:Loop"])


def test_per_channel_scales_make_weights_finer(tmp_path: Path) -> None:
    able = replace(TARGET, weight_axes={}, weight_axes_possible={"Conv": 0, "Gemm": 1})
    builder = RecipeBuilder(loaded(conv_net(), tmp_path), Images(), able)
    plain, fine = builder.build(Recipe()), builder.build(Recipe(variations=("per_channel",)))
    assert len(scales(plain)["w1"]) == 1
    assert len(scales(fine)["w1"]) == 4
    assert max(scales(fine)["w1"]) == pytest.approx(scales(plain)["w1"][0])
