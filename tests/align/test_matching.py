"""The stages of matching together."""

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.align.pairing import TensorPair
from roundoff.core.tensors import Array
from roundoff.errors import CannotAlign
from tests.sources import MemorySource


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_identical_names_are_exact_in_the_order_of_the_reference() -> None:
    ours = {name: numbers(3, 4, seed=index) for index, name in enumerate("dcab")}
    pairing = align(MemorySource(ours), MemorySource(dict(sorted(ours.items()))))
    assert pairing.pairs == tuple(TensorPair(name, name) for name in "dcab")


def test_each_stage_takes_what_the_earlier_left() -> None:
    ours = {name: numbers(4, 5, seed=index) for index, name in enumerate(["a", "b", "c/d", "e", "lost"])}
    theirs = {
        "by-alias": numbers(4, 5, seed=99),
        "b": ours["b"],
        "c_d": ours["c/d"],
        "xyz": ours["e"],
        "new": numbers(4, 5, seed=98),
    }
    pairing = align(MemorySource(ours, ordered=False), MemorySource(theirs), aliases={"a": "by-alias"})
    assert [(pair.reference, pair.candidate, pair.how) for pair in pairing.pairs] == [
        ("a", "by-alias", "alias"),
        ("b", "b", "name"),
        ("c/d", "c_d", "normalized"),
        ("e", "xyz", "value"),
    ]
    assert pairing.unmatched_reference == ("lost",)
    assert pairing.unmatched_candidate == ("new",)


def test_pairs_by_name_get_their_layout() -> None:
    ours = {"a": numbers(1, 3, 8, 8), "b": numbers(1, 8), "c": numbers(1, 8), "d": numbers(1, 6, 6)}
    theirs = {
        "a": ours["a"].transpose(0, 2, 3, 1),
        "b": numbers(1, 5),
        "c": ours["c"],
        "d": ours["d"].transpose(0, 2, 1),
    }
    layouts = {pair.reference: pair.layout for pair in align(MemorySource(ours), MemorySource(theirs)).pairs}
    assert layouts["a"] is not None
    assert layouts["a"].name == "NHWC -> NCHW"
    # Nothing explains b; c is equal; d has equal shapes, which the caller looks into when it scores badly.
    assert layouts["b"] is layouts["c"] is layouts["d"] is None


def test_damaged_tensors_match_by_name() -> None:
    ours = MemorySource({"a": numbers(3, 4), "b": numbers(3, 5)}, problems={"a": "truncated"})
    pairing = align(ours, MemorySource({"a": numbers(12), "x": ours.arrays["b"]}))
    assert [(pair.reference, pair.candidate) for pair in pairing.pairs] == [("a", "a"), ("b", "x")]


def test_values_come_from_the_first_common_sample() -> None:
    first, second = (
        {"a": numbers(50), "b": numbers(50, seed=1)},
        {"a": numbers(50, seed=2), "b": numbers(50, seed=3)},
    )
    ours = MemorySource(first, samples=("0", "1"), by_sample={"0": first, "1": second})
    theirs = MemorySource({"x": second["b"], "y": second["a"]}, samples=("1", "2"))
    assert {pair.reference: pair.candidate for pair in align(ours, theirs).pairs} == {"a": "y", "b": "x"}


def test_single_samples_of_any_name_are_one() -> None:
    ours = MemorySource({"a": numbers(50)}, samples=("cat.jpg",))
    assert align(ours, MemorySource({"x": numbers(50)}, samples=("",))).pairs[0].candidate == "x"


def test_nothing_matched_by_name_nor_value() -> None:
    sides = MemorySource({"a": numbers(3)}, label="float"), MemorySource({"x": numbers(7)}, label="board")
    what = (
        "None of the 1 tensors of float could be paired with one of the 1 of board, neither by name nor by value"
    )
    with pytest.raises(CannotAlign, match=what) as caught:
        align(*sides)
    assert "same network run on the same input" in caught.value.fix
    assert "alias file" in caught.value.fix
    assert caught.value.exit_code == 3
    with pytest.raises(CannotAlign, match="board by name") as caught:
        align(*sides, by_value=False)
    assert caught.value.fix.startswith("allow matching by value")


def test_nothing_matched_without_a_common_sample() -> None:
    ours = MemorySource({"a": numbers(50)}, samples=("0", "1"))
    with pytest.raises(CannotAlign, match="no sample in common whose values could be compared") as caught:
        align(ours, MemorySource({"x": numbers(50)}, samples=("2",)))
    assert caught.value.fix.startswith("name the samples alike on both sides")
    # Names still match.
    assert align(ours, MemorySource({"a": numbers(50)}, samples=("2",))).pairs[0].how == "name"


def test_an_empty_side() -> None:
    with pytest.raises(CannotAlign, match="board holds no tensors"):
        align(MemorySource({"a": numbers(3)}), MemorySource({}, label="board"))


