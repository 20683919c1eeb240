"""Dump files and folders as sources of tensors."""

import contextlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.header import MAX_HEADER_BYTES, read_dump
from tests.ascend_dumps import TIME, Item, field, item, small_dump, vectors, write_dump, write_dumps
from tests.contracts.format_contract import FormatContract


class TestDumpFolder(FormatContract):
    format = "ascend-dump"
    names = ("conv2.0", "conv10.0", "fc.0")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        return write_dumps(folder, {name.removesuffix(".0"): array for name, array in tensors.items()})

    def damage(self, path: Path, name: str) -> None:
        (file,) = path.glob(f"Op.{name.removesuffix('.0')}.*")
        file.write_bytes(file.read_bytes()[:-1])


def test_inputs_outputs_and_their_operator_are_told(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    write_dump(tmp_path / f"Add.net_add.1.2.{TIME}", [item(values)], [item(values + 1), item(values + 2)],
               op_name="net/add")  # fmt: skip
    source = open_source(tmp_path)
    assert [(info.name, info.node, info.op_type) for info in source.tensors] == [
        ("net_add.input.0", "net/add", "Add"),
        ("net_add.input.1", "net/add", "Add"),
        ("net_add.0", "net/add", "Add"),
    ]
    for name, truth in (("net_add.input.0", values + 1), ("net_add.input.1", values + 2), ("net_add.0", values)):
        np.testing.assert_array_equal(source.read(name, ""), truth)


@pytest.mark.parametrize(
    "name",
    [f"Op.a.1.2.{TIME}", f"Op.a.1.{TIME}", f"Op.a.1.2.{TIME}.4.7.0.0", f"Op.a.1.2.{TIME}.0"],
    ids=["five fields", "old four fields", "one slice", "a task type alone"],
)
def test_every_kind_of_name(tmp_path: Path, name: str) -> None:
    write_dump(tmp_path / name, [item(np.array([1, 2], np.float32))])
    assert open_source(tmp_path).read("a.0", "").tolist() == [1, 2]
    assert open_source(tmp_path / name).read("a.0", "").tolist() == [1, 2]


def test_over_long_names_are_found_through_the_mapping(tmp_path: Path) -> None:
    long = "x" * 300
    write_dump(tmp_path / "1234567", [item(np.array([1], np.float32))])
    (tmp_path / "mapping.csv").write_text(f"1234567,Op.{long}.1.2.{TIME}\n")
    assert [info.name for info in open_source(tmp_path).tensors] == [f"{long}.0"]


def test_the_newest_dump_of_an_operator_counts(tmp_path: Path) -> None:
    for place in range(2):
        write_dump(tmp_path / f"Op.a.1.2.{TIME + place}", [item(np.array([place], np.float32))])
    source = open_source(tmp_path)
    assert source.read("a.0", "").tolist() == [1]
    assert source.tensors[1].problem == f"an older dump of the same operator; the one of {TIME + 1} is used"


def test_steps_of_one_run_are_samples(tmp_path: Path) -> None:
    for step in range(2):
        folder = tmp_path / "20240101000000" / "0" / "net" / "1" / str(step)
        folder.mkdir(parents=True)
        write_dumps(folder, {"a": np.array([step], np.float32), "b": np.array([9], np.float32)})
    source = open_source(tmp_path)
    assert source.samples == ("0", "1")
    assert [info.name for info in source.tensors] == ["a.0", "b.0"]
    assert source.read("a.0", "1").tolist() == [1]


def test_the_small_variant_is_read(tmp_path: Path) -> None:
    truth = np.arange(6, dtype=np.float32).reshape(2, 3)
    small_dump(tmp_path / "Op.a.0.0.550288648", truth)
    np.testing.assert_array_equal(open_source(tmp_path, format="ascend-dump").read("a.0", ""), truth)


def test_a_real_dump_of_the_small_variant() -> None:
    folder = vectors("upstream/msprobe_msaccucmp_ut")
    source = open_source(folder / "ConcatV2D.concatv2.0.0.550288648")
    left, right, both = (source.read(f"concatv2.{name}", "") for name in ("input.0", "input.1", "0"))
    np.testing.assert_array_equal(np.concatenate([left, right], axis=1), both)


def test_statistics_are_told_as_such(tmp_path: Path) -> None:
    header = (
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
        "Negative Inf Count,Positive Inf Count\n"
    )
    (tmp_path / f"Op.a.1.2.{TIME}.csv").write_text(header + "Output,0,8,DT_FLOAT,ND,1x2,2,-1,0.5,2,1,0,0\n")
    (info,) = open_source(tmp_path).tensors
    assert (info.name, info.problem) == ("a.0", "only statistics were dumped: -1 to 2, mean 0.5, 1 NaN")


def test_records_of_overflow_are_told_as_such(tmp_path: Path) -> None:
    write_dump(tmp_path / f"Opdebug.Node_OpDebug.1.2.{TIME}", [item(np.zeros(2048, np.uint8))])
    (info,) = open_source(tmp_path).tensors
    assert info.problem == "a record of an overflow, not a tensor"


def test_tensors_without_an_address_are_not_in_the_file(tmp_path: Path) -> None:
    present, absent = item(np.array([1, 2], np.float32), address=64), Item(b"", "FLOAT", (3,), size=12)
    write_dump(tmp_path / f"Op.a.1.2.{TIME}", [present], [absent])
    source = open_source(tmp_path)
    assert source.tensors[0].problem == "the device left it out of the dump"
    assert source.read("a.0", "").tolist() == [1, 2]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    write_dump(tmp_path / "secret", [item(np.array([1], np.float32))])
    (tmp_path / "dumps" / f"Op.a.1.2.{TIME}").symlink_to(tmp_path / "secret")
    write_dump(tmp_path / "dumps" / f"Op.b.1.2.{TIME}", [item(np.array([2], np.float32))])
    source = open_source(tmp_path / "dumps")
    with pytest.raises(BadInput, match="a link that leads out of the folder"):
        source.read("a.0", "")
    assert source.read("b.0", "").tolist() == [2]


# Slices --------------------------------------------------------------------------------------------------------


def test_manual_slices_are_joined_along_the_cut_axis(tmp_path: Path) -> None:
    truth = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    about = json.dumps({"threadMode": False, "slice_instance_num": 2, "outputCutList": [[1, 2, 1]]})
    for part in range(2):
        write_dump(
            tmp_path / f"Conv2D.net_lxslice{part}.1.2.{TIME + part}.4.9.0.0",
            [item(truth[:, 2 * part : 2 * part + 2])],
            op_name=f"net_lxslice{part}",
            attribute=about,
        )
    np.testing.assert_array_equal(open_source(tmp_path).read("net.0", ""), truth)


def test_automatic_slices_take_their_shapes_from_the_attribute(tmp_path: Path) -> None:
    truth = np.arange(15, dtype=np.float32).reshape(5, 3)
    bounds = [(0, 3), (3, 5)]
    slices = [[[{"lower": low, "higher": high}, {"lower": 0, "higher": 3}]] for low, high in bounds]
    about = json.dumps({
        "threadMode": True, "slice_instance_num": 2, "outputCutList": [[2, 1]], "output_tensor_slice": slices,
        "input_tensor_slice": slices,
    })  # fmt: skip
    for thread, (low, high) in enumerate(bounds):
        part = item(truth[low:high])
        whole = Item(part.data, part.element_type, truth.shape)
        name = f"Conv2D.net.1.2.{TIME}.4.9.{thread}.0"
        write_dump(tmp_path / name, [whole], [whole], op_name="net", attribute=about)
    source = open_source(tmp_path)
    for name in ("net.0", "net.input.0"):
        np.testing.assert_array_equal(source.read(name, ""), truth)


def test_a_missing_slice_is_told(tmp_path: Path) -> None:
    about = json.dumps({"threadMode": False, "slice_instance_num": 3, "outputCutList": [[2]]})
    write_dump(tmp_path / f"Op.a.1.2.{TIME}.4.9.0.0", [item(np.array([1], np.float32))], attribute=about)
    assert open_source(tmp_path).tensors[0].problem == "has 1 slices, but its dump speaks of 3"


# Damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has 0 bytes, too few for a dump"),
        (struct.pack("<Q", 2**40) + b"x" * 9, "claims a header of"),
        (struct.pack("<Q", 0) + b"x" * 9, "claims a header of 0 bytes"),
        (struct.pack("<Q", 4) + b"\xff" * 4, "its header is cut short or damaged"),
        (struct.pack("<Q", 2) + b"\x07\x00", "its header is cut short or damaged"),
        (struct.pack("<Q", 3) + b"\x1a\x7f\x00", "its header is cut short"),
    ],
    ids=["empty", "huge header", "no header", "endless number", "unknown kind", "lying length"],
)
def test_damaged_files_are_rows_with_a_problem(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / f"Op.a.1.2.{TIME}").write_bytes(content)
    (info,) = open_source(tmp_path, format="ascend-dump").tensors
    assert problem in info.problem


