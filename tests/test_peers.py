"""The page beside other tools: who is there is measured, who is not is skipped by name."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.accuracy import digits
from benchmarks.networks import integer_share
from benchmarks.peers import ours, theirs
from benchmarks.peers.__main__ import GROUPS, Bench, accuracy, lay_out


def test_every_job_of_the_page_is_known_to_one_side() -> None:
    jobs = [job for group in GROUPS.values() for job in group]
    assert set(jobs) <= {*ours.JOBS, *theirs.JOBS}
    assert not ours.JOBS.keys() & theirs.JOBS.keys()


def test_tools_that_are_not_there_are_skipped_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench({"nncf": str(tmp_path / "python"), "polygraphy": str(tmp_path / "python")})
    bench.find()
    assert bench.missing == {"nncf", "polygraphy"}
    assert "nncf is not installed: skipped" in capsys.readouterr().out
    assert bench.run("nncf-fast", tmp_path) is None


def test_both_sides_make_a_model_that_is_scored_on_samples_nobody_saw(tmp_path: Path) -> None:
    task, place = digits(), tmp_path / "digits"
    searched = lay_out(task, place)
    assert searched == len(np.load(place / "labels.npy")) == len(task.labels) // 2
    for jobs, job in ((ours.JOBS, "roundoff-none"), (theirs.JOBS, "onnxruntime-minmax")):
        assert jobs[job](place)() == {}
        assert integer_share(place / f"{job}.onnx") == 1.0
        # 99.6 % are right in float.
        assert accuracy(place / f"{job}.onnx", task, searched).startswith(("100.0%", "99."))
