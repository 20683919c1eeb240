"""The rule that tells local from distributed losses."""

from roundoff.analysis.layers.attribution import OwnError
from roundoff.analysis.layers.verdict import Contribution, judge, judge_outputs
from roundoff.core.layer_scores import LayerRow, LayerScore
from roundoff.metrics.thresholds import load_profile

DEFAULT = load_profile("default")


def output(sqnr_db: float, *, cosine: float | None = None, name: str = "y") -> LayerRow:
    right = cosine if cosine is not None else 1 - 10 ** (-sqnr_db / 10) / 2
    score = LayerScore("ok", cosine=right, sqnr_db=sqnr_db, mse=1.0)
    return LayerRow(0, name, "Conv", name, name, (1,), "float32", "u8", True, 1, accumulated=score)


def unit(name: str, share: float, own_db: float, channel_db: float | None = None) -> Contribution:
    ratio = 10 ** (-own_db / 10)
    channel = ratio if channel_db is None else 10 ** (-channel_db / 10)
    return Contribution(name, "Conv", name, OwnError(ratio, ratio, channel, "rounding", None, None), share, 256)


def healthy(count: int, share: float) -> list[Contribution]:
    return [unit(f"u{index}", share / count, 38 + index % 5) for index in range(count)]


def test_one_bad_unit_makes_it_local() -> None:
    verdict = judge([output(9)], [*healthy(10, 0.1), unit("bad", 0.9, 9)], DEFAULT)
    assert (verdict.kind, [each.node for each in verdict.culprits]) == ("local", ["bad"])
    assert verdict.share == 0.9


def test_a_unit_whose_energy_is_in_one_channel_stands_out_by_its_median_channel() -> None:
    verdict = judge([output(5)], [*healthy(10, 0.2), unit("outlier", 0.8, 39, channel_db=8)], DEFAULT)
    assert [each.node for each in verdict.culprits] == ["outlier"]


def test_equal_units_are_distributed_even_when_the_last_seem_to_do_most() -> None:
    shares = [0.3, 0.25, 0.15, 0.1, 0.1, 0.05, 0.05]
    verdict = judge([output(2)], [unit(f"u{i}", share, 12) for i, share in enumerate(shares)], DEFAULT)
    assert (verdict.kind, verdict.culprits) == ("distributed", ())
    assert (verdict.contributors, verdict.half) == (7, 2)


def test_good_outputs_accuse_nobody() -> None:
    verdict = judge([output(35)], [*healthy(8, 0.3), unit("worst", 0.7, 20)], DEFAULT)
    assert (verdict.kind, verdict.culprits) == ("fine", ())


def test_outputs_that_pass_but_lost_something_to_one_unit_name_it() -> None:
    verdict = judge([output(22)], [*healthy(8, 0.2), unit("worst", 0.8, 20)], DEFAULT)
    assert verdict.agrees
    assert [each.node for each in verdict.culprits] == ["worst"]


def test_outputs_that_pass_do_not_accuse_a_unit_that_is_a_little_worse() -> None:
    verdict = judge([output(24)], [*healthy(8, 0.3), unit("worst", 0.7, 32)], DEFAULT)
    assert (verdict.kind, verdict.culprits) == ("fine", ())


def test_outputs_that_pass_with_little_to_spare_are_called_distributed() -> None:
    verdict = judge([output(18, cosine=0.995)], healthy(8, 1.0), DEFAULT)
    assert (verdict.kind, verdict.agrees) == ("distributed", True)


def test_a_unit_that_makes_most_of_a_failure_is_named_although_others_are_as_bad() -> None:
    verdict = judge([output(8)], [unit("head", 0.8, 30), *(unit(f"u{i}", 0.05, 30) for i in range(4))], DEFAULT)
    assert [each.node for each in verdict.culprits] == ["head"]


def test_a_network_of_few_units_is_measured_against_the_usual_level() -> None:
    verdict = judge([output(10)], [unit("bad", 0.95, 10), unit("good", 0.05, 40)], DEFAULT)
    assert [each.node for each in verdict.culprits] == ["bad"]


def test_what_hardly_shows_is_mentioned_when_it_is_ruined() -> None:
    units = [*healthy(10, 0.1), unit("bad", 0.88, 9), unit("dead end", 0.02, 4)]
    verdict = judge([output(9)], units, DEFAULT)
    assert [each.node for each in verdict.culprits] == ["bad"]
    assert verdict.masked == ("dead end",)


def test_a_small_culprit_beside_a_large_one_is_named_only_if_it_is_bad() -> None:
    units = [*healthy(10, 0.04), unit("bad", 0.84, 9), unit("second", 0.06, 15), unit("so so", 0.06, 31)]
    assert [each.node for each in judge([output(9)], units, DEFAULT).culprits] == ["bad", "second"]


def test_outputs_are_listed_worst_first() -> None:
    broken = LayerRow(
        2, "c", "Conv", "c", "c", (1,), "float32", "u8", True, 1, accumulated=LayerScore("shape", "1 against 2")
    )
    names, agrees = judge_outputs([output(40, name="a"), output(12, name="b"), broken], DEFAULT)
    assert (names, agrees) == (("c", "b", "a"), False)


def test_nothing_accumulated_means_nothing_is_known_of_the_outputs() -> None:
    assert judge_outputs([], DEFAULT) == ((), None)
