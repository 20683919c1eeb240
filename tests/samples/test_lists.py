"""List files."""

from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.samples.columns import unique_names
from roundoff.samples.options import SampleOptions
from roundoff.samples.sample_set import open_samples
from tests.samples.support import complaint, save, spec, values

X = spec("x", 1, 4)
IDS = spec("ids:0", 1, 2, dtype="int64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "data" / "my file.npy", values(1, 4))
    save(tmp_path / "data" / "b.bin", values(1, 4, start=10))
    save(tmp_path / "data" / "ids.npy", values(1, 2, dtype="int64"))
    return tmp_path


def test_one_input_mixing_kinds_with_comments_and_blanks(folder: Path) -> None:
    text = "\ufeff# calibration set\n\n  data/my file.npy  \r\ndata/b.bin\nx:data/b.bin\n"
    (folder / "list.txt").write_text(text, encoding="utf-8")
    samples = open_samples(folder / "list.txt", [X])
    assert samples.names == ("my file", "data/b.bin", "data/b.bin#2")
    assert [samples.feed(index)["x"][0, 0] for index in range(3)] == [0, 10, 10]


def test_names_are_stems_and_paths_where_stems_clash(folder: Path) -> None:
    save(folder / "other" / "b.npy", values(1, 4))
    (folder / "list.txt").write_text("data/b.bin\nother/b.npy\ndata/my file.npy\ndata/b.bin\n")
    names = open_samples(folder / "list.txt", [X]).names
    assert names == ("data/b.bin", "other/b.npy", "my file", "data/b.bin#2")


@pytest.mark.parametrize(
    "line",
    ["data/b.bin data/ids.npy", "x:data/b.bin\tids:0:data/ids.npy", "ids:0:=data/ids.npy x:=data/b.bin"],
)
def test_several_inputs_by_order_or_by_name(folder: Path, line: str) -> None:
    (folder / "list.lst").write_text(line)
    feed = open_samples(folder / "list.lst", [X, IDS]).feed(0)
    assert feed["x"].tolist() == [[10, 11, 12, 13]]
    assert feed["ids:0"].tolist() == [[0, 1]]


def test_a_list_per_input_and_absolute_paths(folder: Path) -> None:
    (folder / "x.txt").write_text(f"{folder}/data/b.bin\n")
    (folder / "ids.txt").write_text("data/ids.npy\n")
    samples = open_samples({"x": folder / "x.txt", "ids:0": folder / "ids.txt"}, [X, IDS])
    assert samples.names == ("b",)


def test_any_suffix_when_asked(folder: Path) -> None:
    (folder / "samples.index").write_text("data/b.bin\n")
    assert len(open_samples(folder / "samples.index", [X], SampleOptions(format="list"))) == 1


@pytest.mark.parametrize(
    ("text", "parts", "fix"),
    [
        ("", ("list.txt lists no samples",), "one path per line"),
        ("# nothing\n", ("list.txt lists no samples",), "one path per line"),
        ("\ndata/b.bin\n", ("line 2 names 1 file(s), expected 2: x:PATH ids:0:PATH",), "one path per input"),
        ("x:data/b.bin data/ids.npy", ("line 1 has no file for the input 'ids:0'", "int64 [1, 2]"), "ids:0:PATH"),
        ("data/c.bin data/ids.npy", ("line 1: ", "data/c.bin is not a file", "'x'"), "without labels"),
    ],
)
def test_lines_that_do_not_fit(folder: Path, text: str, parts: tuple[str, ...], fix: str) -> None:
    (folder / "list.txt").write_text(text)
    with pytest.raises(BadInput) as caught:
        open_samples(folder / "list.txt", [X, IDS])
    complaint(caught, *parts, fix=fix)


def test_labels_behind_paths_and_unknown_kinds(folder: Path) -> None:
    (folder / "list.txt").write_text("data/b.bin 7\n")
    with pytest.raises(BadInput) as caught:
        open_samples(folder / "list.txt", [X])
    complaint(caught, "data/b.bin 7 is not a file", fix="without labels behind them")
    save(folder / "a.dat", values(4))
    (folder / "list.txt").write_text("a.dat\n")
    with pytest.raises(BadInput) as caught:
        open_samples(folder / "list.txt", [X])
    complaint(caught, "list.txt lists a.dat, which is of no known kind (suffix .dat)")


def test_not_a_text(folder: Path) -> None:
    (folder / "list.txt").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadInput) as caught:
        open_samples(folder / "list.txt", [X])
    complaint(caught, "not UTF-8 text (byte 0)", fix="save the list as UTF-8")


def test_names_of_a_file_listed_again_and_again_take_no_square_of_their_number() -> None:
    names = unique_names(["a"] * 20_000, ["a"] * 20_000)
    assert (names[:3], names[-1], len(set(names))) == (("a", "a#2", "a#3"), "a#20000", 20_000)
