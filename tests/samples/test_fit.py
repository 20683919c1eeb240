"""How many samples an array holds, which shapes fit, and which types do."""

import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.samples.arrays import cast, check_symbols, possible_counts
from roundoff.samples.options import ImageOptions, SampleOptions
from roundoff.samples.sample_set import open_samples
from tests.samples.support import complaint, save, spec, values

SIZES = st.integers(1, 4)
INTEGERS = st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.lists(SIZES, max_size=2), st.sampled_from(["npy", "npz", "bin"]))
def test_batches_come_apart_and_together_again(batch: int, count: int, tail: list[int], kind: str) -> None:
    array = values(batch * count, *tail)
    wanted = spec("x", batch, *tail)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{kind}")
        np.savez_compressed(path, x=array) if kind == "npz" else save(path, array)
        samples = open_samples(path, [wanted])
        assert len(samples) == count
        parts = [samples.feed(index)["x"] for index in range(count)]
    assert all(part.shape == (batch, *tail) for part in parts)
    np.testing.assert_array_equal(np.concatenate(parts), array)


@given(st.integers(2, 9), st.integers(2, 40))
def test_rows_that_do_not_fill_batches_are_named(batch: int, rows: int) -> None:
    assume(rows % batch)
    with pytest.raises(BadInput) as caught:
        possible_counts((rows, 3), spec("x", batch, 3), where="a.npy", dtype="float32")
    complaint(
        caught,
        f"a.npy does not fit the input 'x': expected float32 [{batch}, 3], got float32 [{rows}, 3]",
        f"{rows} rows cannot be cut into groups of {batch}",
        fix=f"a multiple of {batch}",
    )


@given(st.lists(SIZES, min_size=1, max_size=3), st.integers(0, 5))
def test_one_axis_more_is_a_stack_and_one_less_a_row(shape: list[int], count: int) -> None:
    wanted = spec("x", *shape)
    assert possible_counts((count, *shape), wanted, where="", dtype="") == {count}
    assert possible_counts(tuple(shape[1:]), wanted, where="", dtype="") == {Fraction(1, shape[0])}


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((1, 8, 9, 3), "the axes look permuted: save array.transpose(0, 3, 1, 2)"),
        ((1, 3, 9, 9), "save one array per sample in the shape the model expects"),
        ((3,), "save one array per sample"),
    ],
)
def test_wrong_shapes(tmp_path: Path, shape: tuple[int, ...], fix: str) -> None:
    save(tmp_path / "0.npy", values(1, 3, 8, 9))
    save(tmp_path / "1.npy", values(*shape))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [spec("x", 1, 3, 8, 9)])
    complaint(
        caught,
        f"{tmp_path / '1.npy'} does not fit the input 'x': expected float32 [1, 3, 8, 9], "
        f"got float32 {list(shape)}.",
        fix=fix,
    )


def test_symbols_agree_within_a_sample(tmp_path: Path) -> None:
    ids, mask = spec("ids", "N", "length"), spec("mask", "N", "length")
    for number, length in enumerate((5, 9)):
        save(tmp_path / "ids" / f"{number}.npy", values(1, length))
        save(tmp_path / "mask" / f"{number}.npy", values(1, length))
    assert open_samples(tmp_path, [ids, mask]).feed(1)["mask"].shape == (1, 9)
    save(tmp_path / "mask" / "1.npy", values(1, 8))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [ids, mask])
    complaint(
        caught,
        "1.npy: the axis 'length' is 9 in the input 'ids', but 8 in 'mask'",
        "expected float32 [N, length], got [1, 8]",
        fix="same size of 'length'",
    )


def test_symbols_agree_within_one_input() -> None:
    check_symbols([(spec("x", "n", "n"), (2, 2))], where="a")
    with pytest.raises(BadInput):
        check_symbols([(spec("x", "n", "n"), (2, 3))], where="a")


# Types


@given(hnp.arrays(INTEGERS, st.integers(0, 4)), INTEGERS)
def test_integers_are_taken_exactly_when_all_values_fit(array: Array, dtype: str) -> None:
    limits = np.iinfo(dtype)
    fits = all(limits.min <= int(value) <= limits.max for value in array)
    wanted = spec("x", "n", dtype=dtype)
    if not fits:
        with pytest.raises(BadInput) as caught:
            cast(array, wanted, where="a.npy")
        complaint(caught, f"{dtype} cannot hold", f"got {array.dtype.name} [{len(array)}]")
        return
    result = cast(array, wanted, where="a.npy")
    assert result.dtype == dtype
    assert [int(value) for value in result] == [int(value) for value in array]


