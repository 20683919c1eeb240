"""Manifests of every kind, and what is said about wrong ones."""

import json
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.tensors.manifest import find_manifest, read_manifest

GOOD: dict[str, object] = {"name": "a", "dtype": "float32", "shape": [1, 2]}


def read(
    folder: Path, content: object, name: str = "manifest.json"
) -> list[tuple[str, str, tuple[int, ...], str]]:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return [(entry.name, entry.dtype, entry.shape, entry.file) for entry in read_manifest(folder / name).tensors]


def complaint(folder: Path, content: object, name: str = "manifest.json") -> str:
    with pytest.raises(BadInput) as caught:
        read(folder, content, name)
    return caught.value.what


def test_a_list_and_an_object_are_manifests(tmp_path: Path) -> None:
    listed: list[dict[str, object]] = [GOOD, {"name": "b", "dtype": "int8", "shape": [], "file": "sub/b.bin"}]
    named = {str(entry["name"]): {key: entry[key] for key in entry if key != "name"} for entry in listed}
    expected = [("a", "float32", (1, 2), ""), ("b", "int8", (), "sub/b.bin")]
    assert read(tmp_path, listed) == expected
    assert read(tmp_path, named) == expected


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1x3x8x8", (1, 3, 8, 8)),
        ('"1,3,8,8"', (1, 3, 8, 8)),
        ("1,3,8,8", (1, 3, 8, 8)),
        ('"[1, 3, 8, 8]"', (1, 3, 8, 8)),
        ('"(5,)"', (5,)),
        ("1 3 8 8", (1, 3, 8, 8)),
        ("7", (7,)),
        ("", ()),
        ("[]", ()),
        ("2x0", (2, 0)),
        ("1,3,,", (1, 3)),
    ],
)
def test_shapes_are_read_as_people_write_them(tmp_path: Path, text: str, shape: tuple[int, ...]) -> None:
    assert read(tmp_path, f"name,dtype,shape\na,float32,{text}\n", "manifest.csv")[0][2] == shape


@pytest.mark.parametrize("text", ["1x", "x1", "1xx2", "1x?x3", "-1x2", "1.5", "1" * 20, "\u00b2"])
def test_a_shape_with_a_gap_is_none(tmp_path: Path, text: str) -> None:
    assert f"{text!r} is not a shape" in complaint(tmp_path, [GOOD | {"shape": text}])


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffname,dtype,shape,file\r\n a b,fp16,1x2,x.bin\r\n\r\n",
        'Name ; DType ; Shape ; File\n a b;fp16;"1,2";x.bin\n',
        "name\tdtype\tshape\tfile\n a b\tfp16\t1,2\tx.bin",
    ],
)
def test_tables_come_in_dialects(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, "tensors.csv") == [(" a b", "fp16", (1, 2), "x.bin")]


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    entries = [
        {"name": "a", "dtyp": "float32", "shape": [1]},
        {"name": "b", "dtype": "flaot32", "shape": [1]},
        {"name": 3, "dtype": "i8", "shape": [1, -2]},
        {"name": "d", "dtype": "float32", "shape": "1x?x3", "file": "../d.bin"},
        {"name": "e", "dtype": "float32", "shape": [1.5]},
        {"name": "f", "dtype": "float32", "shape": None},
    ]
    assert complaint(tmp_path, entries).splitlines() == [
        f"The manifest {tmp_path / 'manifest.json'} has 10 errors:",
        "  entry 1 dtype: missing",
        "  entry 1 dtyp: unknown key; did you mean 'dtype'?",
        "  entry 2 dtype: unknown dtype 'flaot32'; did you mean 'float32'?",
        "  entry 3 name: Input should be a valid string, got 3",
        "  entry 3 dtype: dtype 'i8' could count bits or bytes; write it out, as in 'int8' or 'int64'",
        "  entry 3 shape: Input should be greater than or equal to 0, got -2",
        "  entry 4 shape: '1x?x3' is not a shape; write it like 1x3x8x8, with every size known",
        "  entry 4 file: '../d.bin' leaves the folder of the manifest; only files below it are read",
        "  entry 5 shape: Input should be a valid integer, got 1.5",
        "  entry 6 shape: Input should be a list of sizes, got None",
    ]


