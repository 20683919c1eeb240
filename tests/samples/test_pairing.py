"""Files of several inputs come together by name, completely or not at all."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.names import natural_key
from roundoff.errors import BadInput
from roundoff.samples.columns import unique_names
from roundoff.samples.sample_set import open_samples
from tests.samples.support import complaint, save, spec, values

A = spec("a", 1)
B = spec("b", 1)
STEMS = st.text("ab0123456789", min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.sets(STEMS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_pairs_by_stem_whatever_the_order_of_writing(stems: set[str], random: Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for index, stem in enumerate(sorted(stems)):
            save(Path(folder, "a", f"{stem}.npy"), values(1, start=index))
        shuffled = list(enumerate(sorted(stems)))
        random.shuffle(shuffled)
        for index, stem in shuffled:
            save(Path(folder, "b", f"{stem}.bin"), values(1, start=index))
        samples = open_samples(Path(folder), [A, B])
        assert set(samples.names) == stems
        for index in range(len(samples)):
            feed = samples.feed(index)
            assert feed["a"] == feed["b"] == sorted(stems).index(samples.names[index])


@settings(max_examples=25, deadline=None)
@given(st.sets(STEMS, min_size=1, max_size=5), st.sets(STEMS, min_size=1, max_size=5))
def test_any_file_without_partner_is_named(left: set[str], right: set[str]) -> None:
    if left == right:
        right = right | {"extra"}
    with tempfile.TemporaryDirectory() as folder:
        for name, stems in (("a", left), ("b", right)):
            for stem in stems:
                save(Path(folder, name, f"{stem}.npy"), values(1))
        with pytest.raises(BadInput) as caught:
            open_samples(Path(folder), [A, B])
        first = min(left ^ right, key=natural_key)
        owner, lacking = ("a", "b") if first in left else ("b", "a")
        complaint(
            caught,
            f"{Path(folder, owner, first)}.npy of the input {owner!r} has no partner for the input {lacking!r}",
            f"expected {Path(folder, lacking, first)}.npy with float32 [1]",
            fix="add the missing file",
        )
        others = len(left ^ right) - 1
        assert (f"({others} more like it)" in caught.value.what) == (others > 0)


def test_two_files_for_one_sample(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.bin", values(1))
    save(tmp_path / "a" / "1.raw", values(1))
    save(tmp_path / "b" / "1.npy", values(1))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [A, B])
    complaint(caught, "1.bin and", "1.raw both stand for the sample '1' of the input 'a'", fix="keep one")


def test_files_of_different_length_that_belong_together(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.npy", values(3))
    save(tmp_path / "b" / "1.npy", values(2))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [A, B])
    complaint(caught, "different numbers of samples", "1.npy holds 3", "1.npy holds 2", fix="same samples")


def test_a_free_batch_follows_a_fixed_one(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.npy", values(3))
    save(tmp_path / "b" / "1.npy", values(3))
    samples = open_samples(tmp_path, [A, spec("b", None)])
    assert samples.names == ("1[0]", "1[1]", "1[2]")
    assert samples.feed(2)["b"].tolist() == [2]


def test_folders_and_files_do_not_mix(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.npy", values(1))
    with pytest.raises(BadInput) as caught:
        open_samples({"a": tmp_path / "a", "b": save(tmp_path / "b.npy", values(1))}, [A, B])
    complaint(caught, "'a' is a folder, 'b' is a file", fix="every input as a folder")


def test_lists_of_different_length(tmp_path: Path) -> None:
    save(tmp_path / "1.npy", values(1))
    (tmp_path / "a.txt").write_text("1.npy\n1.npy\n")
    (tmp_path / "b.txt").write_text("1.npy\n")
    with pytest.raises(BadInput) as caught:
        open_samples({"a": tmp_path / "a.txt", "b": tmp_path / "b.txt"}, [A, B])
    complaint(caught, "'a' has 2 file(s), but 'b' has 1", fix="same number of files")


@given(st.lists(st.text("ab#12", max_size=4), max_size=12))
def test_names_are_always_unique(names: list[str]) -> None:
    result = unique_names(names, names)
    assert len(set(result)) == len(names)
    for name, made in zip(names, result, strict=True):
        assert made.startswith(name)
        if names.count(name) == 1 and not any(
            other.startswith(f"{name[:-2]}") for other in names if other != name
        ):
            assert made == name
