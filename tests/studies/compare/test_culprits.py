"""Culprits and victims on small graphs."""

import itertools

from roundoff.core.tensors import NodeInfo, Topology
from roundoff.studies.compare.coverage import compared_outputs, roles

# x -> a -> b --> add -> y
#  \-> c --------/
GRAPH = Topology(
    nodes=(
        NodeInfo("A", "Conv", ("x",), ("a",)),
        NodeInfo("B", "Relu", ("a",), ("b",)),
        NodeInfo("C", "Conv", ("x",), ("c",)),
        NodeInfo("Add", "Add", ("b", "c"), ("y",)),
    ),
    inputs=("x",),
    outputs=("y",),
)


def test_the_error_starts_where_the_inputs_are_right() -> None:
    found = roles(GRAPH, {"x": False, "a": False, "b": True, "c": False, "y": True})
    assert found == {"b": "introduces", "y": "victim"}


def test_two_branches_can_both_be_guilty() -> None:
    found = roles(GRAPH, {"a": True, "b": True, "c": True, "y": True})
    assert found == {"a": "introduces", "b": "victim", "c": "introduces", "y": "victim"}


def test_what_was_not_compared_passes_suspicion_on() -> None:
    assert roles(GRAPH, {"a": True, "y": True}) == {"a": "introduces", "y": "victim"}


def test_a_tensor_that_is_right_again_clears_its_successors() -> None:
    assert roles(GRAPH, {"a": True, "b": False, "c": False, "y": True}) == {"a": "introduces", "y": "introduces"}


def test_a_wrong_input_makes_everyone_a_victim() -> None:
    assert roles(GRAPH, {"x": True, "a": True}) == {"x": "introduces", "a": "victim"}


def test_who_hands_on_an_error_just_within_a_limit_does_not_introduce_it() -> None:
    failed = {"a": False, "b": True, "c": False, "y": True}
    assert roles(GRAPH, failed, {"a": 0.149, "b": 0.151, "y": 0.16})["b"] == "victim"
    assert roles(GRAPH, failed, {"a": 0.05, "b": 0.151, "y": 0.16})["b"] == "introduces"
    # NaN has no error that could be compared.
    assert roles(GRAPH, failed, {"a": 0.149})["b"] == "introduces"


def test_behind_a_culprit_an_error_that_was_enlarged_is_inherited() -> None:
    # x -> a -> b -> c -> y: b is back within its limit, and c enlarges what it reads of it.
    names = ("x", "a", "b", "c", "y")
    chain = Topology(
        tuple(NodeInfo(out, "Relu", (into,), (out,)) for into, out in itertools.pairwise(names)),
        ("x",),
        ("y",),
    )
    failed = {"a": True, "b": False, "c": True}
    assert roles(chain, failed, {"a": 0.25, "b": 0.139, "c": 0.24}) == {"a": "introduces", "c": "victim"}
    # Far more than that is an error of its own, and so is as much where nobody in front of it is wrong.
    assert roles(chain, failed, {"a": 0.25, "b": 0.05, "c": 0.24}) == {"a": "introduces", "c": "introduces"}
    assert roles(chain, {**failed, "a": False}, {"a": 0.139, "b": 0.139, "c": 0.24}) == {"c": "introduces"}


def test_an_output_is_seen_through_what_only_forwards_it() -> None:
    nodes = (NodeInfo("P", "GlobalAveragePool", ("x",), ("p",)), NodeInfo("F", "Flatten", ("p",), ("y",)))
    graph = Topology(nodes, ("x",), ("y",))
    assert compared_outputs(graph, {"x", "p"}) == {"y": "p"}
    assert compared_outputs(graph, {"x"}) == {"y": None}
    assert compared_outputs(GRAPH, {"b", "c"}) == {"y": None}
