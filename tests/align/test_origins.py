"""Tensors that a compiler fused or renamed pair by what its dump records of them."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.tensors import open_source
from tests.ascend_dumps import TIME, item, write_dump, write_dumps
from tests.sources import MemorySource


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, 4, 5)).astype(np.float32)


def how(ours: object, theirs: object) -> dict[str, tuple[str, str]]:
    pairing = align(ours, theirs, by_value=False)  # type: ignore[arg-type]
    return {pair.reference: (pair.candidate, pair.how) for pair in pairing.pairs}


@pytest.fixture
def fused(tmp_path: Path) -> Path:
    """A convolution that kept its name, but whose output is that of the activation; its copy in another layout."""
    folder = tmp_path / "fused"
    folder.mkdir()
    write_dump(folder / f"Conv2D.conv1.1.1.{TIME}", [item(values(1), origin="block/relu1")], op_name="conv1")
    write_dump(
        folder / f"TransData.trans_1.2.1.{TIME + 1}", [item(values(1), origin="block/relu1")], op_name="trans_1"
    )
    write_dump(folder / f"Pooling.pool1.3.1.{TIME + 2}", [item(values(2), origin="pool1")], op_name="pool1")
    return folder


def test_the_record_overrules_the_name_and_the_first_of_several_is_meant(fused: Path) -> None:
    golden = MemorySource({"conv1.0": values(0), "block_relu1.0": values(1), "pool1.0": values(2)})
    found = how(golden, open_source(fused))
    assert found["block_relu1.0"] == ("conv1.0", "origin")
    # A record that says what the name says is a name.
    assert found["pool1.0"] == ("pool1.0", "name")
    assert "conv1.0" not in found


def test_either_side_may_be_the_fused_one(fused: Path, tmp_path: Path) -> None:
    off = write_dumps(tmp_path / "off", {"conv1": values(0), "block_relu1": values(1), "pool1": values(2)})
    assert how(open_source(fused), open_source(off)) == {
        "conv1.0": ("block_relu1.0", "origin"),
        "pool1.0": ("pool1.0", "name"),
    }


def test_equal_names_of_equal_origin_stay_names(fused: Path, tmp_path: Path) -> None:
    first = item(values(1), origin="block/relu1")
    write_dump(fused / f"Cast.early.0.1.{TIME - 1}", [first], op_name="early")
    other = tmp_path / "other"
    other.mkdir()
    for file in fused.glob("[!C]*"):
        (other / file.name).write_bytes(file.read_bytes())
    write_dump(other / f"Conv2D.conv1.1.1.{TIME}", [first], op_name="conv1")
    found = how(open_source(fused), open_source(other))
    assert set(found) == {"conv1.0", "trans_1.0", "pool1.0"}
    assert {kind for _, kind in found.values()} == {"name"}
    assert all(ours == theirs for ours, (theirs, _) in found.items())
