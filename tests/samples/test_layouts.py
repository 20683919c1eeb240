"""Every way samples may lie on disk, and what is said when they lie in none."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.names import FileNames
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.samples.options import SampleOptions
from roundoff.samples.sample_set import SampleSet, open_samples
from tests.samples.support import complaint, save, spec, values

X = spec("x", 1, 4)
MASK = spec("mask/in:0", 1, 2, dtype="int64")


def feeds(samples: SampleSet) -> list[dict[str, Array]]:
    return [samples.feed(index) for index in range(len(samples))]


def test_folder_of_npy_for_one_input_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        save(tmp_path / f"s{number}.npy", values(1, 4, start=number))
    samples = open_samples(tmp_path, [X])
    assert samples.names == ("s1", "s9", "s10")
    assert len(samples) == 3
    assert [feed["x"][0, 0] for feed in feeds(samples)] == [1, 9, 10]
    assert samples.label == str(tmp_path)


def test_folder_per_input_by_name_or_sanitized_name(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / "x" / f"{number}.npy", values(1, 4, start=number))
        save(tmp_path / "mask_in_0" / f"{number}.npy", values(1, 2, start=number, dtype="int64"))
    (tmp_path / "notes.md").write_text("made on Monday")
    samples = open_samples(tmp_path, [X, MASK])
    assert samples.names == ("0", "1")
    assert list(samples.feed(1)) == ["x", "mask/in:0"]
    np.testing.assert_array_equal(samples.feed(1)["mask/in:0"], [[1, 2]])
    assert samples.skipped == (str(tmp_path / "notes.md"),)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("con", "_con"), ("-in.1", "_in.1"), ("/x:0", "x:0"), ("a.b-c", "a_b_c"), ("a+b", "a_b"), ("a+b", "a+b")],
)
def test_folder_named_as_a_program_would_name_it(tmp_path: Path, name: str, folder: str) -> None:
    save(tmp_path / "x" / "0.npy", values(1, 4))
    save(tmp_path / folder / "0.npy", values(1, 2))
    assert open_samples(tmp_path, [X, spec(name, 1, 2)]).feed(0)[name].tolist() == [[0, 1]]


@pytest.mark.parametrize("names", [("a/b", "a:b", "x" * 300), ("\u5377 1", "\u79ef 1", "nul")])
def test_folders_named_as_roundoff_writes_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    stems = FileNames()
    for number, name in enumerate(names):
        save(tmp_path / stems.stem(name) / "0.npy", values(1, start=number))
    feed = open_samples(tmp_path, [spec(name, 1) for name in names]).feed(0)
    assert [feed[name].tolist() for name in names] == [[0], [1], [2]]


def test_folder_per_input_mixes_kinds_between_inputs(tmp_path: Path) -> None:
    save(tmp_path / "x" / "a.npy", values(1, 4))
    save(tmp_path / "mask_in_0" / "a.bin", values(1, 2, dtype="int64"))
    assert open_samples(tmp_path, [X, MASK]).feed(0)["mask/in:0"].tolist() == [[0, 1]]


def test_one_npz_per_sample(tmp_path: Path) -> None:
    for number in range(3):
        arrays = {"x": values(1, 4, start=number), "mask/in:0": values(1, 2, dtype="int64")}
        np.savez(tmp_path / f"{number}.npz", **arrays)  # type: ignore[arg-type]
    samples = open_samples(tmp_path, [X, MASK])
    assert samples.names == ("0", "1", "2")
    assert samples.feed(2)["x"].tolist() == [[2, 3, 4, 5]]


def test_single_npz_is_one_sample_under_any_member_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", arr_0=values(1, 4))
    samples = open_samples(tmp_path / "one.npz", [X])
    assert samples.names == ("one",)
    assert samples.feed(0)["x"].tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("store", [np.savez, np.savez_compressed])
def test_single_npz_of_batches_is_as_many_samples(tmp_path: Path, store: Callable[..., None]) -> None:
    store(tmp_path / "all.npz", x=values(5, 4), mask_in_0=values(5, 2, dtype="int64"))
    samples = open_samples(tmp_path / "all.npz", [X, MASK])
    assert samples.names == ("0", "1", "2", "3", "4")
    # Backwards and at random, not only in the order that suits a compressed stream.
    for row in (4, 0, 3, 3, 1):
        assert samples.feed(row)["x"].tolist() == [[4 * row, 4 * row + 1, 4 * row + 2, 4 * row + 3]]
        assert samples.feed(row)["mask/in:0"].tolist() == [[2 * row, 2 * row + 1]]


def test_npz_in_fortran_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.asfortranarray(values(3, 4)))
    assert open_samples(tmp_path / "all.npz", [X]).feed(2)["x"].tolist() == [[8, 9, 10, 11]]


def test_npy_in_fortran_order_and_foreign_byte_order(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", np.asfortranarray(values(3, 4)).astype(">f4"))
    fed = open_samples(tmp_path / "a.npy", [X]).feed(1)["x"]
    assert fed.tolist() == [[4, 5, 6, 7]]
    assert fed.dtype == np.dtype("float32")
    assert fed.dtype.isnative
    assert fed.flags.c_contiguous


def test_npz_with_inputs_of_one_row_and_of_free_length_is_one_sample(tmp_path: Path) -> None:
    boxes = spec("boxes", "count", 4)
    np.savez(tmp_path / "s.npz", x=values(1, 4), boxes=values(7, 4))
    samples = open_samples(tmp_path / "s.npz", [X, boxes])
    assert len(samples) == 1
    assert samples.feed(0)["boxes"].shape == (7, 4)


def test_a_lone_file_with_a_free_batch_is_cut_into_rows_but_a_folder_is_not(tmp_path: Path) -> None:
    free = spec("x", "N", 4)
    save(tmp_path / "data" / "a.npy", values(3, 4))
    assert open_samples(tmp_path / "data" / "a.npy", [free]).names == ("0", "1", "2")
    samples = open_samples(tmp_path / "data", [free])
    assert samples.names == ("a",)
    assert samples.feed(0)["x"].shape == (3, 4)


def test_batch_files_in_a_folder_get_row_names(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", values(2, 4))
    save(tmp_path / "b.npy", values(1, 4, start=50))
    save(tmp_path / "c.npy", values(4, start=90))
    samples = open_samples(tmp_path, [X])
    assert samples.names == ("a[0]", "a[1]", "b", "c")
    assert [feed["x"][0, 0] for feed in feeds(samples)] == [0, 4, 50, 90]


def test_mapping_of_folders_and_of_files(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / "left" / f"{number}.npy", values(1, 4))
        save(tmp_path / "right" / f"{number}.raw", values(1, 2, dtype="int64"))
    folders = {"x": tmp_path / "left", "mask/in:0": tmp_path / "right"}
    samples = open_samples(folders, [X, MASK])
    assert samples.names == ("0", "1")
    assert samples.label == f"x={tmp_path / 'left'}, mask/in:0={tmp_path / 'right'}"
    files = {
        "x": save(tmp_path / "anything.npy", values(3, 4)),
        "mask/in:0": save(tmp_path / "other.npy", values(3, 2, dtype="int64")),
    }
    assert open_samples(files, [X, MASK]).names == ("0", "1", "2")


def test_the_same_archive_for_several_inputs(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, x=values(2, 4), mask_in_0=values(2, 2, dtype="int64"))
    assert len(open_samples({"x": path, "mask/in:0": path}, [X, MASK])) == 2


def test_nested_folders_and_clashing_stems_keep_distinct_names(tmp_path: Path) -> None:
    save(tmp_path / "cat" / "1.bin", values(1, 4))
    save(tmp_path / "dog" / "1.bin", values(1, 4))
    save(tmp_path / "dog" / "1.raw", values(1, 4))
    assert open_samples(tmp_path, [X]).names == ("cat/1", "dog/1.bin", "dog/1.raw")


def test_limit_looks_at_no_more_files_than_needed(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(2, 4))
    save(tmp_path / "1.npy", values(2, 4))
    (tmp_path / "2.npy").write_bytes(b"broken")
    samples = open_samples(tmp_path, [X], SampleOptions(limit=3))
    assert samples.names == ("0[0]", "0[1]", "1[0]")
    with pytest.raises(IndexError):
        samples.feed(3)
    assert len(open_samples(tmp_path / "0.npy", [X], SampleOptions(limit=10))) == 2


def test_files_of_one_row_are_stacked_into_a_fixed_batch(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / f"{number}.npy", values(4, start=10 * number))
    batch = spec("x", 2, 4)
    samples = open_samples(tmp_path, [batch])
    assert samples.names == ("0..1", "2..3")
    assert samples.feed(1)["x"].tolist() == [[20, 21, 22, 23], [30, 31, 32, 33]]
    assert len(open_samples(tmp_path, [batch], SampleOptions(limit=1))) == 1
    (tmp_path / "3.npy").unlink()
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [batch])
    complaint(caught, "batches of 2", "3 files of one row", fix="--samples 1")
    save(tmp_path / "3.npy", values(2, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [batch])
    complaint(caught, "3.npy holds whole samples", "0.npy holds one row of a batch")


def test_too_few_rows_for_one_batch(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        open_samples(save(tmp_path / "a.npy", values(1, 4)), [spec("x", 8, 4)])
    complaint(caught, "batches of 8", "1 files of one row", fix="at least 8 files")


def test_rows_of_a_batch_must_agree(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(3))
    save(tmp_path / "1.npy", values(5))
    samples = open_samples(tmp_path, [spec("x", 2, "length")])
    with pytest.raises(BadInput) as caught:
        samples.feed(0)
    complaint(caught, "1.npy does not fit the input 'x'", "[1, 5]", "the batch began with [1, 3]")


def test_scalar_and_unknown_rank(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", np.array([1.0, 2.0], dtype="float32"))
    scalars = open_samples(tmp_path / "a.npy", [spec("x")])
    assert [feed["x"].shape for feed in feeds(scalars)] == [(), ()]
    assert scalars.feed(1)["x"] == 2.0
    whole = open_samples(tmp_path / "a.npy", [InputSpec("x", "float32", None)])
    assert whole.feed(0)["x"].shape == (2,)


def test_dynamic_shapes_differ_from_sample_to_sample(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(1, 5))
    save(tmp_path / "1.npy", values(1, 9))
    samples = open_samples(tmp_path, [spec("x", "N", "length")])
    assert [feed["x"].shape for feed in feeds(samples)] == [(1, 5), (1, 9)]


def test_an_empty_tensor_is_a_sample_where_the_axis_is_free(tmp_path: Path) -> None:
    save(tmp_path / "data" / "0.npy", values(0, 4))
    assert open_samples(tmp_path / "data", [spec("boxes", "count", 4)]).feed(0)["boxes"].shape == (0, 4)
    np.savez(tmp_path / "0.npz", boxes=values(0, 4), x=values(1, 4))
    assert open_samples(tmp_path / "0.npz", [spec("boxes", "count", 4), X]).feed(0)["boxes"].shape == (0, 4)
    with pytest.raises(BadInput, match="holds no samples"):
        open_samples(tmp_path / "data" / "0.npy", [spec("x", "N", 4)])
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path / "data", [X])
    complaint(caught, "0.npy holds no samples")


def test_many_samples_in_one_file_cost_names_only(tmp_path: Path) -> None:
    count = 100_000
    save(tmp_path / "a.npy", np.zeros((count, 4), dtype="float32"))
    samples = open_samples(tmp_path / "a.npy", [X])
    assert samples.names[-1] == "99999"
    assert samples.feed(count - 1)["x"].shape == (1, 4)


def test_a_link_back_to_its_own_folder_ends(tmp_path: Path) -> None:
    save(tmp_path / "data" / "0.npy", values(1, 4))
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data", target_is_directory=True)
    assert open_samples(tmp_path / "data", [X]).names == ("0",)


def test_odd_bytes_in_file_names_stay_printable(tmp_path: Path) -> None:
    raw = bytes(tmp_path) + b"/\xc4\xe3.npy"
    with open(raw, "wb") as file:  # noqa: PTH123 - not a valid str path
        np.save(file, values(1, 4))
    samples = open_samples(tmp_path, [X])
    assert samples.names == ("\\xc4\\xe3",)
    assert samples.feed(0)["x"].shape == (1, 4)


# What cannot be read


@pytest.mark.parametrize(
    ("make", "parts", "fix"),
    [
        (lambda d: d / "nowhere", ("nowhere does not exist",), "check the path"),
        (lambda d: d, ("holds no sample files", "'x'", "float32 [1, 4]"), "put samples there"),
        (lambda d: save(d / "a.dat", values(4)), ("a.dat is of no known kind", "tried .npy"), "--data-format"),
        (lambda d: save(d / "a.dat", values(4)).parent, ("a.dat is of no known kind",), "remove it"),
        (lambda d: Path("/dev/null"), ("neither a file nor a folder",), "give a file"),
    ],
)
def test_nothing_readable(tmp_path: Path, make: Callable[[Path], Path], parts: tuple[str, ...], fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_samples(make(tmp_path), [X])
    complaint(caught, *parts, fix=fix)


def test_folder_with_notes_alone(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("a,b")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "holds no sample files beside", "labels.csv")


def test_mixed_kinds_in_one_folder(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(1, 4))
    (tmp_path / "1.jpg").write_bytes(b"")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "mixes kinds of samples", "npy (0.npy)", "images (1.jpg)", fix="list file")


def test_broken_link(tmp_path: Path) -> None:
    (tmp_path / "0.npy").symlink_to(tmp_path / "gone.npy")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "0.npy is neither a file nor a folder (a broken link?)")


def test_several_inputs_need_names(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        open_samples(save(tmp_path / "a.npy", values(1, 4)), [X, MASK])
    complaint(caught, "the model has 2 inputs: 'x', 'mask/in:0'", fix="--data x=PATH --data mask/in:0=PATH")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X, MASK])
    complaint(caught, "no known layout for 2 inputs", "x/, mask_in_0/", "found 1 x .npy", fix="--data x=PATH")


def test_one_array_per_input_named_like_it(tmp_path: Path) -> None:
    x, mask = values(5, 4), np.arange(10, dtype=np.int64).reshape(5, 2)
    save(tmp_path / "x.npy", x)
    save(tmp_path / "mask_in_0.npy", mask)
    found = open_samples(tmp_path, [X, MASK])
    assert len(found) == 5
    for index in range(5):
        fed = found.feed(index)
        np.testing.assert_array_equal(fed["x"], x[index : index + 1])
        np.testing.assert_array_equal(fed["mask/in:0"], mask[index : index + 1])
    # What else is there could be samples, too.
    save(tmp_path / "y.npy", x)
    with pytest.raises(BadInput, match=r"found 3 x \.npy"):
        open_samples(tmp_path, [X, MASK])


def test_folder_of_an_input_is_missing_or_superfluous(tmp_path: Path) -> None:
    save(tmp_path / "x" / "0.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X, MASK])
    complaint(caught, "no folder for the input 'mask/in:0'", "mask_in_0/ with int64 [1, 2]", "found x")
    save(tmp_path / "labels" / "0.npy", values(1))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "labels belongs to none of the inputs ('x')", fix="--data x=PATH")


def test_inputs_whose_names_differ_in_odd_characters_only(tmp_path: Path) -> None:
    save(tmp_path / "a_b" / "0.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [spec("a/b", 1, 4), spec("a:b", 1, 4)])
    complaint(caught, "Inputs share a folder", "'a/b', 'a:b'", fix="--data a/b=PATH --data a:b=PATH")
    np.savez(tmp_path / "s.npz", a_b=values(1, 4))
    with pytest.raises(BadInput, match="no member of its own for the input 'a/b'"):
        open_samples(tmp_path / "s.npz", [spec("a/b", 1, 4), spec("a:b", 1, 4)])


def test_mapping_names_are_checked(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples({"mask": tmp_path}, [X, MASK])
    complaint(caught, "no input 'mask'", fix="did you mean 'mask/in:0'?")
    with pytest.raises(BadInput) as caught:
        open_samples({"x": tmp_path}, [X, MASK])
    complaint(caught, "no samples for the input 'mask/in:0'", "int64 [1, 2]", fix="--data mask/in:0=PATH")


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        (
            {"x": values(1, 4)},
            ("no member of its own for the input 'mask/in:0'", "int64 [1, 2]", "found members 'x'"),
        ),
        ({"x": values(1, 4), "y": values(1)}, ("member 'y', which is no input of the model",)),
        (
            {"x": values(1, 4), "mask/in:0": values(1, 2, dtype="int64"), "label": values(1)},
            ("member 'label', which is no input of the model ('x', 'mask/in:0')",),
        ),
    ],
)
def test_members_must_be_the_inputs(tmp_path: Path, arrays: dict[str, Array], parts: tuple[str, ...]) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path / "a.npz", [X, MASK])
    complaint(caught, *parts, fix="save")


def test_a_member_that_is_no_array_is_not_taken_for_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=values(1, 4))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("x", b"hello")
    with pytest.raises(BadInput, match="has a member 'x', which is no input of the model"):
        open_samples(tmp_path / "a.npz", [X])


def test_asked_for_format_must_be_what_is_there(tmp_path: Path) -> None:
    save(tmp_path / "0.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X], SampleOptions(format="bin"))
    complaint(caught, "0.npy is npy, but bin was asked for", fix="--data-format npy")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X], SampleOptions(format="list"))
    complaint(caught, "is a folder, not a list file")


def test_format_names_files_with_odd_suffixes(tmp_path: Path) -> None:
    save(tmp_path / "0.dat", values(1, 4))
    assert open_samples(tmp_path, [X], SampleOptions(format="bin")).feed(0)["x"].tolist() == [[0, 1, 2, 3]]
    np.savez(tmp_path / "1.npz", x=values(1, 4))
    (tmp_path / "0.dat").unlink()
    (tmp_path / "1.npz").rename(tmp_path / "1.sample")
    assert len(open_samples(tmp_path, [X], SampleOptions(format="npz"))) == 1


def test_model_without_inputs_and_inputs_without_numbers(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [])
    complaint(caught, "no inputs", fix="leave --data out")
    for dtype in ("object", "str", "bfloat17"):
        with pytest.raises(BadInput) as caught:
            open_samples(tmp_path, [spec("text", 1, dtype=dtype)])
        complaint(caught, f"'text' takes {dtype} [1]", "samples cannot be read for")
