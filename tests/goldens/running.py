"""Runs one golden case: a command in a folder of its own, and all that it printed and wrote."""

import contextlib
import csv
import functools
import io
import json
import os
import re
import shlex
import shutil
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper

from roundoff.api import checks, comparison, diagnosis, quantization, studies
from roundoff.cli import main
from tests.goldens.scene import SHARED, make_scene
from tests.goldens.values import digest, reduced

# Language and columns of each way a command is shown; the first is also the one whose files are kept.
VIEWS = {"en-80": ("en", 80), "zh-80": ("zh", 80), "en-200": ("en", 200)}

_HERE = Path(__file__).parent
# What stands in front of a time in a sentence; in a table a number may stand before a tensor called s.
_BEFORE = "[(,\u3000-\u9fff\uff00-\uffef]"
_UNITS = "µs|ms|s|min|h|微秒|毫秒|秒|分钟|小时"
# What a clock, a host or a release says; nothing else is masked in texts.
_VOLATILE = (
    (re.compile(rf"(?:(?<=\S )|(?<={_BEFORE}))\d+(\.\d+)? ?({_UNITS})(?![\w/])"), "<time>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?"), "<date>"),
    (re.compile(r"(?<![\d.])(20\d{12}(\d{3})?|1[789]\d{14})(?!\d)|(?<=\.\d\.)1[789]\d{14}(?=\.)"), "<stamp>"),
    (re.compile(r"\[\d\d:\d\d:\d\d\]"), "[<clock>]"),
    (re.compile(r"\b(roundoff|numpy|onnx|onnxruntime|[Pp]ython)( \| |,| )\d+\.\d+(\.\d+)*\b"), r"\1\2<version>"),
    (re.compile(r'"?(Linux|Darwin|Windows) \S+, \d+ cores?"?'), "<host>"),
)
# Chinese is wrapped between any two characters, so that unwrapping leaves gaps.
_CHINESE_GAP = re.compile("(?<=[\u3000-\u9fff\uff00-\uffef]) +| +(?=[\u3000-\u9fff\uff00-\uffef])")


@dataclass(frozen=True)
class Case:
    """One command whose results are kept.

    Attributes:
        name: Of the case and its golden file.
        command: What is typed after ``roundoff``.
        needs: Runs that must be there before, by their folders.
        shared: What must lie in ../shared; without it the case is skipped.
        slow: Whether it takes more than a few seconds.
        mask: Further patterns that are no part of the result, as columns of seconds.
        wide: Whether lines may be wider than the terminal: tables for programs, and as vendors print them.
        views: The ways it is shown.
    """

    name: str
    command: str
    needs: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    slow: bool = False
    mask: tuple[str, ...] = ()
    wide: bool = False
    views: tuple[str, ...] = tuple(VIEWS)

    @property
    def missing(self) -> str:
        """What it lacks on this machine; empty when nothing."""
        return next((path for path in self.shared if not (SHARED / path).exists()), "")

    @property
    def path(self) -> Path:
        """Where its golden is."""
        return _HERE / "data" / f"{self.name}.json"


def cases() -> dict[str, Case]:
    """The table of cases."""
    table = tomllib.loads((_HERE / "cases.toml").read_text(encoding="utf-8"))
    found = {}
    for name, entry in table["cases"].items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        found[name] = Case(name, **fields)
    return found


def _before() -> dict[str, str]:
    table = tomllib.loads((_HERE / "cases.toml").read_text(encoding="utf-8"))
    return dict(table["before"])


# Public functions that only compute. What they write, and what others write, is done again in every view.
_COMPUTING = {
    studies: (
        "layers", "accumulate", "sensitivity", "partial", "distribution", "channels", "outliers", "samples",
    ),
    checks: ("check_calibration",),
    comparison: ("compare",),
    diagnosis: ("diagnose",),
    quantization: ("quantize", "transform"),
}  # fmt: skip


@contextlib.contextmanager
def _computed_once() -> Iterator[None]:
    """Compute a case in its first view, only show it in the others: no result has a language or a width."""
    with contextlib.ExitStack() as stack:
        for module, names in _COMPUTING.items():
            for name in names:
                stack.enter_context(mock.patch.object(module, name, _once(getattr(module, name))))
        yield


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {}

    @functools.wraps(function)
    def call(**options: Any) -> Any:
        # A diagnosis that is going to repair goes on from what it has loaded.
        if options.get("explore"):
            return function(**options)
        key = repr([(name, options[name]) for name in sorted(options.keys() - {"progress", "tell"})])
        if key not in kept:
            told: list[tuple[Any, ...]] = []
            listening = {"tell": lambda *said: told.append(said)} if "tell" in options else {}
            kept[key] = function(**{**options, **listening}), told
        found, told = kept[key]
        for said in told:
            options["tell"](*said)
        return found

    return call


