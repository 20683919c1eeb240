"""Kills aimed at what a command does to the disk: at most one unit lost, the same result, nothing left behind.

``python -m benchmarks kills [--kills N] [--commands NAME ...]``. A command is run whole once, and its steps on the
disk are counted: files opened for writing, renamed or removed, folders made, entries added to a journal. Then it
is run again and killed (SIGKILL) right before chosen ones of these steps, and run once more to its end. What it
then has written must be what the undisturbed run wrote, byte for byte where there are no times in it, with no file
besides; and of a search nothing that was measured before the kill is lost.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KILLS = 20
_STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
# Times differ from run to run, and with them what holds them.
_TIMES = re.compile(
    r"_s$|^finished$|^resumed$|^log$|seconds|elapsed|time|date|^words$|command|^created|^output|path"
)
_LEFTOVER = re.compile(r"\.partial|\.old-|^temp-|-journal$|roundoff-scratch-")


@dataclass(frozen=True)
class Campaign:
    """A command that is killed.

    Attributes:
        words: How it begins.
        again: What is added to go on after a kill.
        units: Gives the measurements in its folder that must not be lost.
    """

    words: tuple[str, ...]
    again: tuple[str, ...] = ()
    units: Callable[[Path], int] = lambda folder: 0


EVALUATOR = """
import numpy as np
import onnxruntime as ort
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase

FEEDS = np.load("x.npy")[:4]


class Evaluator(AutoCalibrationEvaluatorBase):
    def calibration(self, model_file):
        session = ort.InferenceSession(model_file)
        session.run(None, {"x": FEEDS})

    def evaluate(self, model_file):
        return ort.InferenceSession(model_file).run(None, {"x": FEEDS})[0]

    def metric_eval(self, original_metric, new_metric):
        loss = float(np.abs(original_metric - new_metric).max())
        return loss < 1e-6, loss
"""


def _measured(folder: Path) -> int:
    """Entries of a journal."""
    import sqlite3

    journal = folder / "out" / "journal.sqlite"
    if not journal.is_file():
        return 0
    base = sqlite3.connect(journal)
    with contextlib.closing(base), contextlib.suppress(sqlite3.DatabaseError):
        return int(base.execute("select count(*) from chunks").fetchone()[0])
    return 0


def _lines(folder: Path) -> int:
    journal = folder / "journal"
    return len(journal.read_bytes().splitlines()) if journal.is_file() else 0


CHIP = ("m.onnx", "--data", "x.npy", "--target", "generic-int8")
CAMPAIGNS = {
    "quantize": Campaign(("quantize", *CHIP, "-o", "out"), ("--force",)),
    "tune": Campaign(
        ("tune", *CHIP, "--labels", "y.npy", "--strategy", "pareto", "--max-trials", "60", "--max-drop", "0",
         "-o", "out"),
        ("--resume",),
        _measured,
    ),
    "sensitivity": Campaign(("sensitivity", *CHIP, "--resume", "journal", "-o", "out"), ("--force",), _lines),
    "diagnose": Campaign(("diagnose", *CHIP, "--labels", "y.npy", "--fix", "-o", "out"), ("--force",)),
    "pulsar2": Campaign(("pulsar2", "tune", "--config", "p.json"), ("--force",)),
    "amct": Campaign(
        ("amct", "auto-calibration", "--model", "m.onnx", "--save_path", "out/r", "--evaluator", "e.py"),
        ("--resume",),
    ),
}  # fmt: skip


def prepare(folder: Path) -> None:
    """A small network with samples, labels and what the vendors' tools want."""
    from benchmarks.fuzz import small_model

    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.onnx").write_bytes(small_model())
    data = rng.standard_normal((24, 3, 8, 8)).astype(np.float32)
    np.save(folder / "x.npy", data)
    np.save(folder / "y.npy", rng.integers(0, 5, 24))
    (folder / "d").mkdir()
    for index, each in enumerate(data[:6]):
        np.save(folder / "d" / f"{index}.npy", each[None])
    (folder / "e.py").write_text(EVALUATOR, encoding="utf-8")
    calibration = {"tensor_name": "DEFAULT", "calibration_dataset": "d", "calibration_size": 4,
                   "calibration_format": "Numpy"}  # fmt: skip
    config = {"input": "m.onnx", "output_dir": "out", "target_hardware": "AX650", "model_type": "ONNX",
              "quant": {"input_configs": [calibration]}}  # fmt: skip
    (folder / "p.json").write_text(json.dumps(config), encoding="utf-8")


