"""Tensors that are wrong are found by their place among the others; places that cannot be told are not sure."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.align.alignment import align
from roundoff.align.pairing import Pairing
from roundoff.align.sequence import Anchors, alignment_posteriors, candidate_orders
from roundoff.core.tensors import Array, TensorInfo
from tests.align.network import activations
from tests.sources import MemorySource


def every_alignment(rows: int, columns: int) -> list[list[tuple[int, int]]]:
    """All ways to pair some of each side in order."""
    return [
        list(zip(left, right, strict=True))
        for count in range(min(rows, columns) + 1)
        for left in itertools.combinations(range(rows), count)
        for right in itertools.combinations(range(columns), count)
    ]


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 4))
def test_posteriors_are_those_of_all_alignments_counted_one_by_one(seed: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(0, 2, (rows, columns))
    scores[random.random((rows, columns)) < 0.3] = -np.inf
    ours, theirs = random.normal(-1, 1, rows), random.normal(-2, 1, columns)
    sums, total = np.zeros((rows, columns)), 0.0
    for pairs in every_alignment(rows, columns):
        lonely = [set(range(rows)) - {i for i, _ in pairs}, set(range(columns)) - {j for _, j in pairs}]
        weight = math.exp(
            sum(scores[pair] for pair in pairs)
            + sum(ours[i] for i in lonely[0])
            + sum(theirs[j] for j in lonely[1])
        )
        total += weight
        for pair in pairs:
            sums[pair] += weight
    found, log_weight = alignment_posteriors(scores, ours, theirs)
    np.testing.assert_allclose(found, sums / total, atol=1e-9)
    assert log_weight == pytest.approx(math.log(total), abs=1e-9)


@given(st.lists(st.integers(0, 9), max_size=8, unique=True))
def test_anchors_keep_the_longest_part_in_order(places: list[int]) -> None:
    kept = Anchors(list(enumerate(places))).rising
    assert all(left[1] < right[1] for left, right in itertools.pairwise(kept))
    longest = max(
        (
            count
            for count in range(len(places) + 1)
            if any(list(some) == sorted(some) for some in itertools.combinations(places, count))
        ),
        default=0,
    )
    assert len(kept) == longest


def test_orders_are_read_from_numbers_and_times() -> None:
    names = ["Add_b.0.1700000099", "Conv_a.0.1700000001", "Relu_c.0.1700000050"]
    orders = {
        order.places: order.prior for order in candidate_orders([TensorInfo(n) for n in names], ordered=False)
    }
    assert max(orders, key=orders.__getitem__) == (1, 2, 0)
    hashes = [TensorInfo(name) for name in ("9f3a", "04c1", "77b0")]
    assert {order.places for order in candidate_orders(hashes, ordered=False)} == {(0, 1, 2), (2, 1, 0)}


SIGN, ROLLED, NOT_A_NUMBER, WRAPPED = "sign", "rolled", "nan", "wrapped"


def broken(values: Array, kind: str) -> Array:
    if kind == SIGN:
        return -values
    if kind == ROLLED:
        return np.roll(values, 1, axis=1)
    if kind == NOT_A_NUMBER:
        return np.full_like(values, np.nan)
    return np.asarray(np.mod(4 * values / np.abs(values).max() + 1, 2) - 1, dtype=values.dtype)


def dump(tensors: dict[str, Array], wrong: str, kind: str, *, step: int, nhwc: bool) -> dict[str, Array]:
    """Numbered files in natural order; one tensor is wrong, those behind it are noise."""
    found = {}
    behind = False
    random = np.random.default_rng(3)
    for index, (name, values) in enumerate(tensors.items()):
        made = values
        if behind:
            made = (values.std() * random.standard_normal(values.shape)).astype(values.dtype)
            made = np.abs(made) if values.min() >= 0 else made
        if name == wrong:
            made, behind = broken(values, kind), True
        stored = made.transpose(0, 2, 3, 1) if nhwc and made.ndim == 4 else made
        found[f"t_{1000 + step * index:04d}"] = stored
    return dict(sorted(found.items()))


def partners(pairing: Pairing, sure: float = 0.5) -> dict[str, str]:
    return {pair.reference: pair.candidate for pair in pairing.pairs if pair.confidence >= sure}


def axes(pairing: Pairing) -> dict[str, tuple[int, ...] | None]:
    return {pair.reference: pair.layout.axes if pair.layout else None for pair in pairing.pairs}


@pytest.mark.parametrize("kind", [SIGN, ROLLED, NOT_A_NUMBER, WRAPPED])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("nhwc", [False, True])
def test_a_wrong_tensor_and_all_behind_it_find_their_partners(kind: str, step: int, nhwc: bool) -> None:
    ours = {name: values for name, values in activations(60, seed=11).items() if "dropout" not in name}
    wrong = list(ours)[24]
    pairing = align(MemorySource(ours), MemorySource(dump(ours, wrong, kind, step=step, nhwc=nhwc), ordered=False))
    truth = {name: f"t_{1000 + step * index:04d}" for index, name in enumerate(ours)}
    found = partners(pairing)
    assert found[wrong] == truth[wrong]
    assert all(truth[name] == partner for name, partner in found.items())
    assert len(found) >= 0.9 * len(ours)
    if nhwc:
        assert axes(pairing)[wrong] == (0, 3, 1, 2)


def test_two_places_that_fit_equally_well_are_not_certain() -> None:
    random = np.random.default_rng(0)
    shapes = [(4, 4), (4, 5), (4, 6), (1, 9), (1, 9), (4, 7), (4, 8)]
    ours = {f"n{index}": random.standard_normal(shape) for index, shape in enumerate(shapes)}
    theirs = {f"x{index}": values for index, values in enumerate(ours.values()) if index != 4}
    theirs["x3"] = random.standard_normal((1, 9))
    found = partners(align(MemorySource(ours), MemorySource(theirs, ordered=False)), sure=0.6)
    assert not {"n3", "n4"} & set(found)


def test_a_dump_in_one_layout_has_it_where_lengths_are_equal() -> None:
    """Channels, rows and columns of one length: values of a wrong tensor do not tell, the others do."""
    random = np.random.default_rng(5)
    shapes = [(1, 8, 16, 16), (1, 16, 16, 16), (1, 16, 16, 16), (1, 24, 8, 8), (1, 32, 4, 4), (1, 10)]
    ours = {f"layer{i}": random.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    theirs = {k: v.transpose(0, 2, 3, 1) if v.ndim == 4 else v for k, v in ours.items()}
    theirs["layer1"] = random.standard_normal((1, 16, 16, 16)).astype(np.float32)
    found = axes(align(MemorySource(ours), MemorySource(theirs)))
    assert found == {**{f"layer{i}": (0, 3, 1, 2) for i in range(5)}, "layer5": None}


def test_a_tensor_that_lies_as_it_should_keeps_its_layout_in_a_dump_of_another() -> None:
    random = np.random.default_rng(6)
    shapes = [(1, 8, 16, 16), (1, 16, 16, 16), (1, 24, 8, 8), (1, 32, 4, 4)]
    ours = {f"layer{i}": random.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    theirs = {k: v.transpose(0, 2, 3, 1) if k != "layer1" else v for k, v in ours.items()}
    assert axes(align(MemorySource(ours), MemorySource(theirs)))["layer1"] is None


class _Typed(MemorySource):
    """Tensors called after the operation that gives them."""

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(replace(info, op_type=info.name.rstrip("0123456789")) for info in super().tensors)


def test_what_a_right_activation_contradicts_is_not_its_input() -> None:
    """A wrong tensor whose number puts it in front of an activation that agrees belongs elsewhere."""
    random = np.random.default_rng(4)
    ours: dict[str, Array] = {}
    for index in range(6):
        shape = (1, 16, 6, 6) if index in (2, 4) else (1, 8 + index, 5, 5)
        ours[f"Conv{index}"] = random.standard_normal(shape)
        ours[f"Relu{index}"] = np.maximum(ours[f"Conv{index}"], 0)
    for index in range(6, 9):
        ours[f"Conv{index}"] = random.standard_normal((1, index, 4, 4))
    right = [name for name in ours if name[:4] == "Relu" or int(name[4:]) > 5]
    theirs = {f"blob{10 * at}": ours[name] for at, name in enumerate(right) if name != "Relu4"}
    theirs["blob15"] = np.abs(random.standard_normal((1, 16, 6, 6)))
    found = partners(align(_Typed(ours), MemorySource(theirs, ordered=False)), sure=0.5)
    assert found["Relu2"] == "blob20"
    assert "Conv2" not in found
