"""The rule that tells local from distributed losses."""

from collections.abc import Sequence

import roundoff
from roundoff.measure.verdicts import load_profile
from roundoff.messages.message import verbatim
from roundoff.studies.layers.attribution import ChannelLoss, Contribution, OwnError, judge, judge_outputs
from roundoff.studies.layers.experiments import ExperimentOutcome, Proof, Role, UnitQuantizers
from roundoff.studies.layers.result import Experiment, LayerRow, LayerScore, LayerVerdict
from tests.diagnosis.planting import detector

DEFAULT = load_profile("default")


def output(sqnr_db: float, *, cosine: float | None = None, name: str = "y") -> LayerRow:
    right = cosine if cosine is not None else 1 - 10 ** (-sqnr_db / 10) / 2
    score = LayerScore("ok", cosine=right, sqnr_db=sqnr_db, mse=1.0)
    return LayerRow(0, name, "Conv", name, name, (1,), "float32", "u8", True, 1, accumulated=score)


def unit(name: str, share: float, own_db: float, channel_db: float | None = None) -> Contribution:
    ratio = 10 ** (-own_db / 10)
    channel = ratio if channel_db is None else 10 ** (-channel_db / 10)
    own = OwnError(ratio, ratio, channel, "rounding", None, None)
    node = (name, "Conv")
    return Contribution(node, node, name, own, share, 256, UnitQuantizers(result=frozenset({name})))


def healthy(count: int, share: float) -> list[Contribution]:
    return [unit(f"u{index}", share / count, 38 + index % 5) for index in range(count)]


class Proving:
    """Finds that some units are to blame, whatever it is asked to try."""

    def __init__(self, *guilty: str) -> None:
        self.guilty = guilty
        self.orders: list[list[str]] = []
        self.limit = 0

    def __call__(self, orders: Sequence[Sequence[Contribution]], limit: int) -> Proof:
        self.orders, self.limit = [[each.tensor for each in order] for order in orders], limit
        before, after = (ExperimentOutcome(Experiment((), db, 0.9, False), 1.0) for db in (9.0, 30.0))
        roles = {name: Role(inside=False, result=True) for name in self.guilty}
        return Proof(bool(roles), before, after, self.guilty or ("u0",), roles)


def judged(rows: Sequence[LayerRow], units: Sequence[Contribution], proving: Proving) -> LayerVerdict:
    return judge(rows, units, DEFAULT, proving)


def test_what_is_proven_is_local() -> None:
    proving = Proving("bad")
    verdict = judged([output(9)], [*healthy(10, 0.1), unit("bad", 0.9, 9)], proving)
    assert (verdict.kind, [each.node for each in verdict.culprits]) == ("local", ["bad"])
    assert verdict.culprits[0].remedy == ("tensor:bad=float",)
    assert verdict.before is not None
    assert verdict.after is not None
    assert (verdict.before.sqnr_db, verdict.after.sqnr_db) == (9, 30)
    assert proving.orders[0][0] == "bad"
    assert proving.limit == 3


def test_what_cannot_be_proven_is_distributed_whatever_the_estimate_says() -> None:
    verdict = judged([output(9)], [*healthy(10, 0.1), unit("bad", 0.9, 9)], Proving())
    assert (verdict.kind, verdict.culprits, verdict.tried) == ("distributed", (), ("u0",))


def test_units_are_tried_by_their_shares_then_by_what_they_add_themselves() -> None:
    proving = Proving()
    bad = [unit("large", 0.5, 30), unit("worst", 0.1, 3), unit("outlier", 0.1, 39, channel_db=8)]
    judged([output(5)], [*healthy(8, 0.3), *bad], proving)
    assert proving.orders[0][0] == "large"
    assert proving.orders[1] == ["worst", "outlier", "large"]


def test_good_outputs_need_no_proof() -> None:
    proving = Proving("worst")
    verdict = judged([output(35)], [*healthy(8, 0.3), unit("worst", 0.7, 20)], proving)
    assert (verdict.kind, verdict.culprits, proving.orders) == ("fine", (), [])


