"""A unit that runs on a device: push, run and pull by commands of the user's, then compare what it computed.

A board is a worker with a capacity of one. What its runner needs is a template: three commands with gaps, which
may call ssh, adb or anything else. They are split into words before the gaps are filled, and no shell reads them.
"""

import contextlib
import os
import shlex
import string
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roundoff.api.inputs import open_data, open_model
from roundoff.api.outcome import Outcome
from roundoff.core.claims import ScratchFolder, claim
from roundoff.errors import EXIT_THRESHOLD_MISSED, BadInput, ModelFailed
from roundoff.graph.interface import inputs, outputs
from roundoff.messages.message import Message, english, message, some
from roundoff.run.capture import read_feed
from roundoff.samples.options import SampleOptions
from roundoff.suite.matrix import SuiteUnit

if TYPE_CHECKING:
    from roundoff.core.tensors import TensorSource
    from roundoff.studies.compare.result import Comparison

GAPS = ("model", "inputs", "input", "output", "sample", "name")
"""What templates may name: the deployed model; the folder of all inputs and that of one sample; where to pull to;
the number of the sample; a name that no other unit has."""

_STEPS = ("push", "run", "pull")
_USUAL_LIMIT_S = 600.0
_LOOK_AGAIN_S = 0.2
_MOST_SAID = 300
_NAMED = 4
_NAME_LENGTH = 12


@dataclass(frozen=True, slots=True)
class TapCheck:
    """Whether a device computes the same outputs when inner tensors are written out, too.

    Attributes:
        compared: Outputs of the plain model that both runs have.
        changed: Those that are not the same, bit by bit.
        missing: Outputs that one of the runs lacks.
        largest: The largest difference, against the largest value of that output.
    """

    compared: tuple[str, ...]
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    largest: float = 0.0

    @property
    def good(self) -> bool:
        """Whether tapping changes nothing, as far as all outputs tell."""
        return bool(self.compared) and not self.changed and not self.missing

    @property
    def text(self) -> Message:
        """In a sentence."""
        if self.changed:
            names = some(self.changed, _NAMED, quoted=True)
            share = f"{100 * self.largest:.3g}"
            return message("suite.taps_change", names=names, count=len(self.changed), share=share)
        if self.missing or not self.compared:
            return message("suite.taps_unknown", names=some(self.missing, _NAMED, quoted=True))
        return message("suite.taps_same", count=len(self.compared))


def tap_check(plain: "TensorSource", tapped: "TensorSource", wanted: Sequence[str]) -> TapCheck:
    """Say whether tapping tensors changed the outputs of a device.

    Args:
        plain: What it wrote without taps.
        tapped: What it wrote with them.
        wanted: The outputs of the network.
    """
    there = [{each.name for each in source.tensors} for source in (plain, tapped)]
    both = [name for name in wanted if name in there[0] and name in there[1]]
    changed, largest = [], 0.0
    for name in both:
        for sample in plain.samples:
            ours, theirs = (np.asarray(source.read(name, sample)) for source in (plain, tapped))
            if ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes():
                continue
            changed.append(name)
            if ours.shape == theirs.shape and ours.size:
                left, right = ours.astype(np.float64), theirs.astype(np.float64)
                scale = float(np.abs(left).max()) or 1.0
                largest = max(largest, float(np.abs(left - right).max()) / scale)
            else:
                largest = 1.0
            break
    return TapCheck(tuple(both), tuple(changed), tuple(name for name in wanted if name not in both), largest)


class BoardRunner:
    """Runs a model on a board by a template.

    Args:
        name: The board.
        template: Its commands.
        unique: Part of names that no other unit uses there.

    Raises:
        BadInput: A command is missing, or names a gap that there is not.
    """

    def __init__(self, name: str, template: Mapping[str, Any], *, unique: str) -> None:
        self._name, self._unique = name, unique
        self._limit_s = float(template.get("time_limit", _USUAL_LIMIT_S))
        self._words: dict[str, list[str]] = {}
        for step in (*_STEPS, "clean"):
            given = template.get(step)
            if given is None:
                if step in _STEPS:
                    what = english("The board {board!r} has no command {step!r}.", board=name, step=step)
                    raise BadInput(what, fix=english("write push, run and pull; see 'roundoff explain suite.md'"))
                continue
            self._words[step] = _split(name, step, given)

    def dump(self, model: str, fed: Path, samples: int, folder: Path) -> None:
        """Run a model on inputs and pull what it computed, a folder for each sample.

        Args:
            model: The deployed model.
            fed: A folder for each sample, named by its number, with its inputs.
            samples: How many.
            folder: Where the dumps go.

        Raises:
            ModelFailed: A command failed, or took too long.
        """
        gaps = {"model": model, "inputs": str(fed), "name": self._unique, "output": str(folder)}
        self._call("push", {**gaps, "sample": "0", "input": str(fed / "0")})
        try:
            for number in range(samples):
                place = folder / str(number)
                place.mkdir(parents=True)
                each = {**gaps, "sample": str(number), "input": str(fed / str(number)), "output": str(place)}
                self._call("run", each)
                self._call("pull", each)
        finally:
            if "clean" in self._words:
                with contextlib.suppress(ModelFailed):
                    self._call("clean", {**gaps, "sample": "0", "input": str(fed / "0")})

    def _call(self, step: str, gaps: Mapping[str, str]) -> None:
        words = [word.format_map(gaps) for word in self._words[step]]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own commands; no shell reads them
                words, capture_output=True, timeout=self._limit_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            what = english(
                "{step} on {board} took longer than {limit:g} s.", step=step, board=self._name, limit=self._limit_s
            )
            raise ModelFailed(what, fix=english("allow more with time_limit, or look at the board")) from error
        except OSError as error:
            what = english(
                "{step} on {board} cannot be started: {error}.", step=step, board=self._name, error=error
            )
            raise ModelFailed(
                what, fix=english("install {word}, or correct the command", word=words[0])
            ) from error
        if done.returncode:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[-_MOST_SAID:]
            what = english(
                "{step} on {board} ended with {code}: {said}",
                step=step, board=self._name, code=done.returncode, said=said or "-",
            )  # fmt: skip
            raise ModelFailed(what, fix=english("try it by hand: {words}", words=shlex.join(words)))


