"""What was measured is remembered under what it depends on."""

import errno
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import QuantParams
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import model_hash, quantizer_hash
from roundoff.studies.sensitivity.exact import Journal
from tests.graph.quantized_nets import mixed_net, mixed_quantizers
from tests.models import loaded, weight

VALUES = np.array([[[1 / 3, np.inf], [-np.inf, np.nan]]])


def test_values_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    journal = Journal(path)
    journal.add("a", VALUES)
    journal.close()
    again = Journal(path)
    found = again.find("a")
    again.close()
    assert found is not None
    np.testing.assert_array_equal(found, VALUES)
    assert found.shape == VALUES.shape
    assert again.find("b") is None


def test_without_a_file_nothing_is_remembered() -> None:
    journal = Journal(None)
    journal.add("a", VALUES)
    assert journal.find("a") is None
    assert not journal.used


@pytest.mark.parametrize("kept", [5, 40, 60, -3])
def test_what_a_killed_run_left_of_a_line_is_dropped(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.add("a", VALUES)
    journal.close()
    path.write_bytes(path.read_bytes()[:kept])
    again = Journal(path)
    assert again.find("a") is None
    again.add("b", VALUES)
    again.close()
    third = Journal(path)
    assert third.find("b") is not None
    third.close()
    assert path.read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.parametrize("content", ['{"a": 1}\n', "node,sqnr\nConv,3\n", "no line end"])
def test_other_files_are_not_touched(content: str, tmp_path: Path) -> None:
    path = tmp_path / "precious.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match="is not a journal"):
        Journal(path)
    assert path.read_text(encoding="utf-8") == content
    with pytest.raises(BadInput, match="is a folder"):
        Journal(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        '{"key": "a", "shape": [3, 3], "values": [1, 2]}',
        '{"key": "a", "shape": [2], "values": ["x", null]}',
        '{"key": "a", "shape": [1], "values": 5}',
        '{"key": "a", "shape": "x", "values": [1]}',
        '{"key": ["a"], "shape": [1], "values": [1]}',
        '{"key": "a"}',
        "[1, 2]",
        "null",
        "no JSON",
        "[" * 100_000,
    ],
)
def test_damaged_lines_are_counted_and_lose_nothing_else(line: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.add("kept", VALUES)
    journal.close()
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    again = Journal(path)
    again.add("new", VALUES)
    again.close()
    assert again.damaged == 1
    third = Journal(path)
    third.close()
    assert third.find("a") is None
    assert third.find("kept") is not None
    assert third.find("new") is not None


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal.jsonl")

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(BadInput, match="The disk is full"):
        journal.add("a", VALUES)


def test_hashes_see_every_number(tmp_path: Path) -> None:
    quantizers = mixed_quantizers()
    first = quantizer_hash(quantizers)
    assert quantizer_hash(quantizers[::-1]) == first
    params = quantizers[0].params
    other = replace(quantizers[0], params=QuantParams(params.scale * np.float32(1.0001), params.zero_point))
    assert quantizer_hash([other, *quantizers[1:]]) != first
    assert quantizer_hash([replace(quantizers[0], codes=np.zeros(3, np.int8)), *quantizers[1:]]) != first
    assert quantizer_hash(quantizers[1:]) != first
    model = loaded(mixed_net(), tmp_path)
    before = model_hash(model)
    assert model_hash(loaded(mixed_net(), tmp_path)) == before
    model.proto.graph.initializer[0].CopyFrom(weight("w1", 4, 3, 3, 3, seed=8))
    assert model_hash(model) != before
