"""Names that differ in spelling only."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.align.alignment import align, pair_names
from roundoff.align.names import SPELLINGS
from roundoff.core.tensors import TensorInfo
from tests.sources import MemorySource


def matched(
    reference: Mapping[str, tuple[int, ...]],
    candidate: Mapping[str, tuple[int, ...]],
    *,
    nodes: tuple[dict[str, str], dict[str, str]] = ({}, {}),
) -> dict[str, str]:
    # An exact pair, so that a test without any other match does not end in an error.
    ours, theirs = (
        MemorySource({name: np.zeros(shape) for name, shape in {**side, "always": (1,)}.items()}, nodes=named)
        for side, named in zip((reference, candidate), nodes, strict=True)
    )
    pairing = align(ours, theirs, by_value=False)
    return {pair.reference: pair.candidate for pair in pairing.pairs if pair.reference != "always"}


SHAPE = (1, 8, 4, 4)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("/layer1/Conv", "layer1_Conv"),
        ("layer1.conv", "Layer1/Conv"),
        ("block 1-conv:a", "block_1_conv_a"),
        ("/conv1/Conv_output_0", "conv1_Conv"),
        ("conv1:0", "conv1"),
        ("conv1", "conv1.0"),
        ("conv1", "conv1.0.1698765432109876"),
        ("/conv1/Conv_output_0", "conv1_Conv_output_0.0.1698765432109876.npy"),
        ("split:1", "split.1.1698765432109876"),
        ("split_output_1", "split:1"),
        ("conv1", "Conv2D.conv1.3.7.1698765432109876.output.0"),
        ("fire2/relu", "fire2#relu.npy"),
        ("Größe/Conv", "GRÖSSE_conv"),
    ],
)
def test_spellings_of_one_name(ours: str, theirs: str) -> None:
    assert matched({ours: SHAPE}, {theirs: SHAPE}) == {ours: theirs}
    assert matched({theirs: SHAPE}, {ours: SHAPE}) == {theirs: ours}


def test_other_names_stay_apart() -> None:
    assert matched({"conv1": SHAPE, "split:1": SHAPE}, {"conv_1": SHAPE, "split:2": SHAPE, "///": SHAPE}) == {}


def test_the_closest_spelling_wins() -> None:
    reference = {"layer.0": SHAPE, "layer": SHAPE, "a/b": SHAPE}
    candidate = {"layer_0": SHAPE, "Layer": SHAPE, "a_b": SHAPE}
    assert matched(reference, candidate) == {"layer.0": "layer_0", "layer": "Layer", "a/b": "a_b"}


def test_output_indices_all_over_a_side_are_read_as_such() -> None:
    reference = {"conv": SHAPE, "conv_0": SHAPE, "conv_1": SHAPE}
    candidate = {"conv:0": SHAPE, "conv_0:0": SHAPE, "conv_1:0": SHAPE}
    assert matched(reference, candidate) == dict(zip(reference, candidate, strict=True))


def test_words_of_a_tool_in_front_of_all_names_are_seen_through() -> None:
    ours = dict.fromkeys(("conv1", "block/conv1", "block/relu", "fc"), SHAPE)
    theirs = {f"subgraph0_{kind}_{name.replace('/', '.')}": name for kind, name in zip("abcd", ours, strict=True)}
    found = matched(ours, dict.fromkeys(theirs, SHAPE))
    assert found == {name: theirs_name for theirs_name, name in theirs.items()}
    assert matched(dict.fromkeys(theirs, SHAPE), ours) == theirs
    # One among many is no rule.
    assert matched({"conv1": SHAPE}, {"x_conv1": SHAPE, "y": SHAPE, "z": SHAPE}) == {}


def test_the_first_output_may_be_a_number_behind_a_line() -> None:
    assert matched({"conv": SHAPE, "relu": SHAPE}, {"conv_0": SHAPE, "relu_0": SHAPE}) == {
        "conv": "conv_0",
        "relu": "relu_0",
    }


def test_a_key_claimed_twice_is_not_used() -> None:
    assert matched({"a/b": SHAPE}, {"a_b": SHAPE, "a.b": SHAPE}) == {}


def test_a_key_claimed_twice_is_resolved_by_shape() -> None:
    found = matched({"a/b": (1, 3, 4, 5), "a b": (7,)}, {"a_b": (1, 4, 5, 3), "a.b": (1, 7)})
    assert found == {"a/b": "a_b", "a b": "a.b"}


def test_an_index_is_dropped_only_where_shapes_fit() -> None:
    assert matched({"layer.0": (1, 8)}, {"layer": (5, 5)}) == {}
    assert matched({"layer/x": (1, 8)}, {"layer_x": (5, 5)}) == {"layer/x": "layer_x"}


def test_dumps_named_after_nodes() -> None:
    nodes = {"554": "Conv_0", "555": "Relu_1", "a": "Split_2", "b": "Split_2"}
    reference = dict.fromkeys(nodes, SHAPE)
    candidate = dict.fromkeys(["Conv_0.0.1698765432109876", "relu_1", "B", "Split_2"], SHAPE)
    expected = {
        "554": "Conv_0.0.1698765432109876",
        "555": "relu_1",
        "b": "B",
    }  # which output Split_2 is, is unknown
    assert matched(reference, candidate, nodes=(nodes, {})) == expected
    backwards = matched(candidate, reference, nodes=({}, nodes))
    assert backwards == {theirs: ours for ours, theirs in expected.items()}


def test_kinds_of_operations_in_front_of_names_are_seen_through() -> None:
    model = [
        TensorInfo("conv_out", "float32", SHAPE, node="stage1/conv", op_type="Conv"),
        TensorInfo("50", "float32", SHAPE, node="Conv_50", op_type="Conv"),
        TensorInfo("relu_1.tmp_0", "float32", SHAPE, node="Relu@1", op_type="Relu"),
        TensorInfo("12", "float32", SHAPE, node="", op_type="Add"),
    ]
    files = {
        "Conv_stage1_conv.0.1698765432109876": "conv_out",
        "Conv_Conv_50.0.1698765432109976": "50",
        "Relu_relu_1_tmp_0": "relu_1.tmp_0",
        "Add_12": "",  # the twelfth Add of a tool that counts, most likely
        "MatMul_stage1_conv": "",
    }
    found = pair_names(model, [TensorInfo(name, "float32", SHAPE) for name in files])
    assert {theirs: ours for ours, theirs in found.items()} == {name: own for name, own in files.items() if own}


@given(name=st.text(max_size=30))
def test_keys_are_stable(name: str) -> None:
    """A key is its own key, and separators and case never matter."""
    key = SPELLINGS[0].key(name)
    assert SPELLINGS[0].key(key) == key
    assert SPELLINGS[0].key("/" + name.upper().replace("/", ".")) == SPELLINGS[0].key(name.upper())


def test_spellings_go_from_sure_to_less_sure() -> None:
    assert all(near.confidence >= far.confidence for near, far in pairwise(SPELLINGS))