@pytest.mark.parametrize("tensor", [field(3, b""), field(4, field(3, b"")), field(5, b""), field(8, b"")])
def test_absurdly_many_tensors_are_refused(tmp_path: Path, tensor: bytes) -> None:
    header = tensor * 100_001
    path = tmp_path / f"Op.a.1.2.{TIME}"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(Unreadable, match="more than 100000 tensors"):
        read_dump(path)


def test_a_header_longer_than_any_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / f"Op.a.1.2.{TIME}"
    path.write_bytes(struct.pack("<Q", MAX_HEADER_BYTES + 1) + bytes(MAX_HEADER_BYTES + 1))
    with pytest.raises(Unreadable, match="more than any dump has"):
        read_dump(path)


def test_fields_that_are_not_known_or_of_another_kind_are_skipped(tmp_path: Path) -> None:
    """Newer devices add fields; shapes may be packed or not; texts need not be UTF-8."""
    unpacked = field(1, 2) + field(1, 3)
    tensor = field(1, 1) + field(2, 2) + field(3, unpacked) + field(6, 24) + field(99, b"new") + field(98, 7)
    fixed = b"\x11" + bytes(8)  # field 2, the time, of eight bytes where a number is due
    header = fixed + field(3, tensor) + field(6, b"a\xff") + field(200, b"later") + field(1, b"1") + field(1, b"2")
    path = tmp_path / f"Op.a.1.2.{TIME}"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(24))
    dump = read_dump(path)
    assert (dump.op_name, dump.version, dump.time) == ("a\ufffd", "2", 0)
    assert [(each.element_type, each.format, each.shape, each.size) for each in dump.outputs] == [
        ("FLOAT", "ND", (2, 3), 24)
    ]
    assert (dump.missing, dump.extra) == (0, 0)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Item(b"1234", "FLOAT", (5,)), "its header gives it 4 bytes, but float32 [5] takes 20"),
        (Item(b"1234", "FLOAT", (1,), size=400), "truncated: 4 of 400 bytes"),
        (Item(b"1234", "STRING", (1,)), "holds elements of the type STRING"),
        (Item(b"1234", "FLOAT", (2**40, 2**40)), f"claims the impossible shape {[2**40, 2**40]}"),
        (Item(b"", "FLOAT", (0, 2**62)), "claims the impossible shape"),
        (Item(b"", "INT4", (0, 2**62)), "claims the impossible shape"),
        (Item(b"1234", "FLOAT", (1,) * 65), "a shape of more than 64 axes"),
    ],
    ids=["shape", "truncated", "no numbers", "giant", "giant but empty", "giant after decoding", "too many axes"],
)
def test_tensors_that_cannot_be_are_told(tmp_path: Path, found: Item, problem: str) -> None:
    write_dump(tmp_path / f"Op.a.1.2.{TIME}", [found])
    (info,) = open_source(tmp_path).tensors
    assert problem in info.problem


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_ends_in_values_or_in_a_reason(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / f"Op.a.1.2.{TIME}"
    write_dump(path, [item(np.arange(8, dtype=np.float16).reshape(1, 1, 2, 2, 2), format="NC1HWC0",
                           original=(1, 2, 2, 2))], [item(np.array([1, 2], np.int32))], op_name="a")  # fmt: skip
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    source = open_source(path, format="ascend-dump")
    for info in source.tensors:
        if info.problem:
            with pytest.raises(BadInput):
                source.read(info.name, "")
        else:
            assert source.read(info.name, "").shape == info.shape


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_header_is_read_or_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "dump"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"body")
    with contextlib.suppress(Unreadable):
        assert read_dump(path).extra >= 0


def test_unknown_fields_of_newer_devices_are_passed_over(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", [item(np.array([1], np.float32))])
    content = path.read_bytes()
    more = field(99, 7) + field(98, b"new")
    length = struct.unpack_from("<Q", content)[0]
    path.write_bytes(struct.pack("<Q", length + len(more)) + more + content[8:])
    assert open_source(path).read("a.0", "").tolist() == [1]
