"""Kills aimed at what a command does to the disk: at most one unit lost, the same result, nothing left behind.

``python -m benchmarks kills [--kills N] [--commands NAME ...] [--clock]``. A command is run whole once, and its
steps on the disk are counted: files opened for writing, renamed or removed, folders made, and units measured,
before and behind their entry in a journal or store. Then it is run again and killed (SIGKILL) right before
chosen ones of these steps, and run once more to its end. What it then has written must be what the undisturbed
run wrote, byte for byte where there are no times in it, with no file besides. Of what was measured before the
kill one unit at most is not on the disk, and what is there is not measured again. With ``--clock`` the clock is
set back by an hour whenever somebody looks at it.
"""

import argparse
import contextlib
import datetime as dt
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

KILLS = 20
_LONGEST_S = 600
_STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
# Times differ from run to run, and with them what holds them, and whether a unit was done now or before.
_TIMES = re.compile(
    r"_s$|^finished$|^resumed$|^state$|^log$|seconds|elapsed|time|date|^words$|command|^created|^output|path"
)
_STAMP, _SEAL = re.compile(r"\d{8}T\d{6}\w*(?:[.-]\w+)*(?=\.json)"), re.compile(rb"[0-9a-f]{64}\n")
_LEFTOVER = re.compile(r"\.partial|\.old-|^temp-|-journal$|roundoff-scratch-")


@dataclass(frozen=True)
class Campaign:
    """A command that is killed.

    Attributes:
        words: How it begins.
        again: What is added to go on after a kill.
        units: Gives the measurements in its folder that must not be lost; None where there are none.
        fewest: So many there are at least; fewer would show little.
        elsewhere: Whether processes of their own measure: the kill comes when so many units are there.
    """

    words: tuple[str, ...]
    again: tuple[str, ...] = ()
    units: Callable[[Path], frozenset[object]] | None = None
    fewest: int = 0
    elsewhere: bool = False


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


STRATEGY = """
EARLY = False


def propose(problem, history):
    nodes = problem.ranking(problem.base)
    chosen = [name for place, name in enumerate(nodes) if len(history) >> place & 1]
    return problem.raised(problem.base, chosen, "float") if len(history) < 55 else None
"""


def _measured(folder: Path) -> frozenset[object]:
    """Entries of a journal."""
    import sqlite3

    journal = folder / "out" / "journal.sqlite"
    if not journal.is_file():
        return frozenset()
    base = sqlite3.connect(journal)
    with contextlib.closing(base), contextlib.suppress(sqlite3.DatabaseError):
        return frozenset(base.execute("select key, start, seconds from chunks").fetchall())
    return frozenset()


def _lines(folder: Path) -> frozenset[object]:
    journal = folder / "journal"
    # A line that was cut off by the kill is no measurement, and the first one says what the file is.
    return frozenset(journal.read_bytes().split(b"\n")[1:-1]) if journal.is_file() else frozenset()


def _stored(folder: Path) -> frozenset[object]:
    """Units of a suite, and when they were put into its store."""
    units = (folder / "out" / "units").rglob("*.json")
    return frozenset((path.name, path.stat().st_mtime_ns) for path in units if not path.name.startswith("."))


CHIP = ("m.onnx", "--data", "x.npy", "--target", "generic-int8")
DEEP = ("deep.onnx", *CHIP[1:])
CAMPAIGNS = {
    "quantize": Campaign(("quantize", *CHIP, "-o", "out"), ("--force",)),
    "tune": Campaign(
        ("tune", *DEEP, "--labels", "y.npy", "--strategy", "s.py", "--max-trials", "60", "--max-drop", "0",
         "-o", "out"),
        ("--resume",),
        _measured,
        fewest=50,
    ),
    "sensitivity": Campaign(
        ("sensitivity", *DEEP, "--resume", "journal", "-o", "out"),
        ("--force",), _lines, fewest=50,
    ),
    "diagnose": Campaign(("diagnose", *CHIP, "--labels", "y.npy", "--fix", "-o", "out"), ("--force",)),
    "pulsar2": Campaign(("pulsar2", "tune", "--config", "p.json"), ("--force",)),
    "amct": Campaign(
        ("amct", "auto-calibration", "--model", "m.onnx", "--save_path", "out/r", "--evaluator", "e.py"),
        ("--resume",),
    ),
    "suite": Campaign(("suite", "run", "suite.toml", "--workers", "1"), (), _stored, elsewhere=True),
}  # fmt: skip
SUITE = """name = "kills"
store = "out"
targets = ["generic-int8", "generic-int8-per-tensor", "litert"]
[options]
samples = 4
[models.small]
model = "m.onnx"
data = "x.npy"
[models.deep]
model = "deep.onnx"
data = "x.npy"
[commands.layers]
"""
GIVEN = ("m.onnx", "deep.onnx", "x.npy", "y.npy", "d/", "e.py", "s.py", "p.json", "suite.toml")


