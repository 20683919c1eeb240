"""Golden folders under Ascend's names, as its tools write them and as roundoff does."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.ascend_npy import GoldenName, parse_name
from roundoff.tensors.writer import open_writer

TIME = 1_700_000_100_000_000


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        np.save(folder / name, np.array([number]))


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("conv1.0.1700000100000001.npy", GoldenName("conv1", 0, 1700000100000001)),
        ("a.b.12.5.npy", GoldenName("a.b", 12, 5)),
        ("conv1.0.npy", None),
        ("conv1.x.17.npy", None),
        (".0.17.npy", None),
    ],
)
def test_names_have_three_fields(file: str, fields: GoldenName | None) -> None:
    assert parse_name(file) == fields


def test_times_that_differ_tell_the_order(tmp_path: Path) -> None:
    put(tmp_path, f"relu1.0.{TIME + 2}.npy", f"split.1.{TIME + 1}.npy", f"split.0.{TIME + 1}.npy")
    source = open_source(tmp_path)
    assert source.ordered
    assert source.tensors == (
        TensorInfo("split.0", "int64", (1,), node="split"),
        TensorInfo("split.1", "int64", (1,), node="split"),
        TensorInfo("relu1.0", "int64", (1,), node="relu1"),
    )
    assert source.read("relu1.0", "").tolist() == [0]


def test_equal_times_tell_no_order(tmp_path: Path) -> None:
    put(tmp_path, f"conv10.0.{TIME}.npy", f"conv2.0.{TIME}.npy")
    source = open_source(tmp_path)
    assert not source.ordered
    assert [info.name for info in source.tensors] == ["conv2.0", "conv10.0"]


def test_the_newest_of_several_dumps_counts_and_the_others_are_listed(tmp_path: Path) -> None:
    put(tmp_path, f"a.0.{TIME}.npy", f"a.0.{TIME + 5}.npy", f"b.0.{TIME + 1}.npy")
    source = open_source(tmp_path)
    problem = f"an older dump of the same output; the one of {TIME + 5} is used"
    assert [(info.name, info.problem) for info in source.tensors] == [
        ("b.0", ""),
        ("a.0", ""),
        (f"a.0@{TIME}", problem),
    ]
    assert source.read("a.0", "").tolist() == [1]
    with pytest.raises(BadInput, match="an older dump") as caught:
        source.read(f"a.0@{TIME}", "")
    assert caught.value.fix == "read 'a.0', or move the newer file away"


@pytest.mark.parametrize("suffix", [".npy", ""])
def test_numbered_files_are_found_through_the_mapping(tmp_path: Path, suffix: str) -> None:
    long = "op_" + "x" * 300
    put(tmp_path, f"a.0.{TIME}.npy", f"{TIME}0.npy", f"{TIME}1.npy")
    (tmp_path / "mapping.csv").write_text(f"{TIME}0{suffix},{long}.2.{TIME}.npy\nnot,a,number\n")
    source = open_source(tmp_path, format="ascend-npy")
    assert [info.name for info in source.tensors] == ["a.0", f"{long}.2", f"{TIME}1"]
    assert source.tensors[1].node == long
    assert source.read(f"{long}.2", "").tolist() == [1]


def test_folders_called_like_samples_are_samples_whatever_the_times(tmp_path: Path) -> None:
    for sample in range(2):
        put(tmp_path / str(sample), f"a.0.{TIME + sample}.npy", f"b.0.{TIME + 10 + sample}.npy")
    source = open_source(tmp_path)
    assert source.samples == ("0", "1")
    assert [info.name for info in source.tensors] == ["a.0", "b.0"]


@pytest.mark.parametrize("names", [("conv.0.1.npy", "fc.0.2.npy"), (f"a.0.{TIME}.npy", "b.npy", "c.npy")])
def test_files_that_only_resemble_golden_ones_keep_their_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    put(tmp_path, *names)
    stems = [name.removesuffix(".npy") for name in names]
    assert [info.name for info in open_source(tmp_path).tensors] == stems


def test_other_files_among_golden_ones_are_listed(tmp_path: Path) -> None:
    put(tmp_path, f"a.0.{TIME}.npy", f"b.0.{TIME + 1}.npy", "extra.npy")
    source = open_source(tmp_path)
    assert [info.name for info in source.tensors] == ["a.0", "b.0", "extra"]
    assert not source.ordered


def test_what_roundoff_writes_has_the_vendors_names(tmp_path: Path) -> None:
    nodes = ["/net/conv 1", "net.relu", "net_relu", "NET:relu", "x" * 300, "y" * 300]
    with open_writer(tmp_path, "ascend-npy", samples=[""], timestamp_us=TIME) as writer:
        writer.begin_sample("")
        for number, node in enumerate(nodes):
            writer.write(TensorInfo(f"t{number}", node=node), np.array([number]))
        writer.write(TensorInfo("t6", node=nodes[0]), np.array([6]), output_index=1)
        writer.write(TensorInfo("t7", node=nodes[0]), np.array([7]), output_index=1)
        writer.write(TensorInfo("input:0"), np.array([8]))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            f"_net_conv_1.0.{TIME}.npy",
            f"_net_conv_1.1.{TIME}.npy",
            f"_net_conv_1_2.1.{TIME}.npy",
            f"net_relu.0.{TIME}.npy",
            f"net_relu_2.0.{TIME}.npy",
            f"NET_relu_3.0.{TIME}.npy",
            f"input_0.0.{TIME}.npy",
            f"{TIME}0.npy",
            f"{TIME}1.npy",
            "mapping.csv",
            "tensors.json",
        ]
    )
    mapping = f"{TIME}0.npy,{'x' * 300}.0.{TIME}.npy\n{TIME}1.npy,{'y' * 300}.0.{TIME}.npy\n"
    assert (tmp_path / "mapping.csv").read_text() == mapping
    for name in (None, "ascend-npy"):
        source = open_source(tmp_path, format=name)
        assert [info.name for info in source.tensors] == [*(f"t{number}" for number in range(8)), "input:0"]
        assert [source.read(info.name, "").item() for info in source.tensors] == list(range(9))


def test_the_vendors_reader_needs_no_map(tmp_path: Path) -> None:
    with open_writer(tmp_path, "ascend-npy", samples=["a", "b"], timestamp_us=TIME) as writer:
        for sample in ("a", "b"):
            writer.begin_sample(sample)
            writer.write(TensorInfo("t", node="long" * 100), np.array([ord(sample)]), output_index=3)
    (tmp_path / "tensors.json").unlink()
    source = open_source(tmp_path / "b", format="ascend-npy")
    assert source.read("long" * 100 + ".3", "").tolist() == [ord("b")]


@pytest.mark.parametrize("length", [254, 255])
def test_names_of_255_bytes_are_too_long(tmp_path: Path, length: int) -> None:
    node = "n" * (length - len(f".0.{TIME}.npy"))
    with open_writer(tmp_path, "ascend-npy", samples=[""], timestamp_us=TIME) as writer:
        writer.begin_sample("")
        writer.write(TensorInfo("t", node=node), np.array([1]))
    assert (tmp_path / "mapping.csv").exists() == (length == 255)