def run(words: tuple[str, ...], folder: Path, *, at: int = 0) -> tuple[int, int]:
    """Run a command in a process of its own, killed before a step on the disk; 0 for never.

    Returns:
        Its exit code, negative for a signal, and how many steps it did.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        with contextlib.suppress(BaseException):
            os._exit(_child(words, folder, at, writing))
        os._exit(99)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        steps = told.read()
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), int(steps or b"0")


def _child(words: tuple[str, ...], folder: Path, at: int, told: int) -> int:
    from roundoff.cli import main

    os.chdir(folder)
    (folder.parent / "scratch").mkdir(exist_ok=True)
    tempfile.tempdir = str(folder.parent / "scratch")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    done = 0
    places = (str(folder), str(folder.parent / "scratch"))

    def step() -> None:
        nonlocal done
        done += 1
        if done == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event not in _STEPS or (event == "open" and not _writes(args)):
            return
        # Without following links: it is the name that is written.
        path = os.path.abspath(os.fsdecode(args[0])) if isinstance(args[0], str | bytes | os.PathLike) else ""  # noqa: PTH100
        if path.startswith(places):
            step()

    sys.addaudithook(watch)
    with _journals(step):
        code = main(list(words))
    os.write(told, str(done).encode())
    return code


def _writes(args: tuple[Any, ...]) -> bool:
    mode = args[1]
    flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
    return (isinstance(mode, str) and any(letter in mode for letter in "wax+")) or bool(
        flags & (os.O_WRONLY | os.O_RDWR)
    )


@contextlib.contextmanager
def _journals(step: Callable[[], None]) -> Iterator[None]:
    """Count what is added to journals, before it is there and behind it."""
    from roundoff.search.store import TrialJournal

    plain = TrialJournal.add_chunk

    def add_chunk(self: TrialJournal, *args: Any, **named: Any) -> None:
        step()
        plain(self, *args, **named)
        step()

    TrialJournal.add_chunk = add_chunk  # type: ignore[method-assign]
    try:
        yield
    finally:
        TrialJournal.add_chunk = plain  # type: ignore[method-assign]


def results(folder: Path) -> dict[str, object]:
    """What a command has written, by file; documents without what differs from run to run."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(("m.onnx", "x.npy", "y.npy", "d/", "e.py", "p.json")):
            found[name] = _content(path)
    return found


def _content(path: Path) -> object:
    if path.suffix in (".onnx", ".npz", ".npy"):
        return path.read_bytes()
    if path.suffix == ".json":
        with contextlib.suppress(ValueError):
            return _timeless(json.loads(path.read_bytes()))
    return None


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if not _TIMES.search(key)}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def campaign(name: str, folder: Path, *, kills: int, seed: int = 0) -> Iterator[str]:
    """What went wrong, a line each."""
    asked = CAMPAIGNS[name]
    whole = folder / "whole" / "w"
    prepare(whole)
    code, steps = run(asked.words, whole)
    if code not in (0, 1) or steps == 0:
        yield f"{name}: the undisturbed run left with {code} after {steps} steps"
        return
    expected = results(whole)
    rng = np.random.default_rng(seed)
    # The last ones are not always there: what is told of progress goes by the clock.
    last = max(1, steps - 4)
    moments = sorted({1, last, *(int(each) for each in rng.integers(1, last + 1, max(0, kills - 2)))})
    for at in moments:
        place = folder / f"{at}" / "w"
        prepare(place)
        killed, _ = run(asked.words, place, at=at)
        if killed != -signal.SIGKILL:
            yield f"{name}, step {at}: left with {killed} instead of being killed"
        kept = asked.units(place)
        again = asked.again if (place / "out").exists() or "--resume" in asked.again else ()
        after, _ = run((*asked.words, *again), place)
        if after != code:
            yield f"{name}, step {at}: left with {after} after the kill, {code} before"
        found = results(place)
        for file in sorted({*expected, *found}):
            if file not in found or file not in expected:
                yield f"{name}, step {at}: {file} is {'missing' if file not in found else 'left over'}"
            elif found[file] != expected[file]:
                yield f"{name}, step {at}: {file} differs"
        if asked.units(place) < kept:
            yield f"{name}, step {at}: {kept} measurements, then {asked.units(place)}"
        left = [path.name for path in place.parent.rglob("*") if _LEFTOVER.search(path.name)]
        if left:
            yield f"{name}, step {at}: left behind {left}"
        shutil.rmtree(place.parent)
    print(f"{name:12} {steps:5} steps on the disk, killed at {len(moments)} of them", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=KILLS)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--commands", nargs="*", default=list(CAMPAIGNS))
    given = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for command in given.commands:
            for line in campaign(command, Path(name) / command, kills=given.kills, seed=given.seed):
                wrong += 1
                print(f"  {line}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