def test_places_are_named_in_the_readers_words(tmp_path: Path) -> None:
    assert "  'conv' shap: unknown key; did you mean 'shape'?" in complaint(
        tmp_path, {"conv": {"dtype": "int8", "shape": [1], "shap": 1}}
    )
    table = "name,dtype,shape\na,float32,1\n\nb,floot,1\n"
    assert "  line 4 dtype: unknown dtype 'floot'" in complaint(tmp_path, table, "manifest.csv")
    document = {"format": "roundoff-tensors", "version": 2, "order": True, "tensors": [{}]}
    text = complaint(tmp_path, document, "tensors.json")
    assert "  version: Input should be 1, got 2" in text
    assert "  order: unknown key; did you mean 'ordered'?" in text
    assert "  tensors[0] name: missing" in text


def test_a_long_list_of_errors_is_cut(tmp_path: Path) -> None:
    lines = complaint(tmp_path, [{"name": str(number)} for number in range(30)]).splitlines()
    assert lines[0].endswith("has 60 errors:")
    assert lines[-1] == "  and 40 more"


@pytest.mark.parametrize(
    "file",
    ["/etc/passwd", "../a.bin", "x/../../a.bin", "..", "C:\\a.bin", "C:a.bin", "\\a.bin", "x\\..\\..\\a.bin"],
)
def test_files_outside_the_folder_are_refused(tmp_path: Path, file: str) -> None:
    assert "leaves the folder of the manifest" in complaint(tmp_path, [{**GOOD, "file": file}])


def test_a_file_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    assert "is not a file name" in complaint(tmp_path, [{**GOOD, "file": "a\0b"}])


@pytest.mark.parametrize("file", ["a..b/c.bin", "...", "./a.bin", "a/b\u00e9.bin"])
def test_odd_files_inside_the_folder_are_fine(tmp_path: Path, file: str) -> None:
    assert read(tmp_path, [{**GOOD, "file": file}])[0][3] == file


def test_the_same_tensor_twice_is_an_error(tmp_path: Path) -> None:
    assert "  entry 2: the tensor 'a' is already listed at entry 1" in complaint(tmp_path, [GOOD, GOOD])
    assert "the key 'a' stands twice in one object" in complaint(tmp_path, '{"a": {}, "a": {}}')


def test_samples_must_be_announced_once(tmp_path: Path) -> None:
    document = {"format": "roundoff-tensors", "version": 1, "ordered": True, "samples": ["img1", "img1"]}
    text = complaint(tmp_path, {**document, "tensors": [{**GOOD, "sample": "img"}]})
    assert "  tensors[0]: unknown sample 'img'; did you mean 'img1'?" in text
    assert "  samples: a sample is listed twice" in text


def test_samples_are_collected_when_not_announced(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps([{**GOOD, "sample": "y"}, {**GOOD, "sample": "x"}]))
    assert read_manifest(tmp_path / "m.json").samples == ["y", "x"]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("{", "m.json", "is not JSON"),
        ("[" * 100_000, "m.json", "is nested too deep"),
        ("[]", "m.json", "lists no tensors"),
        ("", "m.csv", "has no header: its first line is ''"),
        ("a,float32,1\n", "m.csv", "has no header: its first line is 'a,float32,1'"),
        ("name,dtype,shape\n", "m.csv", "lists no tensors"),
        ("name,dtype,shape,file\na,float32,1,3,x.bin\n", "m.csv", "line 2 has 5 values for 4 columns"),
        ('name,dtype,shape\n"a', "m.csv", "cannot be read as CSV"),
        ("[3]", "m.json", "entry 1: Input should be an object with name, dtype and shape, got 3"),
        ("3", "m.json", "is no manifest"),
    ],
)
def test_files_that_are_no_manifest_say_so(tmp_path: Path, content: str, name: str, message: str) -> None:
    assert message in complaint(tmp_path, content, name)


def test_a_manifest_of_bytes_that_are_no_text_says_so(tmp_path: Path) -> None:
    for name in ("m.json", "m.csv"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\xd8name")
        with pytest.raises(BadInput, match="is not"):
            read_manifest(tmp_path / name)


def test_a_missing_manifest_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The manifest .* does not exist"):
        read_manifest(tmp_path / "m.json")


def test_two_manifests_are_one_too_many(tmp_path: Path) -> None:
    assert find_manifest(tmp_path) is None
    (tmp_path / "manifest.csv").write_text("")
    assert find_manifest(tmp_path) == tmp_path / "manifest.csv"
    (tmp_path / "tensors.json").write_text("")
    with pytest.raises(BadInput, match=r"more than one manifest: tensors\.json and manifest\.csv") as caught:
        find_manifest(tmp_path)
    assert caught.value.fix == f"give the one to use: {tmp_path / 'tensors.json'}"