def deep_model() -> Any:
    """A network of so many layers that a search has something to do."""
    from onnx import TensorProto, helper, numpy_helper

    from roundoff.graph.nodes import make_model

    rng = np.random.default_rng(4)
    nodes, weights, x = [], [], "x"
    for at, inputs in enumerate((3, *[6] * 11)):
        values = rng.standard_normal((6, inputs, 3, 3)).astype(np.float32) * np.float32((2 / (9 * inputs)) ** 0.5)
        weights.append(numpy_helper.from_array(values, f"w{at}"))
        nodes.append(helper.make_node("Conv", [x, f"w{at}"], [f"c{at}"], name=f"conv{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], name=f"relu{at}"))
        x = f"r{at}"
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["p"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["p"], ["y"], name="flat"))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])]  # fmt: skip
    return make_model(helper.make_graph(nodes, "deep", ends[:1], ends[1:], weights))


def prepare(folder: Path) -> None:
    """Small networks with samples, labels and what the vendors' tools want."""
    import onnx

    from benchmarks.fuzz.seeds import small_model

    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.onnx").write_bytes(small_model())
    onnx.save(deep_model(), folder / "deep.onnx")
    data = rng.standard_normal((24, 3, 8, 8)).astype(np.float32)
    np.save(folder / "x.npy", data)
    np.save(folder / "y.npy", rng.integers(0, 5, 24))
    (folder / "d").mkdir()
    for index, each in enumerate(data[:6]):
        np.save(folder / "d" / f"{index}.npy", each[None])
    (folder / "e.py").write_text(EVALUATOR, encoding="utf-8")
    (folder / "s.py").write_text(STRATEGY, encoding="utf-8")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    calibration = {"tensor_name": "DEFAULT", "calibration_dataset": "d", "calibration_size": 4,
                   "calibration_format": "Numpy"}  # fmt: skip
    config = {"input": "m.onnx", "output_dir": "out", "target_hardware": "AX650", "model_type": "ONNX",
              "quant": {"input_configs": [calibration]}}  # fmt: skip
    (folder / "p.json").write_text(json.dumps(config), encoding="utf-8")


@dataclass(frozen=True)
class Ran:
    """A command that ran.

    Attributes:
        code: Its exit code, negative for a signal.
        steps: How many steps on the disk it did; 0 when it was killed.
        units: How many units it measured.
    """

    code: int
    steps: int
    units: int


def run(words: tuple[str, ...], folder: Path, *, at: int = 0, clock: bool = False) -> Ran:
    """Run a command in a process of its own, killed before a step on the disk, or with so many units in the store.

    Args:
        words: The command.
        folder: Where.
        at: The step; minus the number of units; 0 for never.
        clock: Set the clock back.
    """
    reading, writing = os.pipe()
    # An interpreter of its own: one that is forked off while onnxruntime's threads run may wait for them for ever.
    code = f"from benchmarks.kills import child; child({words!r}, {str(folder)!r}, {at}, {writing}, {clock})"
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        pass_fds=(writing,),
        stdin=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    return Ran(process.wait(_LONGEST_S), int(said.lstrip(_UNIT) or b"0"), said.count(_UNIT))


def child(words: tuple[str, ...], place: str, at: int, told: int, clock: bool) -> None:
    """Run a command in a folder, and end this process: by its exit code, or by a kill before a step."""
    folder = Path(place)
    if clock:
        set_back()
    os._exit(_watched(words, folder, at, told))


_UNIT = b"u"


def set_back() -> None:
    """Let the clock go back by an hour whenever it is looked at; that of durations goes on as it must."""
    real, looks = time.time, itertools.count()
    time.time = lambda: real() - 3600.0 * next(looks)
    plain: Any = dt.datetime

    class Backward(plain):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return plain.fromtimestamp(time.time(), tz)

    dt.datetime = Backward  # type: ignore[misc]


def _watched(words: tuple[str, ...], folder: Path, at: int, told: int) -> int:
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
        # How often progress is told goes by the clock: counted, the same step would not come twice.
        if path.startswith(places) and ".roundoff-progress" not in path:
            step()

    sys.addaudithook(watch)
    if at < 0:
        threading.Thread(target=_kill_with, args=(folder, -at), daemon=True).start()
    with _journals(step, told):
        code = main(list(words))
    os.write(told, str(done).encode())
    return code


def _kill_with(folder: Path, units: int) -> None:
    while len(_stored(folder)) < units:
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)


def _writes(args: tuple[Any, ...]) -> bool:
    mode = args[1]
    flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
    return (isinstance(mode, str) and any(letter in mode for letter in "wax+")) or bool(
        flags & (os.O_WRONLY | os.O_RDWR)
    )


