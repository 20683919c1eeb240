"""Several runs in one folder: the golden copy is never taken for what is to be judged."""

from pathlib import Path

import numpy as np

from roundoff.tensors import open_source
from roundoff.tensors.stored import StoredSource


def write(folder: Path, value: float, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        np.save(folder / f"{name}.npy", np.full((1, 4), value, np.float32))


def test_the_run_that_is_not_the_golden_copy_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "golden" / "npy", 1.0, "a", "b")
    write(tmp_path / "simulator" / "npy", 2.0, "a", "b")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs == ("simulator", "golden")
    assert [info.name for info in source.tensors] == ["a", "b"]
    assert float(source.read("a", "").max()) == 2.0
    golden = open_source(tmp_path / "golden")
    assert float(golden.read(golden.tensors[0].name, "").max()) == 1.0


def test_the_chip_comes_before_its_simulator(tmp_path: Path) -> None:
    for value, run in enumerate(("golden", "simulator", "runtime")):
        write(tmp_path / run, value, "a", "b")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs[0] == "runtime"


def test_folders_of_other_tensors_are_no_runs(tmp_path: Path) -> None:
    write(tmp_path / "float", 1.0, "a", "b")
    write(tmp_path / "int8", 2.0, "c", "d")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs == ()
    assert len(source.tensors) == 4
