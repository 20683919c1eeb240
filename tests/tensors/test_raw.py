"""Raw files, described by a manifest or by a model."""

from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from roundoff.core.tensors import TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source


def put(path: Path, values: object, dtype: npt.DTypeLike = np.float32) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.asarray(values).astype(np.dtype(dtype)).tobytes())


def test_a_csv_manifest_describes_the_files(tmp_path: Path) -> None:
    put(tmp_path / "conv1.bin", [[1, 2], [3, 4]])
    put(tmp_path / "sub" / "x.raw", [7], np.int16)
    put(tmp_path / "s.dat", 5, ">i4")
    (tmp_path / "manifest.csv").write_text(
        'name,dtype,shape,file\nconv1,float32,2x2,\n/sub/x,int16,"1",sub/x.raw\ns,>i4,,s.dat\n'
    )
    source = open_source(tmp_path)
    assert source.tensors == (
        TensorInfo("conv1", "float32", (2, 2)),
        TensorInfo("/sub/x", "int16", (1,)),
        TensorInfo("s", "int32", ()),
    )
    assert not source.ordered
    assert source.read("conv1", "").tolist() == [[1, 2], [3, 4]]
    assert source.read("/sub/x", "").tolist() == [7]
    assert source.read("s", "") == 5


def test_names_find_their_files_without_being_told(tmp_path: Path) -> None:
    files = {"plain": "plain.bin", "/net/a": "net/a.raw", "b:0": "b_0.dat", "with.bin": "with.bin"}
    for file in files.values():
        put(tmp_path / file, [1])
    rows = [f"{name},fp32,1" for name in [*files, "absent"]]
    (tmp_path / "tensors.csv").write_text("\n".join(["name,dtype,shape", *rows]))
    source = open_source(tmp_path)
    problems = {info.name: info.problem for info in source.tensors}
    assert problems == {**dict.fromkeys(files, ""), "absent": "no file of this name is there"}
    with pytest.raises(BadInput) as caught:
        source.read("absent", "")
    assert caught.value.fix == 'say which file it is: add "file" to its entry'


def test_a_sample_column_finds_files_in_folders_of_samples(tmp_path: Path) -> None:
    for number in (0, 1):
        put(tmp_path / str(number) / "a.bin", [number])
    (tmp_path / "manifest.csv").write_text("name,dtype,shape,sample\na,float32,1,0\na,float32,1,1\n")
    source = open_source(tmp_path)
    assert source.samples == ("0", "1")
    assert source.read("a", "1").tolist() == [1]


def test_the_byte_count_must_fit(tmp_path: Path) -> None:
    put(tmp_path / "a.bin", np.zeros(100))
    put(tmp_path / "unlisted.bin", [1])
    (tmp_path / "manifest.csv").write_text("name,dtype,shape\na,float32,1x3x8x8\n")
    source = open_source(tmp_path)
    assert source.tensors == (
        TensorInfo(
            "a",
            "float32",
            (1, 3, 8, 8),
            problem="has 400 bytes, but float32 [1, 3, 8, 8] by manifest.csv takes 768",
        ),
        TensorInfo("unlisted", problem="its type and shape are not known"),
    )
    with pytest.raises(BadInput) as caught:
        source.read("a", "")
    assert caught.value.fix == "correct manifest.csv, or write the file again"


def test_any_byte_that_is_not_zero_is_true(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes([0, 1, 2, 255]))
    (tmp_path / "manifest.csv").write_text("name,dtype,shape\na,bool,4\n")
    values = open_source(tmp_path).read("a", "")
    assert values.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_bfloat16_is_read_exactly_as_float32(tmp_path: Path) -> None:
    put(tmp_path / "a.bin", [1.5, -3e38], ml_dtypes.bfloat16)
    (tmp_path / "manifest.csv").write_text("name,dtype,shape\na,bf16,2\n")
    source = open_source(tmp_path)
    assert source.tensors[0].dtype == "bfloat16"
    values = source.read("a", "")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, np.array([1.5, -3e38], ml_dtypes.bfloat16).astype(np.float32))


MODEL = (
    TensorInfo("x", "float32", (1, 2), node="n0", op_type="Conv"),
    TensorInfo("/net/relu:0", "float32", (1, 2), node="n1", op_type="Relu"),
    TensorInfo("text", "object", (1,)),
    TensorInfo("never dumped", "float32", (9,)),
)


def test_a_model_describes_the_files(tmp_path: Path) -> None:
    put(tmp_path / "_net_relu_0.bin", [[1, 2]])
    put(tmp_path / "x.bin", [[3, 4]])
    put(tmp_path / "text.bin", [0])
    put(tmp_path / "other.bin", [0])
    source = open_source(tmp_path, shapes=MODEL)
    assert source.ordered
    names = [(info.name, info.node, bool(info.problem)) for info in source.tensors]
    assert names == [("x", "n0", False), ("/net/relu:0", "n1", False), ("text", "", True), ("other", "", True)]
    assert source.tensors[2].problem.startswith("the model says unknown dtype 'object'")
    assert source.read("/net/relu:0", "").tolist() == [[1, 2]]


def test_a_model_describes_samples_and_single_files(tmp_path: Path) -> None:
    for number in (0, 1):
        put(tmp_path / str(number) / "x.bin", [[number, 0]])
    assert open_source(tmp_path, shapes=MODEL).samples == ("0", "1")
    assert open_source(tmp_path / "1" / "x.bin", shapes=MODEL).read("x", "").tolist() == [[1, 0]]


@pytest.mark.parametrize("single", [False, True])
def test_raw_files_alone_say_nothing(tmp_path: Path, single: bool) -> None:
    put(tmp_path / "a.bin", [1])
    with pytest.raises(BadInput, match="raw values without a word on their type and shape") as caught:
        open_source(tmp_path / "a.bin" if single else tmp_path)
    assert "manifest.csv" in caught.value.fix
    assert "--model" in caught.value.fix


def test_a_model_that_knows_none_of_the_files_is_no_help(tmp_path: Path) -> None:
    put(tmp_path / "a.bin", [1])
    with pytest.raises(BadInput, match="none of its 1 raw files is named like a tensor of the model"):
        open_source(tmp_path, shapes=MODEL)


def test_two_files_of_one_name_are_not_guessed_between(tmp_path: Path) -> None:
    put(tmp_path / "x.bin", [[1, 2]])
    put(tmp_path / "x.raw", [[3, 4]])
    source = open_source(tmp_path, shapes=MODEL)
    assert [info.problem.startswith("stored twice: in ") for info in source.tensors] == [True]


def test_a_manifest_without_files_and_samples_describes_every_sample(tmp_path: Path) -> None:
    for number in (0, 1):
        put(tmp_path / f"sample{number}" / "a.bin", [number])
        put(tmp_path / f"sample{number}" / "b.bin", [number, number])
    (tmp_path / "manifest.csv").write_text("name,dtype,shape\nb,float32,2\na,float32,1\n")
    source = open_source(tmp_path)
    assert source.samples == ("sample0", "sample1")
    assert [(info.name, info.problem) for info in source.tensors] == [("b", ""), ("a", "")]
    assert source.read("b", "sample1").tolist() == [1, 1]
