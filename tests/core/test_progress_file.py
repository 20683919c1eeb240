"""Progress for others: late, seldom, and gone at the end."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from roundoff.core.progress import ProgressFile, RunningJob, progress_path, read_progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_appears_after_two_seconds_and_changes_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    told = ProgressFile(tmp_path / "out", clock=clock)
    told.start("layers", 100)
    seen = []
    for step in range(50):
        clock.now = step / 10
        told.advance()
        seen += [job.done for job in read_progress(tmp_path)]
    assert sorted(set(seen)) == [21, 31, 41]
    told.finish()
    assert read_progress(tmp_path)
    told.close()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    clock = Clock()
    told = ProgressFile(tmp_path / "none/out", clock=clock)
    clock.now = 5
    told.start("x", 1)
    told.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_left_is_not_running(tmp_path: Path) -> None:
    job = RunningJob("out", "x", 1, 2, 3.0, 2**22 + 1)
    for process in (job.process, 0, -1):
        left = replace(job, process=process)
        content = {name: getattr(left, name) for name in left.__slots__}
        progress_path(tmp_path / "out").write_text(json.dumps(content))
        assert read_progress(tmp_path) == ()


def test_what_a_killed_command_had_begun_to_write_goes_with_the_next(tmp_path: Path) -> None:
    dead, alive = (
        f"{progress_path(tmp_path / 'out[1]').name}.{2**22 + 1}",
        f".other.roundoff-progress.{os.getpid()}",
    )
    (tmp_path / dead).write_text("{")
    (tmp_path / alive).write_text("{")
    (tmp_path / f"{dead[:-7]}{os.getppid()}").write_text("{")
    (tmp_path / f"{dead[:-7]}{os.getpid()}").write_text("")  # by a disk that was full
    (tmp_path / f"{dead[:-7]}notes").write_text("{")
    ProgressFile(tmp_path / "out[1]").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [alive, f"{dead[:-7]}{os.getppid()}", f"{dead[:-7]}notes"]
    )


@pytest.mark.parametrize("output", [".", "..", "/", "deep/..", "deep/."])
def test_every_folder_has_a_place_for_it(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)
    path = progress_path(Path(output))
    assert path.parent == Path(output).resolve().parent
    ProgressFile(Path(output)).close()


def test_a_pipe_in_the_place_of_progress_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(progress_path(tmp_path / "out"))
    assert read_progress(tmp_path) == ()