class Recorder:
    def __init__(self) -> None:
        self.open: list[str] = []
        self.totals: dict[str, int] = {}
        self.steps: dict[str, int] = {}

    def start(self, title: str, total: int) -> None:
        self.open.append(title)
        self.totals[title], self.steps[title] = total, 0

    def advance(self, steps: int = 1) -> None:
        self.steps[self.open[-1]] += steps

    def finish(self) -> None:
        self.open.pop()


def test_progress_reaches_its_total() -> None:
    ours = {f"a{index}": numbers(2, 3, 4, seed=index) for index in range(5)}
    theirs = {f"b{index}": array.transpose(2, 0, 1) for index, array in enumerate(ours.values())}
    progress = Recorder()
    align(MemorySource(ours | {"n": numbers(3)}), MemorySource(theirs | {"n": numbers(3)}), progress=progress)
    stages = {"Comparing layouts": 1, "Matching by value": 10, "Trying layouts": 5, "Trying padding": 0}
    assert progress.steps == progress.totals == stages
    assert not progress.open


def test_codes_and_copies_beside_a_tensor_are_not_other_tensors() -> None:
    boxes, scores = numbers(1, 4, 64, seed=1), numbers(1, 3, 64, seed=2)
    ours = {"boxes": boxes, "scores": scores, "out": np.concatenate([boxes, scores], axis=1)}
    theirs = {
        "out_int8": np.rint(ours["out"] * 20).astype(np.int8),
        "out-rs": ours["out"].reshape(1, 7, 8, 8),
        "out": ours["out"],
    }
    pairing = align(MemorySource(ours), MemorySource(theirs))
    assert [(pair.reference, pair.candidate) for pair in pairing.pairs] == [("out", "out")]
    assert pairing.copies == {"out_int8": "out", "out-rs": "out"}
    assert set(pairing.unmatched_candidate) == {"out_int8", "out-rs"}


@pytest.mark.parametrize(
    "endings", [("quantized", "dequantized"), ("QuantizeLinear_Output", "DequantizeLinear_Output")]
)
def test_a_tensor_of_a_quantized_network_is_what_comes_out_of_its_pair(endings: tuple[str, str]) -> None:
    ours = {"x": numbers(2, 9), "y": numbers(3, 5, seed=1)}
    codes = np.rint(ours["x"] * 20)
    theirs = {**ours, f"x_{endings[0]}": codes.astype(np.int8), f"x_{endings[1]}": (codes / 20).astype(np.float32)}
    pairing = align(MemorySource(ours), MemorySource(theirs))
    assert [(pair.reference, pair.candidate, pair.how) for pair in pairing.pairs] == [
        ("x", f"x_{endings[1]}", "origin"),
        ("y", "y", "name"),
    ]
    assert pairing.copies == {"x": f"x_{endings[1]}", f"x_{endings[0]}": "x"}
    assert align(MemorySource(ours), MemorySource(theirs), aliases={"x": "x"}).pairs[0].candidate == "x"
    both = align(MemorySource(theirs), MemorySource(theirs))
    assert all(pair.reference == pair.candidate for pair in both.pairs)


def test_what_the_reference_has_under_that_name_or_size_is_no_copy() -> None:
    values = numbers(2, 9)
    ours = {"x": values, "x_int8": np.rint(values * 9), "flat": values.reshape(18)}
    named = align(MemorySource(ours), MemorySource({"x": values, "x_int8": ours["x_int8"]}))
    assert not named.copies
    # A reshaped tensor under a name of its own may be the one that the reference has of its size.
    again = align(MemorySource(ours), MemorySource({"x": values, "x_flat": values.reshape(18)}))
    assert not again.copies
    assert ("flat", "x_flat") in [(pair.reference, pair.candidate) for pair in again.pairs]


def test_what_is_chosen_instead_of_what_does_not_hold_is_looked_at_too() -> None:
    # Only the first rows of the wide tensor would be kept, and the others are no padding.
    ours = {"a": numbers(1, 3, 64, seed=1)}
    wide = np.concatenate([ours["a"] + 0.9 * numbers(1, 3, 64, seed=2), numbers(1, 4, 64, seed=3)], axis=1)
    with pytest.raises(CannotAlign):
        align(MemorySource(ours), MemorySource({"w": wide}))


def test_outputs_of_one_shape_are_told_by_values_and_order_together() -> None:
    ours = {"x": numbers(1, 30), "left": numbers(1, 40, seed=1), "right": numbers(1, 40, seed=2)}
    wrong = {name: 0.6 * ours[name] + 0.8 * numbers(1, 40, seed=9) for name in ("left", "right")}
    for theirs in ({"a": wrong["left"], "b": wrong["right"]}, {"a": wrong["right"], "b": -ours["left"]}):
        pairing = align(MemorySource(ours), MemorySource(theirs), outputs=("left", "right"))
        told = {pair.reference: pair.candidate for pair in pairing.pairs}
        first = "a" if "left" in told and theirs["a"] is wrong["left"] else "b"
        assert told == {"left": first, "right": "b" if first == "a" else "a"}
    nothing = {"a": numbers(1, 40, seed=11), "b": numbers(1, 40, seed=12)}
    with pytest.raises(CannotAlign):
        align(MemorySource(ours), MemorySource(nothing), outputs=("left", "right"))