def _split(board: str, step: str, given: Any) -> list[str]:
    words = given if isinstance(given, list) else shlex.split(given) if isinstance(given, str) else []
    if not words or not all(isinstance(each, str) for each in words):
        what = english("{step} of the board {board!r} is no command.", step=step, board=board)
        raise BadInput(what, fix=english("write it as it is typed, or as a list of words"))
    for word in words:
        for _, gap, _, _ in string.Formatter().parse(word):
            if gap is not None and gap not in GAPS:
                what = english("{step} of the board {board!r} has a gap {gap!r}.", step=step, board=board, gap=gap)
                raise BadInput(what, fix=english("gaps are: {gaps}", gaps=", ".join(GAPS)))
    return list(words)


@contextlib.contextmanager
def alone_on(board: str) -> Iterator[None]:
    """Have a board to oneself, among all processes of this machine."""
    path = Path(tempfile.gettempdir(), f"roundoff-board-{''.join(c if c.isalnum() else '-' for c in board)}.lock")
    path.touch()
    while (held := claim(path)) is None and os.name == "posix":
        time.sleep(_LOOK_AGAIN_S)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def run_on_board(unit: SuiteUnit) -> "tuple[Outcome[Comparison], TapCheck | None]":
    """Run a deployed model on a board, and compare what it computed with the float model.

    Returns:
        The comparison, and whether taps changed the outputs, where a tapped model is given.

    Raises:
        BadInput: The template or the files cannot be used.
        ModelFailed: The board failed.
    """
    from roundoff.api.comparison import compare

    options = dict(unit.options)
    for needed in ("model", "deployed", "data"):
        if options.get(needed) is None:
            what = english("{label} needs {needed!r}.", label=unit.label, needed=needed)
            raise BadInput(what, fix=english("write {needed} = FILE for the model", needed=needed))
    runner = BoardRunner(unit.board, options, unique=f"{unit.model}-{unit.key[:_NAME_LENGTH]}")
    model = open_model(options["model"]).model
    limits = {name: options[name] for name in ("threads", "max_memory") if name in options}
    with ScratchFolder() as scratch:
        count = _write_inputs(model, options, scratch / "inputs")
        tapped = options.get("tapped")
        with alone_on(unit.board):
            runner.dump(options["deployed"], scratch / "inputs", count, scratch / "plain")
            if tapped is not None:
                runner.dump(tapped, scratch / "inputs", count, scratch / "tapped")
        dump = scratch / ("plain" if tapped is None else "tapped")
        outcome: Any = compare(
            options["model"], str(dump), data=options["data"], samples=options.get("samples"), **limits
        )
        if tapped is None:
            return _named(outcome, dump, unit), None
        from roundoff.tensors import open_source

        checked = tap_check(open_source(scratch / "plain"), open_source(scratch / "tapped"), outputs(model))
        found = replace(outcome.result, notes=(checked.text, *outcome.result.notes))
        code = outcome.exit_code if checked.good else EXIT_THRESHOLD_MISSED
        outcome = replace(
            outcome, result=found, document=replace(outcome.document, comparison=found), exit_code=code
        )
        return _named(outcome, dump, unit), checked


def _named(outcome: Any, dump: Path, unit: SuiteUnit) -> Any:
    """The outcome, which calls the folder that was pulled by its board."""
    document = outcome.document

    def named(text: str) -> str:
        return text.replace(str(dump), f"(board {unit.board})")

    read = tuple(replace(each, path=named(each.path)) for each in document.inputs)
    found = replace(outcome.result, candidate=named(str(outcome.result.candidate)))
    document = replace(document, command=tuple(map(named, document.command)), inputs=read, comparison=found)
    return replace(outcome, result=found, document=document)


def _write_inputs(model: Any, options: Mapping[str, Any], folder: Path) -> int:
    """Write what the model is fed: a folder for each sample, each input as .npy and as plain bytes."""
    from roundoff.core.names import FileNames

    specs = inputs(model)
    samples = open_data(options["data"], specs, SampleOptions(limit=options.get("samples")))
    for index in range(len(samples.names)):
        place = folder / str(index)
        place.mkdir(parents=True)
        names = FileNames()
        for name, array in read_feed(model, samples, index).items():
            stem = names.stem(name)
            np.save(place / f"{stem}.npy", array)
            (place / f"{stem}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    return len(samples.names)