@contextlib.contextmanager
def _journals(step: Callable[[], None], told: int) -> Iterator[None]:
    """Tell of units that were measured, and count a step before each is put down and one behind it."""
    from roundoff.search.store import TrialJournal
    from roundoff.studies.sensitivity.exact import Journal
    from roundoff.suite.store import UnitStore

    def watched(plain: Callable[..., Any]) -> Callable[..., Any]:
        def put(*args: Any, **named: Any) -> Any:
            os.write(told, _UNIT)
            step()
            found = plain(*args, **named)
            step()
            return found

        return put

    with contextlib.ExitStack() as undo:
        for kind, name in ((TrialJournal, "add_chunk"), (Journal, "add"), (UnitStore, "put")):
            plain = getattr(kind, name)
            setattr(kind, name, watched(plain))
            undo.callback(setattr, kind, name, plain)
        yield


def results(folder: Path) -> dict[str, object]:
    """What a command has written, by file; documents without what differs from run to run."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(GIVEN):
            found[_STAMP.sub("WHEN", name)] = _content(path)
    return found


def _content(path: Path) -> object:
    if path.suffix in (".onnx", ".npz", ".npy"):
        return path.read_bytes()
    if path.suffix == ".json":
        data = path.read_bytes()
        with contextlib.suppress(ValueError):  # behind a line with its hash, in a store
            return _timeless(json.loads(data[data.find(b"{") :] if _SEAL.match(data) else data))
    return None


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if not _TIMES.search(key)}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def campaign(name: str, folder: Path, *, kills: int, seed: int = 0, clock: bool = False) -> Iterator[str]:
    """What went wrong, a line each."""
    asked = CAMPAIGNS[name]
    whole = folder / "whole" / "w"
    prepare(whole)
    first = run(asked.words, whole, clock=clock)
    if first.code not in (0, 1) or first.steps == 0:
        yield f"{name}: the undisturbed run left with {first.code} after {first.steps} steps"
        return
    if asked.elsewhere and asked.units is not None:
        first = replace(first, units=len(asked.units(whole)))
    if first.units < asked.fewest:
        yield f"{name}: only {first.units} units"
    rng = np.random.default_rng(seed)
    # The last ones are not always there: what is told of progress goes by the clock.
    last = max(1, first.units - 1 if asked.elsewhere else first.steps - 4)
    expected = results(whole)
    ends = {1, last} if kills > 2 else set()
    moments = sorted(ends | {int(each) for each in rng.integers(1, last + 1, kills - len(ends))})
    for at in moments:
        place = folder / f"{at}" / "w"
        prepare(place)
        for wrong in _killed(asked, place, -at if asked.elsewhere else at, first, expected, clock=clock):
            yield f"{name}, step {at}: {wrong}"
        shutil.rmtree(place.parent)
    print(
        f"{name:12} {first.steps:5} steps on the disk, {first.units:3} units, killed {len(moments)} times",
        flush=True,
    )


def _killed(
    asked: Campaign, place: Path, at: int, first: Ran, expected: Mapping[str, object], *, clock: bool
) -> Iterator[str]:
    """What goes wrong when a command is killed and run again."""
    killed = run(asked.words, place, at=at, clock=clock)
    if killed.code != -signal.SIGKILL:
        yield f"left with {killed.code} instead of being killed"
    measured = asked.units or (lambda _: frozenset())
    kept = measured(place)
    if asked.units is not None and killed.units - len(kept) > 1:
        yield f"{killed.units} units were measured, and {len(kept)} kept"
    again = asked.again if (place / "out").exists() or "--resume" in asked.again else ()
    after = run((*asked.words, *again), place, clock=clock)
    if after.code != first.code:
        yield f"left with {after.code} after the kill, {first.code} before"
    found = results(place)
    for file in sorted({*expected, *found}):
        if file not in found or file not in expected:
            yield f"{file} is {'missing' if file not in found else 'left over'}"
        elif found[file] != expected[file]:
            yield f"{file} differs"
    if gone := kept - measured(place):
        yield f"{len(gone)} of {len(kept)} measurements are gone"
    if kept and len(kept) + after.units > first.units:
        yield f"{after.units} of {first.units} units were measured again, {len(kept)} were there"
    left = [path.name for path in place.parent.rglob("*") if _LEFTOVER.search(path.name)]
    if left:
        yield f"left behind {left}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=KILLS)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--commands", nargs="*", default=list(CAMPAIGNS))
    options.add_argument("--clock", action="store_true", help="set the clock back all the time")
    given = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for command in given.commands:
            for line in campaign(
                command, Path(name) / command, kills=given.kills, seed=given.seed, clock=given.clock
            ):
                wrong += 1
                print(f"  {line}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
