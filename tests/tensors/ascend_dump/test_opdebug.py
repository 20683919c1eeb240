"""Records of overflow, old and new."""

import json
import struct

import pytest

from roundoff.core.array_files import Unreadable
from roundoff.tensors.ascend_dump.header import read_dump
from roundoff.tensors.ascend_dump.names import overflowed_unit, read_record
from roundoff.tensors.ascend_dump.source import map_tensor
from tests.ascend_dumps import vectors


def new(unit: int, *numbers: int, version: int = 0) -> bytes:
    return struct.pack("<6I", 0x5A5A5A5A, version, 1, unit, 0, 8 * len(numbers)) + struct.pack(
        f"<{len(numbers)}Q", *numbers
    )


def test_cores_tell_where_they_were() -> None:
    record = read_record(new(1, *range(1, 11), 32))
    assert record["magic"] == "0x5a5a5a5a"
    unit, fields = overflowed_unit(record) or ("", {})
    assert unit == "AIV"
    assert (fields["stream_id"], fields["task_id"], fields["pc_start"], fields["status"]) == (2, 3, "0x7", 32)


def test_version_one_has_four_words_of_status() -> None:
    record = read_record(new(0, *range(10), 0, 0, 5, 0, version=1))
    assert record["acc_list"]["data"]["status"] == [0, 0, 5, 0]
    assert overflowed_unit(record) is not None


@pytest.mark.parametrize(("unit", "count", "name"), [(2, 8, "AICPU"), (3, 10, "SDMA")])
def test_other_units(unit: int, count: int, name: str) -> None:
    found = overflowed_unit(read_record(new(unit, *range(1, count + 1))))
    assert found is not None
    assert (found[0], found[1]["status"]) == (name, count)


def test_no_status_no_overflow() -> None:
    assert overflowed_unit(read_record(new(0, *[0] * 11))) is None
    assert overflowed_unit(read_record(bytes(2048))) is None


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, new(9, 1), new(0, 1, 2)], ids=["none", "other", "unit", "short"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_record(data)


@pytest.mark.parametrize("kind", ["old", "new"])
def test_samples_of_the_vendor(kind: str) -> None:
    folder = vectors("overflow")
    (path,) = (folder / f"dump_{kind}").glob("Opdebug.*")
    record = read_record(map_tensor(path, read_dump(path).outputs[0]).tobytes())
    (expected,) = (folder / f"expected_{kind}").glob("Opdebug.*.json")
    assert record == json.loads(expected.read_text())