@given(hnp.arrays("float64", st.integers(0, 4), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_float64_is_rounded_to_float32_unless_it_overflows(array: Array) -> None:
    finite = array[np.isfinite(array)]
    with np.errstate(over="ignore"):
        rounded = array.astype("float32")
        overflows = bool(np.isinf(finite.astype("float32")).any())
    if overflows:
        with pytest.raises(BadInput) as caught:
            cast(array, spec("x", "n"), where="a.npy")
        complaint(caught, "float32 cannot hold", fix="convert the file to float32")
        return
    np.testing.assert_array_equal(cast(array, spec("x", "n"), where="a.npy"), rounded)


@given(hnp.arrays("float32", 2, elements=st.floats(width=32)))
def test_float16_takes_exact_values_only(array: Array) -> None:
    with np.errstate(over="ignore"):
        exact = np.array_equal(array.astype("float16").astype("float32"), array, equal_nan=True)
    wanted = spec("x", "n", dtype="float16")
    if exact:
        np.testing.assert_array_equal(cast(array, wanted, where="a"), array.astype("float16"))
    else:
        with pytest.raises(BadInput, match="float16 cannot hold"):
            cast(array, wanted, where="a")


@given(hnp.arrays("float16", 3, elements=st.floats(width=16)))
def test_narrower_floats_widen(array: Array) -> None:
    np.testing.assert_array_equal(cast(array, spec("x", "n"), where="a"), array.astype("float32"))


@pytest.mark.parametrize(
    ("stored", "wanted", "fix"),
    [
        ("uint8", "float32", "--scale, --mean and --std"),
        ("int64", "float32", "array.astype('float32')"),
        ("float32", "int64", "array.astype('int64')"),
        ("uint8", "bool", "array.astype('bool')"),
        ("bool", "uint8", "array.astype('uint8')"),
        ("complex64", "float32", "save the values as float32"),
    ],
)
def test_other_kinds_are_refused_on_opening(tmp_path: Path, stored: str, wanted: str, fix: str) -> None:
    path = save(tmp_path / "a.npy", np.zeros((1, 2), dtype=stored))
    with pytest.raises(BadInput) as caught:
        open_samples(path, [spec("x", 1, 2, dtype=wanted)])
    complaint(caught, f"expected {wanted} [1, 2], got {np.dtype(stored).name} [1, 2]", fix=fix)


@pytest.mark.parametrize(
    ("stored", "wanted", "problem"),
    [
        ("U3", "float32", "holds values of type '<U3', not numbers"),
        ("datetime64[s]", "int64", "holds values of type '<M8[s]', not numbers"),
        ("f4,f4", "float32", "holds records of several fields, not plain numbers"),
    ],
)
def test_what_is_not_plain_numbers_is_refused_on_opening(
    tmp_path: Path, stored: str, wanted: str, problem: str
) -> None:
    path = save(tmp_path / "a.npy", np.zeros((1, 2), dtype=stored))
    with pytest.raises(BadInput) as caught:
        open_samples(path, [spec("x", 1, 2, dtype=wanted)])
    complaint(
        caught,
        f"a.npy cannot be read for the input 'x' (expected {wanted} [1, 2]): {problem}.",
        fix=f"array.astype('{wanted}')",
    )


def test_a_picture_that_is_large_enough_says_how_to_cut_it(tmp_path: Path) -> None:
    Image.new("RGB", (9, 8)).save(tmp_path / "a.png")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [spec("x", 1, 3, 7, 7)]).feed(0)
    assert caught.value.fix.endswith("; --image-resize crop --image-size 8x9 cuts the middle out of such pictures")
    cut = SampleOptions(image=ImageOptions(resize="crop", size=(8, 9)))
    assert open_samples(tmp_path, [spec("x", 1, 3, 7, 7)], cut).feed(0)["x"].shape == (1, 3, 7, 7)
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [spec("x", 1, 3, 8, 10)]).feed(0)
    assert "cuts the middle out" not in caught.value.fix