def test_outputs_that_pass_but_lost_something_to_one_unit_name_it() -> None:
    verdict = judged([output(22)], [*healthy(8, 0.2), unit("worst", 0.8, 20)], Proving("worst"))
    assert verdict.agrees
    assert [each.node for each in verdict.culprits] == ["worst"]
    unproven = judged([output(22)], [*healthy(8, 0.2), unit("worst", 0.8, 20)], Proving())
    assert (unproven.kind, unproven.before) == ("fine", None)


def test_outputs_that_pass_do_not_accuse_a_unit_that_is_a_little_worse() -> None:
    proving = Proving("worst")
    verdict = judged([output(24)], [*healthy(8, 0.3), unit("worst", 0.7, 32)], proving)
    assert (verdict.kind, verdict.culprits, proving.orders) == ("fine", (), [])


def test_outputs_that_pass_with_little_to_spare_are_called_distributed() -> None:
    verdict = judged([output(18, cosine=0.995)], healthy(8, 1.0), Proving())
    assert (verdict.kind, verdict.agrees) == ("distributed", True)


def test_a_few_units_are_a_fifth_and_not_more_than_eight() -> None:
    for count, few in ((1, 1), (4, 1), (10, 2), (14, 3), (200, 8)):
        proving = Proving()
        judged([output(9)], healthy(count, 1.0), proving)
        assert proving.limit == few


def test_what_hardly_shows_is_mentioned_when_it_is_ruined() -> None:
    units = [*healthy(10, 0.1), unit("bad", 0.88, 9), unit("dead end", 0.02, 4)]
    verdict = judged([output(9)], units, Proving("bad"))
    assert [each.node for each in verdict.culprits] == ["bad"]
    assert verdict.masked == ("dead end",)


def contribution(cause: str = "weights") -> Contribution:
    channels = ChannelLoss(worst=5, worst_ratio=1.0, lost=2, count=16, median_ratio=0.01, mean_loss=0.1)
    own = OwnError(0.1, 0.1, 0.01, cause, 0.2, 200, channels, "clipping")  # type: ignore[arg-type]
    parts = UnitQuantizers(weights=frozenset({"w"}), result=frozenset({"q"}))
    return Contribution(("relu", "Relu"), ("conv", "Conv"), "t", own, 0.3, 256, parts)


def test_the_part_that_costs_more_is_the_cause_whatever_it_adds_at_the_tensor() -> None:
    weights = contribution().culprit(Role(inside=True, result=False, costlier="inside"))
    assert (weights.node, weights.introduced.cause, weights.remedy) == ("conv", "weights", ("conv=weight=float",))
    result = contribution().culprit(Role(inside=False, result=True, costlier="result"))
    assert (result.node, result.introduced.cause, result.remedy) == ("relu", "clipping", ("tensor:t=float",))
    assert (result.weighted, result.worst_channel, result.worst_channel_sqnr_db) == ("conv", 5, 0.0)
    assert (result.lost_channels, result.channels) == (2, 16)
    integers = contribution("integer arithmetic").culprit(Role(inside=True, result=True, costlier="result"))
    assert (integers.introduced.cause, integers.remedy) == (
        "integer arithmetic",
        ("conv=weight=float", "tensor:t=float"),
    )


def test_a_unit_that_also_reads_copies_is_put_into_float_as_a_whole() -> None:
    assert UnitQuantizers(weights=frozenset({"w"}), copies=frozenset({"c"})).rule("conv") == "conv=float"


def test_outputs_are_listed_worst_first() -> None:
    broken = LayerRow(
        2,
        "c",
        "Conv",
        "c",
        "c",
        (1,),
        "float32",
        "u8",
        True,
        1,
        accumulated=LayerScore("shape", verbatim("1 against 2")),
    )
    names, agrees = judge_outputs([output(40, name="a"), output(12, name="b"), broken], DEFAULT)
    assert (names, agrees) == (("c", "b", "a"), False)


def test_nothing_accumulated_means_nothing_is_known_of_the_outputs() -> None:
    assert judge_outputs([], DEFAULT) == ((), None)


def test_scores_that_vanish_beside_boxes_are_told_and_blamed() -> None:
    """By the energy of the whole output nothing is lost, and those are accused who round the boxes."""
    model, arrays = detector(640.0)
    found = roundoff.layers(model.proto, data=arrays, target="generic-int8").result.verdict
    assert found.before is not None
    assert found.before.sqnr_db < 1
    assert (found.kind, [each.tensor for each in found.culprits]) == ("local", ["joined"])
