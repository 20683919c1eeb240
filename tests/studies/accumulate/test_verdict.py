"""What curves say."""

import math
from collections.abc import Sequence

import pytest

from roundoff.core.tensors import NodeInfo, Topology
from roundoff.studies.accumulate.result import AccumulationVerdict, CurveNode, Dominance, MeasuredCurve, Split
from roundoff.studies.accumulate.study import judge

Levels = Sequence[float | None]


def curve(levels: Levels) -> MeasuredCurve:
    """Of these signal-to-noise ratios; the metric does not matter."""
    some = tuple(levels)
    return MeasuredCurve("", (), some, some, some, ("",) * len(some), some)


def verdict_on(
    base: Levels, weights: Levels | None = None, activations: Levels | None = None
) -> AccumulationVerdict:
    """A chain whose last node is the output."""
    count = len(base)
    nodes = [CurveNode(at, f"n{at}", "Conv", f"t{at}", output=at == count - 1) for at in range(count)]
    infos = [NodeInfo(f"n{at}", "Conv", (f"t{at - 1}" if at else "x",), (f"t{at}",)) for at in range(count)]
    network = Topology(tuple(infos), ("x",), (f"t{count - 1}",))
    kinds = None if weights is None or activations is None else (curve(weights), curve(activations))
    return judge(nodes, [curve(base)], network, kinds)


@pytest.mark.parametrize(
    ("at_output", "dominance"),
    [
        ((12.0, 12.5, 30.0), "weights"),
        ((12.0, 30.0, 12.5), "activations"),
        ((25.0, 28.0, 28.0), "both"),
        ((25.0, 26.0, 31.9), "both"),
        ((25.0, 26.0, 32.1), "weights"),
        ((25.0, 25.0, math.inf), "weights"),
        ((1.0, -1.0, 6.0), "both"),  # either of them alone spoils the outputs
        ((1.0, -1.0, 11.0), "weights"),
        ((-math.inf, -math.inf, 30.0), "weights"),
        ((math.inf, math.inf, math.inf), "neither"),
        ((61.0, 62.0, 80.0), "neither"),
    ],
)
def test_who_dominates(at_output: tuple[float, float, float], dominance: Dominance) -> None:
    everything, weights, activations = ([value] * 5 for value in at_output)
    found = verdict_on([*everything], [*weights], [*activations])
    assert found.dominance == dominance
    assert found.output == "t4"


def test_places_before_the_output_may_contradict_it() -> None:
    found = verdict_on([20.0] * 4 + [25.0], [20.0] * 4 + [40.0], [40.0] * 4 + [25.0])
    assert found.dominance == "both"
    assert (found.near_output, found.near_places) == (Split(20.0, 40.0, 20.0), 3)


def test_without_both_curves_nothing_is_said_of_dominance() -> None:
    found = verdict_on([30.0, 25.0])
    assert (found.dominance, found.at_output, found.near_output) == (None, None, None)
    assert found.output == "t1"


def test_weights_that_are_the_values_of_their_codes_cannot_be_judged() -> None:
    found = verdict_on([20.0] * 4, [math.inf] * 4, [20.0] * 4)
    assert (found.dominance, found.exact_weights) == (None, True)
    assert found.at_output == Split(math.inf, 20.0, 20.0)
    lossless = verdict_on([math.inf] * 4, [math.inf] * 4, [math.inf] * 4)
    assert (lossless.dominance, lossless.exact_weights) == ("neither", True)


def test_together_they_may_do_more_than_both_alone() -> None:
    assert verdict_on([10.0] * 4, [30.0] * 4, [30.0] * 4).together
    assert not verdict_on([26.0] * 4, [30.0] * 4, [30.0] * 4).together


def test_where_the_base_line_falls_and_whether_the_outputs_recover() -> None:
    found = verdict_on([40.0, 35.0, 19.0, 25.0])
    assert (found.falls_at, found.recovers) == (2, True)
    assert verdict_on([40.0, 35.0, 19.0, 15.0]).recovers is False
    assert verdict_on([40.0, 35.0, 30.0]).falls_at is None


def test_jumps_are_against_what_comes_in() -> None:
    found = verdict_on([45.0, 38.0, 20.0, 18.0, 3.0])
    assert [jump.order for jump in found.jumps] == [2, 4]
    assert (found.jumps[0].before_db, found.jumps[0].after_db) == (38.0, 20.0)


def test_a_jump_at_the_first_node_comes_from_the_inputs() -> None:
    found = verdict_on([12.0, 11.0, None, 10.0])
    assert [(jump.order, jump.before_db) for jump in found.jumps] == [(0, None)]


def test_jumps_look_through_nodes_that_are_no_places_and_at_the_worst_input() -> None:
    """a and b are places, c joins them and is none, d is one again."""
    nodes = [CurveNode(0, "a", "Conv", "a", False), CurveNode(1, "b", "Conv", "b", False)]
    nodes.append(CurveNode(2, "d", "Conv", "d", True))
    infos = (
        NodeInfo("a", "Conv", ("x",), ("a",)),
        NodeInfo("b", "Conv", ("x",), ("b",)),
        NodeInfo("c", "Add", ("a", "b"), ("c",)),
        NodeInfo("d", "Conv", ("c",), ("d",)),
    )
    network = Topology(infos, ("x",), ("d",))
    assert [jump.order for jump in judge(nodes, [curve([35.0, 15.0, 12.0])], network, None).jumps] == [1]
    (jump,) = judge(nodes, [curve([35.0, 30.0, 12.0])], network, None).jumps
    assert (jump.order, jump.before_db) == (2, 30.0)
