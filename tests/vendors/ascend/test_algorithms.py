"""The ten algorithms as the vendor prints them."""

import csv
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from roundoff.core.tensors import Array
from roundoff.measure.statistics import half_ends
from roundoff.vendors.ascend import golden_pairs as passes
from roundoff.vendors.ascend.algorithms import BUILTIN, ComparedTensors, compare_values, select_algorithms
from roundoff.vendors.ascend.golden_pairs import GoldenPair, tree_sum
from tests.ascend_dumps import vectors

FLOATS = arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-100, 100, width=32))


def run(mine: Array, golden: Array) -> tuple[dict[str, str], list[str]]:
    case = ComparedTensors(
        GoldenPair(mine.reshape(-1), golden.reshape(-1)), sum(mine.shape) == mine.ndim, "mine", "golden"
    )
    values, messages = compare_values(case, BUILTIN, warn=lambda text: None)
    return dict(zip(BUILTIN, values, strict=True)), messages


@given(st.integers(0, 200_000), st.integers(0, 2**32 - 1))
def test_sums_along_the_tree_have_numpys_bits(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    found = tree_sum(count, lambda start, stop: values[start:stop].sum(keepdims=True))
    assert found[0] == values.sum()


def test_samples_of_the_vendor_are_printed_alike() -> None:
    folder = vectors("alg")
    with (folder / "expected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        mine, golden = (np.load(folder / f"{row['case']}.{side}.npy") for side in ("my", "golden"))
        case = ComparedTensors(
            GoldenPair(mine.reshape(-1), golden.reshape(-1)),
            sum(mine.shape) == mine.ndim,
            f"{row['case']}.my.npy",
            f"{row['case']}.golden.npy",
        )
        values, messages = compare_values(case, BUILTIN, warn=lambda text: None)
        assert values == [row[name] for name in BUILTIN], row["case"]
        assert " | ".join(messages) == row["messages"]


# The formulas over whole arrays, as a reader of the vendor's manual would write them.
WHOLE: dict[str, Callable[[Array, Array], float]] = {
    "MaxAbsoluteError": lambda x, y: np.abs(x - y).max(),
    "MeanAbsoluteError": lambda x, y: np.abs(x - y).mean(),
    "RootMeanSquareError": lambda x, y: np.sqrt(((x - y) ** 2).mean()),
    "AccumulatedRelativeError": lambda x, y: _relative(x, y).sum(),
    "MaxRelativeError": lambda x, y: _relative(x, y).max(),
    "MeanRelativeError": lambda x, y: _relative(x, y).mean(),
    "KullbackLeiblerDivergence": lambda x, y: _divergence(_density(x), _density(y)),
}


def _density(values: Array) -> Array:
    low, high = values.min(), values.max()
    scaled = (values - low) / (high - low) if high != low else values
    clamped = np.maximum(scaled, np.finfo(np.float32).eps)
    return np.asarray(clamped / clamped.sum())


def _divergence(x: Array, y: Array) -> float:
    found = float((x * np.log(x / y)).sum())
    return found if abs(found) >= passes.EPSILON else 0.0


def _relative(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.abs(y) > passes.EPSILON, np.abs(x / y - 1), np.float32(0))


@given(FLOATS, st.integers(0, 2**32 - 1))
def test_blocks_change_no_digit(golden: Array, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=golden.size)
    mine = (golden + noise).astype(np.float32)
    whole, _ = run(mine, golden)
    with pytest.MonkeyPatch.context() as patch:
        # The tree's halves are numpy's own down to blocks of 128.
        patch.setattr(passes, "_LEAF", 128)
        assert run(mine, golden)[0] == whole
    for name, formula in WHOLE.items():
        assert whole[name] == f"{formula(mine, golden):.6f}", name
    lengths = [np.sqrt((side * side).sum()) for side in (mine, golden)]
    if min(lengths) > 1e-3 and mine.size > 1:
        product = ((mine / lengths[0]) * (golden / lengths[1])).sum()
        assert whole["CosineSimilarity"] == f"{min(product, 1.0):.6f}"
        distance = np.sqrt(((mine - golden) ** 2).sum() / (golden**2).sum())
        assert whole["RelativeEuclideanDistance"] == f"{distance:.6f}"


@given(FLOATS)
def test_a_tensor_is_like_itself(values: Array) -> None:
    found, messages = run(values, values)
    assert float(found["MaxAbsoluteError"]) == float(found["RelativeEuclideanDistance"]) == 0
    assert messages in ([], ["This tensor is scalar."])
    # The vendor's float32 sums leave a cosine of 0.9999993 and the like, printed as one step below 1.
    assert float(found["CosineSimilarity"]) == pytest.approx(1, abs=1.5e-6)
    left, right = found["StandardDeviation"].split("),(")
    assert left.strip("()") == right.strip("()")


def test_one_side_of_zeros_is_told_by_its_file() -> None:
    found, messages = run(np.zeros(4, np.float32), np.ones(4, np.float32))
    assert found["CosineSimilarity"] == "NaN"
    assert messages == ["Cannot compare by Cosine Similarity. All the data is zero in mine."]


def test_real_parts_of_complex_numbers_are_compared() -> None:
    found, _ = run(np.array([1 + 5j, 2]), np.array([1, 2 - 3j]))
    assert found["MaxAbsoluteError"] == "0.000000"


def test_equal_booleans_and_booleans_without_golden() -> None:
    some, none = np.array([True, False, True]), np.zeros(3, np.bool_)
    assert run(some, some)[0]["CosineSimilarity"] == "1.000000"
    assert run(some, none)[0]["RelativeEuclideanDistance"] == "0.000000"
    assert "All the data is zero in golden." in run(some, none)[1][0]


def test_one_algorithm_gives_what_it_gives_among_all() -> None:
    rng = np.random.default_rng(0)
    golden = rng.normal(size=300_001).astype(np.float32)
    golden[::97] = 0
    mine = (golden + rng.normal(size=golden.size) * 0.1).astype(np.float16)
    together, _ = compare_values(ComparedTensors(GoldenPair(mine, golden), False, "a", "b"), BUILTIN, warn=print)
    for (name, algorithm), wanted in zip(BUILTIN.items(), together, strict=True):
        case = ComparedTensors(GoldenPair(mine, golden), False, "a", "b")
        assert compare_values(case, {name: algorithm}, warn=print)[0] == [wanted]


def _large(kind: str, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    golden = rng.standard_normal(300_011, np.float32)
    if kind == "rectified":
        golden = np.maximum(golden, 0)
    elif kind == "saturated":
        golden = np.clip(golden * 3, 0, 6)
    elif kind == "large":
        golden = golden * 3000 + 500
    elif kind == "wide":
        golden = np.exp(golden * 2)
    elif kind == "mask":
        return (golden > 0.001).astype(np.float16), (golden > 0).astype(np.float32)
    elif kind == "codes":
        golden = np.rint(golden / 0.03).clip(-128, 127) * np.float32(0.03)
    elif kind == "constant":
        golden = np.full_like(golden, 0.1)
    elif kind == "not finite":
        golden[7] = np.inf
    golden = (
        golden * np.exp(2 * rng.standard_normal(31)).repeat(9700)[: golden.size] if kind == "channels" else golden
    )
    noise = 1e-2 * rng.standard_normal(golden.size, np.float32) if kind == "noisy" else 0
    golden = golden.astype(np.float32)
    return (golden * np.float32(1.001) if kind == "next to equal" else (golden + noise).astype(np.float16)), golden


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "kind",
    [
        *("plain", "rectified", "saturated", "large", "wide", "mask", "codes", "constant", "not finite", "noisy"),
        "channels",
        "next to equal",
    ],
)
def test_shorter_ways_print_what_the_vendors_own_prints(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, golden = _large(kind, seed)
    short, messages = run(mine, golden)
    monkeypatch.setattr(passes, "_MANY", golden.size + 1)
    assert (short, messages) == run(mine, golden)


def test_a_good_tensor_is_settled_by_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, golden = _large("plain", 0)
    monkeypatch.setattr(GoldenPair, "_sum", lambda *_: pytest.fail("the vendor's own sums were needed"))
    monkeypatch.setattr(GoldenPair, "_exact_spread", lambda *_: pytest.fail("the float64 pass was needed"))
    assert run(mine, golden)[0]["CosineSimilarity"] == "1.000000"


def test_the_sums_of_a_good_tensor_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, golden = _large("plain", 1)
    seen: list[int] = []
    block = GoldenPair._block

    def counted(pair: GoldenPair, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
        seen.append(stop - start)
        return block(pair, start, stop)

    monkeypatch.setattr(GoldenPair, "_block", counted)
    run(mine, golden)
    assert sum(seen) == golden.size


@given(arrays.arrays(np.uint16, st.integers(0, 40)))
def test_ends_of_halves_are_those_of_their_numbers(bits: Array) -> None:
    halves = bits.view(np.float16)
    found = half_ends(halves)
    if halves.size and np.isfinite(halves).all():
        assert found == (halves.min(), halves.max())
    else:
        assert found is None


@pytest.mark.parametrize("size", [1e-13, 1e-21, 1e19])
def test_lengths_that_float32_cannot_hold_are_the_vendors(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, golden = (side.astype(np.float32) * np.float32(size) for side in _large("noisy", 2))
    short = run(mine, golden)
    monkeypatch.setattr(passes, "_MANY", golden.size + 1)
    assert short == run(mine, golden)


@pytest.mark.parametrize("strict", [False, True])
def test_the_older_generation_takes_the_root_of_a_distance_in_float64(strict: bool) -> None:
    rng = np.random.default_rng(7)
    golden = rng.normal(size=1000).astype(np.float32)
    mine = (golden + 1e4 * rng.normal(size=1000)).astype(np.float32)
    share = np.float32(np.square(mine - golden).sum()) / np.float32(np.square(golden).sum())
    known = select_algorithms("3", scripts=None, options="", warn=print, strict=strict)
    values, _ = compare_values(ComparedTensors(GoldenPair(mine, golden), False, "a", "b"), known, warn=print)
    root = np.sqrt(np.float64(share) if strict else share)
    assert values == [f"{root:.6f}"]
    assert f"{np.sqrt(np.float64(share)):.6f}" != f"{np.sqrt(share):.6f}"
