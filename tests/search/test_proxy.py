"""What quantized networks promise: outputs with less noise, on samples that are not those of the evaluation."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.core.plan import Precision, Recipe, Rule, Step
from roundoff.graph.nodes import make_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from roundoff.search.cost import FreeOption
from roundoff.search.problem import ProxyScore
from tests.models import conv_net, loaded
from tests.search.synthetic import FakeJudge, FakeProblem, FakeWorkbench, search

IMAGES = np.random.default_rng(0).standard_normal((40, 3, 8, 8)).astype(np.float32)


def test_more_bits_promise_more(tmp_path: Path) -> None:
    samples = ArraySamples({"image": IMAGES})
    builder = RecipeBuilder(loaded(conv_net(), tmp_path), samples, load_target("generic-int8"))
    promise = ProxyScore(builder.prepared.model, samples)
    wide = Recipe(rules=(Rule("node", ("*",), Precision("u16", "s16", "u16")),))
    narrow_db, wide_db = (promise.decibels(builder.build(recipe).quantized) for recipe in (Recipe(), wide))
    assert narrow_db is not None
    assert wide_db is not None
    assert 10 < narrow_db < wide_db - 20
    # Sixteen of forty.
    assert promise.runs == 16


def test_class_numbers_that_are_all_equal_promise_the_most(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("ArgMax", ["x"], ["y"], name="ArgMax", axis=1)],
        "classes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, 1])],
    )
    model = loaded(make_model(graph), tmp_path)
    samples = ArraySamples({"x": IMAGES[:4, :, 0, 0]})
    assert ProxyScore(model, samples).decibels(QuantizedModel(model, ())) == 150


def test_options_that_promise_nothing_are_not_tried() -> None:
    def accuracy(recipe: Recipe) -> float:
        return 1.0 if "good" in recipe.variations else 0.5

    for hopeless, tried in (((), 3), (("bad",), 2)):
        problem = FakeProblem(tuple("abc"), words=("bad", "good"), hopeless=hopeless)
        found = search(problem, FakeWorkbench(accuracy, FakeJudge()))
        assert found.answer.recipe.variations == ("good",)
        assert len(found.trials) == tried


@dataclass(frozen=True)
class Promising(FakeProblem):
    """Calibration methods and a correction that promise decibels."""

    decibels: tuple[tuple[str, float], ...] = ()

    def free_options(self) -> tuple[FreeOption, ...]:
        return tuple(
            FreeOption("correction" if name == "bias_correct" else "method", name) for name, _ in self.decibels
        )

    def with_option(self, recipe: Recipe, option: FreeOption) -> Recipe:
        if option.kind == "method":
            return replace(recipe, method=option.name)
        return replace(recipe, corrections=(Step(option.name),))

    def proxy_db(self, recipe: Recipe) -> float | None:
        known = dict(self.decibels)
        return known.get(recipe.method, 0.0) + sum(known[step.name] for step in recipe.corrections)

    def worth_trying(self, recipe: Recipe, other: Recipe) -> bool:
        ours, theirs = self.proxy_db(recipe), self.proxy_db(other)
        assert ours is not None
        assert theirs is not None
        return ours > theirs


def test_the_quick_lever_that_promises_most_comes_first() -> None:
    problem = Promising(tuple("abc"), decibels=(("a", 1.0), ("b", 2.0), ("c", -1.0), ("bias_correct", 9.0)))
    tried: list[Recipe] = []

    def accuracy(recipe: Recipe) -> float:
        tried.append(recipe)
        return 0.5 + 0.2 * bool(recipe.method) + 0.2 * bool(recipe.corrections)

    search(replace(problem, precisions=()), FakeWorkbench(accuracy, FakeJudge()))
    first = list(dict.fromkeys(tried))
    # Of the methods the best alone, on top of what is better still.
    assert [(recipe.method, len(recipe.corrections)) for recipe in first] == [("", 0), ("", 1), ("b", 1)]


@dataclass(frozen=True)
class Drowned(FakeProblem):
    """A network whose outputs are all noise, a quick correction, and transforms, some of which add operations."""

    plain_db: float = 0.0
    dear: tuple[str, ...] = ()
    looked_at: list[str] = field(default_factory=list)

    def free_options(self) -> tuple[FreeOption, ...]:
        return (
            FreeOption("correction", "bias_correct"),
            FreeOption("transform", "equalize"),
            FreeOption("transform", "smooth"),
        )

    def with_option(self, recipe: Recipe, option: FreeOption) -> Recipe:
        if option.kind == "transform":
            return replace(recipe, transforms=(*recipe.transforms, Step(option.name)))
        return replace(recipe, corrections=(Step(option.name),))

    def proxy_db(self, recipe: Recipe) -> float | None:
        names = [step.name for step in (*recipe.transforms, *recipe.corrections)]
        self.looked_at.append("+".join(names))
        return self.plain_db + len(names)

    def worth_trying(self, recipe: Recipe, other: Recipe) -> bool:
        return (self.proxy_db(recipe) or 0.0) > (self.proxy_db(other) or 0.0)

    def cost(self, recipe: Recipe) -> float:
        return 1.0 + sum(step.name in self.dear for step in recipe.transforms)


@pytest.mark.parametrize(
    ("plain_db", "dear", "first"),
    [(0.0, (), "equalize"), (0.0, ("equalize",), "smooth"), (30.0, (), "bias_correct")],
)
def test_lost_outputs_are_first_helped_by_what_shares_scales_anew(
    plain_db: float, dear: tuple[str, ...], first: str
) -> None:
    problem = Drowned(tuple("abc"), plain_db=plain_db, dear=dear)
    found = search(problem, FakeWorkbench(lambda recipe: 1.0 if recipe != problem.base else 0.5, FakeJudge()))
    assert [step.name for step in (*found.answer.recipe.transforms, *found.answer.recipe.corrections)] == [first]
    # Nothing else was built: neither what comes behind it, nor what is quick but of no use here.
    assert set(problem.looked_at) == {"", first}
