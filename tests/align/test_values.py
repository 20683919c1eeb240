"""Matching by value."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.align.alignment import align
from roundoff.align.pairing import Pairing
from roundoff.core.tensors import Array
from tests.sources import MemorySource, shuffled

CERTAIN = 0.9


def distinct(count: int, seed: int = 0, shape: tuple[int, ...] = (1, 8, 6, 6)) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {f"r{index}": random.standard_normal(shape).astype(np.float32) for index in range(count)}


def renamed(arrays: dict[str, Array], change: Callable[[Array], Array] = lambda array: array) -> dict[str, Array]:
    return {name.replace("r", "other", 1): change(array) for name, array in arrays.items()}


def matched(pairing: Pairing) -> dict[str, str]:
    return {pair.reference: pair.candidate for pair in pairing.pairs}


def truth(arrays: dict[str, Array]) -> dict[str, str]:
    return {name: name.replace("r", "other", 1) for name in arrays}


def test_renamed_tensors_are_found_surely() -> None:
    ours = distinct(12)
    pairing = align(MemorySource(ours), MemorySource(renamed(ours)))
    assert matched(pairing) == truth(ours)
    assert all(pair.how == "value" and pair.confidence > 0.99 and not pair.layout for pair in pairing.pairs)
    assert pairing.unmatched_reference == pairing.unmatched_candidate == ()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_the_sources_does_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    ours = distinct(10, seed)
    theirs = renamed(dict(list(ours.items())[2:]), lambda array: array + 0.05 * array.std())
    one = align(MemorySource(ours), MemorySource(theirs))
    other = align(MemorySource(shuffled(ours, random)), MemorySource(shuffled(theirs, random)))
    assert set(one.pairs) == set(other.pairs)
    assert set(one.unmatched_reference) == set(other.unmatched_reference) == {"r0", "r1"}


@pytest.mark.parametrize(
    ("change", "layout"),
    [
        (lambda array: array.transpose(0, 2, 3, 1), "NHWC -> NCHW"),
        (lambda array: array.transpose(0, 1, 3, 2), "axes 2,3 swapped"),
        (lambda array: array.reshape(-1), "reshaped (288) -> (1,8,6,6)"),
        (lambda array: array[0], "reshaped (8,6,6) -> (1,8,6,6)"),
        (lambda array: np.pad(array, ((0, 0), (0, 8), (0, 0), (0, 0))), "axis 1 padded 8 -> 16"),
        (lambda array: array.reshape(1, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2), "NC1HWC0 -> NCHW"),
        (lambda array: array.transpose(0, 2, 3, 1).reshape(-1), "NHWC -> NCHW, reshaped (288) -> (1,8,6,6)"),
        (lambda array: np.round(array * 30 + 9).astype(np.int8), None),
        (np.asfortranarray, None),
        (lambda array: array.astype(np.float16), None),
    ],
)
def test_layouts_codes_and_types(change: Callable[[Array], Array], layout: str | None) -> None:
    ours = distinct(8)
    pairing = align(MemorySource(ours), MemorySource(renamed(ours, change)))
    assert matched(pairing) == truth(ours)
    assert {pair.layout.name if pair.layout else None for pair in pairing.pairs} == {layout}
    assert all(pair.confidence >= CERTAIN for pair in pairing.pairs)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    copies=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    noise=st.sampled_from([0.0, 0.02, 0.1]),
)
def test_duplicates_are_never_matched_wrongly_with_confidence(seed: int, copies: list[int], noise: float) -> None:
    random = np.random.default_rng(seed)
    first = distinct(6, seed)
    ours = {
        f"{name}_{copy}": array
        for count, (name, array) in zip(copies, first.items(), strict=True)
        for copy in range(count)
    }
    theirs = {
        f"x{name}": array + noise * random.standard_normal(array.shape)
        for name, array in shuffled(ours, random).items()
        if random.random() < 0.8
    }
    if not theirs:
        return
    named = {f"{random.integers(2**30)}!{name}": array for name, array in theirs.items()}
    pairing = align(MemorySource(ours), MemorySource(named, ordered=False))
    for pair in pairing.pairs:
        right = pair.candidate.split("!x")[1]
        assert pair.reference[:2] == right[:2], "never another tensor's values"
        assert pair.reference == right or pair.confidence < CERTAIN


def test_twins_keep_their_order_where_the_sides_agree_on_one() -> None:
    ours = {
        f"{name}{twin}": array if twin in "ab" else array[:, ::-1]
        for name, array in distinct(20).items()
        for twin in "abc"
    }
    names = [f"z{index:02d}" for index in np.random.default_rng(0).permutation(len(ours))]
    theirs = dict(zip(names, ours.values(), strict=True))
    pairing = align(MemorySource(ours, ordered=False), MemorySource(theirs))
    right = dict(zip(ours, names, strict=True))
    assert matched(pairing) == right
    assert all(pair.confidence < CERTAIN for pair in pairing.pairs if pair.reference[-1] in "ab")


def test_twins_of_different_shape_are_told_apart() -> None:
    pooled = distinct(4, shape=(1, 64, 1, 1))
    ours = pooled | {f"{name}flat": array.reshape(1, 64) for name, array in pooled.items()}
    theirs = renamed(ours)
    assert matched(align(MemorySource(ours), MemorySource(theirs))) == truth(ours)


def test_a_gain_tells_twins_apart() -> None:
    ours = distinct(4)
    ours |= {f"{name}scaled": 0.125 * array for name, array in ours.items()}
    pairing = align(MemorySource(ours), MemorySource(renamed(ours)))
    assert matched(pairing) == truth(ours)
    assert all(pair.confidence >= CERTAIN for pair in pairing.pairs)


def test_constants_are_matched_without_confidence_or_not_at_all() -> None:
    ours = {
        "r0": np.full((1, 8), 3.0),
        "r1": np.full((1, 8), 5.0),
        "r2": np.zeros((1, 8)),
        "rscalar": np.array(0.125),
    }
    pairing = align(MemorySource(ours, ordered=False), MemorySource(renamed(ours)))
    assert matched(pairing) == truth(ours)
    assert all(pair.confidence <= 0.5 for pair in pairing.pairs)
    many = {f"r{index}": np.zeros((2, 3)) for index in range(8)}
    known = {"same": np.arange(4.0)}
    assert len(align(MemorySource(many | known, ordered=False), MemorySource(renamed(many) | known)).pairs) == 1


def test_rounding_noise_is_no_signal() -> None:
    random = np.random.default_rng(0)
    ours = {f"r{index}": (1 + 1e-7 * random.standard_normal(500)).astype(np.float32) for index in range(3)}
    pairing = align(MemorySource(ours | {"same": ours["r0"]}), MemorySource(renamed(ours) | {"same": ours["r0"]}))
    assert all(pair.confidence <= 0.5 for pair in pairing.pairs if pair.how == "value")


def test_a_related_tensor_is_no_confident_match() -> None:
    """The partner is missing; its neighbour after the activation is there."""
    ours = distinct(10)
    theirs = renamed(ours) | {"other3": np.maximum(ours["r3"], 0)}
    pairing = align(MemorySource(ours, ordered=False), MemorySource(theirs))
    assert all(pair.confidence < CERTAIN for pair in pairing.pairs if pair.reference == "r3")


def test_unrelated_tensors_are_left_alone() -> None:
    ours, theirs = distinct(30), renamed(distinct(30, seed=1))
    pairing = align(
        MemorySource(ours | {"same": ours["r0"]}, ordered=False),
        MemorySource(theirs | {"same": -(ours["r0"] ** 2)}),
    )
    assert matched(pairing) == {"same": "same"}
    assert len(pairing.unmatched_reference) == len(pairing.unmatched_candidate) == 30


@pytest.mark.parametrize("size", [4, 5, 8, 12])
def test_short_tensors_do_not_match_by_chance(size: int) -> None:
    wrong = 0
    for seed in range(20):
        ours = distinct(40, seed, shape=(1, size))
        theirs = renamed(distinct(40, seed + 100, shape=(1, size)))
        pairing = align(MemorySource(ours | {"same": ours["r0"]}), MemorySource(theirs | {"same": ours["r0"]}))
        wrong += sum(pair.confidence >= CERTAIN for pair in pairing.pairs if pair.how == "value")
    assert wrong == 0


def test_a_few_outliers_are_weak_evidence() -> None:
    ours = {f"r{index}": np.zeros((1, 50)) for index in range(20)}
    for index, array in enumerate(ours.values()):
        array[0, index % 5] = 1 + index / 10  # one-hot, four of a kind up to gain
    theirs = renamed(ours, lambda array: array * 7)
    pairing = align(MemorySource(ours | {"same": np.ones(3)}), MemorySource(theirs | {"same": np.ones(3)}))
    assert all(pair.confidence < CERTAIN for pair in pairing.pairs if pair.how == "value")


def test_values_that_are_not_finite_or_huge_do_no_harm() -> None:
    ours = distinct(6)
    theirs = renamed(ours)
    theirs["other1"] = theirs["other1"].copy()
    theirs["other1"][0, 0, 0, :3] = [np.nan, np.inf, -np.inf]
    ours["r2"], theirs["other2"] = (
        ours["r2"].astype(np.float64) * 1e200,
        theirs["other2"].astype(np.float64) * 1e200,
    )
    ours["r3"], theirs["other3"] = (
        ours["r3"].astype(np.float64) * 1e-200,
        theirs["other3"].astype(np.float64) * 1e-200,
    )
    ours |= {"rhuge": np.full(3, 1e300), "rtiny": np.full(3, -1e-310)}
    theirs |= {"otherhuge": np.full(3, 1e300), "othertiny": np.full(3, -1e-310)}
    ours["r4"], theirs["other4"] = np.full((1, 8, 6, 6), np.nan), np.full((1, 8, 6, 6), np.nan)
    found = matched(align(MemorySource(ours, ordered=False), MemorySource(theirs)))
    assert found == {name: partner for name, partner in truth(ours).items() if name != "r4"}


def test_damaged_empty_and_odd_tensors_are_listed() -> None:
    ours = distinct(3) | {"rempty": np.zeros((0, 3)), "rtext": np.array(["a"]), "rcomplex": np.ones(9) * 1j}
    theirs = renamed(ours)
    pairing = align(MemorySource(ours, problems={"r1": "truncated"}), MemorySource(theirs))
    assert matched(pairing) == {"r0": "other0", "r2": "other2"}
    assert pairing.unmatched_reference == ("r1", "rempty", "rtext", "rcomplex")
    assert pairing.unmatched_candidate == ("other1", "otherempty", "othertext", "othercomplex")


def test_cropping_is_never_silent() -> None:
    wide = distinct(4, shape=(1, 16, 6, 6))
    ours = {name: array[:, :8] for name, array in wide.items()}
    pairing = align(MemorySource(ours | {"same": ours["r0"]}), MemorySource(renamed(wide) | {"same": ours["r0"]}))
    assert matched(pairing) == {"same": "same"}


@pytest.mark.parametrize("behind", [8, 24])
def test_what_is_wrong_behind_a_fault_does_not_make_those_in_front_of_it_uncertain(behind: int) -> None:
    """What correlates by half there is no noise between the two sides."""
    # Tensors of one network have much in common, as one before and one behind an activation do.
    shared = 2 * distinct(1, seed=3)["r0"]
    front = {name: array + shared for name, array in distinct(6).items()}
    wrong = {f"r{6 + index}": array for index, array in enumerate(distinct(behind, seed=1).values())}
    random = np.random.default_rng(2)

    def half(array: Array) -> Array:
        return (array + random.standard_normal(array.shape)).astype(np.float32)

    theirs = {**renamed(front), **renamed(wrong, half)}
    pairing = align(MemorySource({**front, **wrong}), MemorySource(shuffled(theirs, random)))
    found = {pair.reference: pair for pair in pairing.pairs}
    assert {name: found[name].candidate for name in front} == truth(front)
    assert all(found[name].confidence >= CERTAIN for name in front)
