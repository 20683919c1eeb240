"""Fast ways are used where they are shown to compute the same, and only there."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, cut_model
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.run.block_chain import OpenedChain, agreement_db, open_chain, plain_outputs, takes_batches
from tests.models import conv_net, loaded, random_feed, value, with_if, wrapped

Feeds = Sequence[Mapping[str, Array]]


def opened(model: Model, feeds: Feeds, **options: Any) -> OpenedChain:
    everything = values(model, {name: array.shape for name, array in feeds[0].items()})
    cutting = cut_model(model, everything, wanted=outputs(model), blocks=3)
    models = [BlockModels(model, everything).make(block) for block in cutting.blocks]
    return open_chain(models, cutting, feeds, lambda: plain_outputs(model, cutting.wanted, feeds), **options)


def images(count: int = 3) -> Feeds:
    return [random_feed({"image": (1, 3, 8, 8)}, seed=at) for at in range(count)]


@pytest.mark.parametrize("batch", [1, "N"])
def test_fused_and_together_where_that_is_the_same(batch: int | str, tmp_path: Path) -> None:
    found = opened(loaded(conv_net(batch), tmp_path), images())
    assert found.fused
    # What the file says of the batch does not matter: it was tried.
    assert found.together
    assert found.agreement_db > 90
    assert found.notes == ()


def test_plain_kernels_give_the_very_same(tmp_path: Path) -> None:
    found = opened(loaded(conv_net("N"), tmp_path), images(), fuse_above_db=None)
    assert (found.fused, found.together, found.agreement_db) == (False, True, math.inf)


def test_fused_kernels_that_do_not_agree_are_not_used(tmp_path: Path) -> None:
    found = opened(loaded(conv_net("N"), tmp_path), images(), fuse_above_db=500)
    if not math.isinf(opened(loaded(conv_net("N"), tmp_path), images()).agreement_db):
        assert not found.fused
        assert "agree with plain ones only to 1" in str(found.notes[0])
    assert found.together


def test_one_sample_shows_nothing_of_batches(tmp_path: Path) -> None:
    assert not opened(loaded(conv_net("N"), tmp_path), images(1)).together


def shaped(nodes: list[Any], inputs: Sequence[Any], folder: Path, names: Sequence[str]) -> Model:
    return loaded(wrapped(nodes, inputs, [value(name) for name in names]), folder)


def test_samples_that_see_each_other_are_run_alone(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], name="top", keepdims=0),
        helper.make_node("Div", ["x", "top"], ["y"], name="share"),
    ]
    model = shaped(nodes, [value("x", ("N", 4))], tmp_path, ["y"])
    assert not opened(model, [random_feed({"x": (1, 4)}, seed=at) for at in range(3)]).together


def test_an_output_without_samples_is_run_alone(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMax", ["x"], ["y"], name="top", keepdims=0)]
    model = shaped(nodes, [value("x", ("N", 4))], tmp_path, ["y"])
    assert not opened(model, [random_feed({"x": (1, 4)}, seed=at) for at in range(3)]).together


def test_a_model_that_cannot_take_more_is_run_alone(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["shape"], name="shape", value_ints=[2, 2]),
        helper.make_node("Reshape", ["x", "shape"], ["y"], name="fold"),
    ]
    model = shaped(nodes, [value("x", (1, 4))], tmp_path, ["y"])
    assert not opened(model, [random_feed({"x": (1, 4)}, seed=at) for at in range(3)]).together


def test_a_model_that_does_not_repeat_itself_is_reported(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["noise"], name="noise"),
        helper.make_node("Add", ["x", "noise"], ["y"], name="add"),
    ]
    found = opened(shaped(nodes, [value("x", (1, 4))], tmp_path, ["y"]), [random_feed({"x": (1, 4)})])
    assert not found.fused
    assert "this model gives two results" in str(found.notes[-1])


def test_subgraphs_and_shapes_made_of_values_forbid_batches(tmp_path: Path) -> None:
    assert takes_batches(loaded(conv_net(), tmp_path))
    assert not takes_batches(loaded(with_if(), tmp_path))
    nodes = [helper.make_node("NonZero", ["x"], ["y"], name="where")]
    assert not takes_batches(shaped(nodes, [value("x", (1, 4))], tmp_path, ["y"]))


def test_agreement_is_signal_over_noise() -> None:
    x = np.array([3.0, 4.0], np.float32)
    assert agreement_db(x, x + np.float32(0.05)) == pytest.approx(10 * math.log10(25 / 0.005), abs=1e-4)
    assert agreement_db(x, x.copy()) == math.inf
    assert agreement_db(x, x[:1]) == -math.inf
    assert agreement_db(np.array([1, 2]), np.array([1, 3])) == -math.inf
    assert agreement_db(0 * x, x) == -math.inf
    strange = np.array([np.nan, np.inf, 1.0])
    assert agreement_db(strange, strange) == math.inf
    assert agreement_db(strange, strange + np.array([0, 0, 0.1])) == pytest.approx(20)
    assert agreement_db(strange, np.array([np.nan, -np.inf, 1.0])) == -math.inf
    assert agreement_db(strange, np.array([1.0, np.inf, 1.0])) == -math.inf
