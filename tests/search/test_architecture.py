"""What a transformer needs is tried as a whole, right after the plain recipe."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.plan import Recipe
from roundoff.core.tensors import Array
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from roundoff.run.capture import read_feed
from roundoff.search.cost import CostModel, without_options
from roundoff.search.problem import ModelProblem, Ranker
from roundoff.search.store import TrialJournal
from tests.graph.test_output_parts import detector
from tests.graph.transformer_nets import Form, feeds, transformer
from tests.quantize.transforms.test_clamp_mask import Given
from tests.search.synthetic import WIDE, FakeJudge, FakeProblem, FakeWorkbench, search


@dataclass(frozen=True)
class Stream(FakeProblem):
    """Two nodes of which neither gains anything without the other."""

    def with_wide_stream(self, recipe: Recipe) -> Recipe | None:
        return self.raised(recipe, ("y", "z"), WIDE)

    def with_smooth_norms(self, recipe: Recipe) -> Recipe | None:
        return replace(recipe, variations=("smooth",))


def test_parts_that_gain_nothing_alone_are_tried_together() -> None:
    problem = Stream(("x", "y", "z"))
    tried: list[Recipe] = []

    def accuracy(recipe: Recipe) -> float:
        tried.append(recipe)
        return 1.0 if {"y", "z"} <= set(problem.raised_nodes(recipe)) else 0.2

    found = search(problem, FakeWorkbench(accuracy, FakeJudge()))
    first = list(dict.fromkeys(tried))
    assert set(problem.raised_nodes(first[1])) == {"y", "z"}
    assert found.answer.recipe == first[1]


def test_smoothing_comes_next_where_that_is_not_enough() -> None:
    problem = Stream(("x", "y", "z"))
    tried: list[Recipe] = []

    def accuracy(recipe: Recipe) -> float:
        tried.append(recipe)
        wide = {"y", "z"} <= set(problem.raised_nodes(recipe))
        return 0.2 + 0.5 * wide + 0.3 * (wide and "smooth" in recipe.variations)

    found = search(problem, FakeWorkbench(accuracy, FakeJudge()))
    first = list(dict.fromkeys(tried))
    assert first[2].variations == ("smooth",)
    assert found.answer.recipe == first[2]


@dataclass(frozen=True)
class Whole(Stream):
    """Every node that is left out adds the same noise."""

    def with_wide_stream(self, recipe: Recipe) -> Recipe | None:
        return self.raised(recipe, self.nodes, WIDE)

    def proxy_db(self, recipe: Recipe) -> float | None:
        return 40.0 - 0.4 * (len(self.nodes) - len(self.raised_nodes(recipe)))


def test_a_stream_is_not_given_back_bit_by_bit() -> None:
    # The goal is met with a quarter of the nodes, on these samples: what outputs lose is held against the whole.
    problem = Whole(tuple(f"n{at:02}" for at in range(16)))

    def accuracy(recipe: Recipe) -> float:
        return 1.0 if len(problem.raised_nodes(recipe)) >= 4 else 0.2

    found = search(problem, FakeWorkbench(accuracy, FakeJudge()))
    assert len(problem.raised_nodes(found.answer.recipe)) == 14
    assert len(found.trials) == 3


def _problem(form: Form, target: str) -> tuple[ModelProblem, list[dict[str, Array]]]:
    model = transformer(form)
    given = feeds(model, 4)
    samples = Given(given)
    builder = RecipeBuilder(model, samples, load_target(target))
    prepared = builder.prepared.model
    chip = load_target(target)
    problem = ModelProblem(
        builder,
        builder.plain(Recipe()),
        costs=CostModel(prepared, read_feed(prepared, samples, 0), chip.costs),
        ranker=Ranker(samples),
        journal=TrialJournal(None, {}),
    )
    return problem, given


def test_the_stream_is_additions_norms_and_embeddings() -> None:
    problem, _ = _problem(Form("where"), "generic-int8")
    wide = problem.with_wide_stream(problem.base)
    assert wide is not None
    # Two layers with two additions and two norms each; words and positions, and their norm.
    assert len(problem.raised_nodes(wide)) == 2 * 4 + 2
    assert 1 < problem.cost(wide) < 1.6
    smoothed = problem.with_smooth_norms(wide)
    assert smoothed is not None
    # One product is inserted for each tensor that queries, keys and values, or the wide layer, read.
    assert len(problem.raised_nodes(smoothed)) == len(problem.raised_nodes(wide)) + 4
    # Given back, smoothing takes along what was said of the products that it had inserted.
    assert wide in list(without_options(smoothed, problem.base, problem.nodes))


def test_of_a_norm_that_is_computed_as_one_only_what_reads_the_stream_is_named() -> None:
    problem, _ = _problem(Form("where", norm="spelled"), "generic-int8")
    wide = problem.with_wide_stream(problem.base)
    assert wide is not None
    # The mean and the difference read what is normalized; the last norm ends in the output of the network.
    assert len(problem.raised_nodes(wide)) == 5 + 5 * 2 + 1


def test_a_chip_without_more_bits_has_no_wide_stream() -> None:
    problem, _ = _problem(Form("where"), "generic-int8")
    assert problem.with_wide_stream(problem.base) is not None
    narrow, _ = _problem(Form("where"), "tensorrt-like")
    wide = [dtype for dtype in load_target("tensorrt-like").activations if int(dtype[1:]) > 8]
    assert (narrow.with_wide_stream(narrow.base) is None) == (not wide)


def test_what_joins_boxes_and_scores_leads_the_ranking(tmp_path: Path) -> None:
    model, rng = detector(tmp_path / "m.onnx"), np.random.default_rng(2)
    samples = Given([{"image": rng.normal(size=(1, 3, 4, 4)).astype(np.float32)} for _ in range(4)])
    quantized = RecipeBuilder(model, samples, load_target("generic-int8")).build(Recipe()).quantized
    operators = {node.name: node.op_type for node in quantized.float_model.proto.graph.node}
    first = Ranker(samples).rank(quantized).nodes[:2]
    # One scale for 640 pixels leaves one code for scores; of both together nothing shows that.
    assert {operators[name] for name in first} <= {"Concat", "Reshape", "Transpose", "Mul"}