class Stage:
    """A folder with the scene, and with runs that several cases start from; made once per process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scene = make_scene(folder / "scene")
        (folder / "made").mkdir()

    def observe(self, case: Case) -> dict[str, Any]:
        """Run a case in every view; exit code, texts, and what was written."""
        with _computed_once():
            return self._observe(case)

    def _observe(self, case: Case) -> dict[str, Any]:
        codes, texts, files = {}, {}, {}
        for view in case.views:
            with self._place(case.name, case.needs) as place:
                known = {path.relative_to(place) for path in place.rglob("*")}
                code, out, err = _run(case.command, *VIEWS[view])
                codes[view] = code
                # Notes are wrapped after the seconds they tell; unwrapped they are the same on a slower machine.
                notes = _CHINESE_GAP.sub("", re.sub(r"\n +", " ", err))
                texts[view] = {"out": _lines(out, place, case.mask), "err": _lines(notes, place, case.mask)}
                if view == case.views[0]:
                    files = _written(place, known, case.mask)
        first = texts[case.views[0]]
        shown = {view: text for view, text in texts.items() if view == case.views[0] or text != first}
        exits = set(codes.values())
        return {"exit": exits.pop() if len(exits) == 1 else codes, "text": shown, "files": files}

    @contextlib.contextmanager
    def _place(self, name: str, needs: Sequence[str]) -> Iterator[Path]:
        place = self.folder / "cases" / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._scene, place)
        for need in needs:
            made = self._made(need)
            copy = shutil.copytree if made.is_dir() else shutil.copy
            copy(made, place / need)
        if SHARED.is_dir():
            (place / "shared").symlink_to(SHARED)
        with contextlib.chdir(place):
            yield place
        shutil.rmtree(place)

    def _made(self, name: str) -> Path:
        target = self.folder / "made" / name
        if not target.exists():
            with self._place(f"before-{name}", ()) as place:
                code, out, err = _run(_before()[name], "en", 80)
                assert (place / name).exists(), f"'{_before()[name]}' ended with {code}: {out}{err}"
                shutil.move(place / name, target)
        return target


def _run(command: str, language: str, columns: int) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    set_before = dict(os.environ)
    os.environ.update(ROUNDOFF_LANG=language, COLUMNS=str(columns))
    os.environ.pop("FORCE_COLOR", None)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(shlex.split(command))
            except SystemExit as left:
                code = int(left.code or 0)
    finally:
        os.environ.clear()
        os.environ.update(set_before)
    return code, out.getvalue(), err.getvalue()


def _lines(text: str, place: Path, mask: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in _steady(text, place, mask).splitlines()]


def _steady(text: str, place: Path, mask: Sequence[str] = ()) -> str:
    for path, word in ((place, "<here>"), (place.resolve(), "<here>"), (SHARED.resolve(), "shared")):
        text = text.replace(str(path), word)
    for pattern in mask:
        text = re.sub(pattern, "<masked>", text)
    for volatile, word in _VOLATILE:
        text = volatile.sub(word, text)
    return text


def _each_text(value: Any, place: Path) -> Any:
    """A document with steady texts; its numbers are left alone."""
    if isinstance(value, dict):
        return {_steady(key, place): _each_text(each, place) for key, each in value.items()}
    if isinstance(value, list):
        return [_each_text(each, place) for each in value]
    return _steady(value, place) if isinstance(value, str) else value


def _written(place: Path, known: set[Path], mask: Sequence[str]) -> dict[str, Any]:
    found = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place)
        if path.is_dir() or name in known or name.parts[0] == "shared":
            continue
        found[_steady(name.as_posix(), place)] = _content(path, place, mask)
    return found


def _content(path: Path, place: Path, mask: Sequence[str]) -> Any:
    """What is kept of a file: what people and programs read in it, a digest of tensors; nothing of pages."""
    kind = path.suffix.lower()
    if kind in _TEXTS:
        text = path.read_text(encoding="utf-8")
        if kind == ".csv":
            return reduced(list(csv.reader(_steady(text, place).splitlines())), table=True)
        with contextlib.suppress(json.JSONDecodeError):
            return reduced(_each_text(json.loads(text), place))
        return reduced(_lines(text, place, mask))
    return _TENSORS[kind](path) if kind in _TENSORS else None


def _network(model: Any) -> Mapping[str, Any]:
    """Operators of a model, and the numbers of its weights and scales."""
    weights = [numpy_helper.to_array(each).astype(np.float64).ravel() for each in model.graph.initializer]
    return {
        "operators": dict(sorted(Counter(node.op_type for node in model.graph.node).items())),
        "weights": digest(np.concatenate(weights)) if weights else None,
    }


def _arrays(path: Path) -> Mapping[str, Any]:
    with np.load(path) as archive:
        return {name: digest(archive[name]) for name in sorted(archive.files)}


def _members(path: Path) -> Sequence[str]:
    with zipfile.ZipFile(path) as archive:
        return sorted(archive.namelist())


def _raw(path: Path) -> Mapping[str, Any]:
    """Outputs as single floats, anything else as bytes."""
    data = path.read_bytes()
    return digest(np.frombuffer(data, np.uint8 if len(data) % 4 else np.float32))


_TEXTS = frozenset({
    ".json", ".encodings", ".csv", ".txt", ".log", ".md", ".xml", ".toml", ".yaml", ".yml", ".prototxt", ".cfg",
})  # fmt: skip
_TENSORS: Mapping[str, Callable[[Path], Any]] = {
    ".onnx": lambda path: _network(onnx.load(path)),
    ".npy": lambda path: digest(np.load(path)),
    ".npz": _arrays,
    ".bin": _raw,
    ".zip": _members,
}
