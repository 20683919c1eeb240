"""An earlier run as the source of a case: what it found, with which options, on which files.

A case is made of what a run was given, opened again. Two things are known above this layer only: the words of
commands, and the folders that vendors' tools leave. Their readers are named in `roundoff.COMMAND_READER` and
`roundoff.BUILD_READERS`, and loaded when a run is there to be read.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import roundoff
from roundoff.case.excerpt import ChosenSamples, QuantizedCase, Tell, untold
from roundoff.case.synthetic import FoundSynthetic
from roundoff.core.document import (
    DOCUMENT_NAME,
    RECORD_NAME,
    Environment,
    InputFile,
    RunDocument,
    bytes_input,
    input_file,
    load_document,
    to_json,
)
from roundoff.core.files import model_files, read_small
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.diagnosis.result import Diagnosis, Finding
from roundoff.errors import BadInput
from roundoff.graph.load import Model, load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import Remark, english, verbatim
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.plan_file import PLAN_NAME
from roundoff.quantize.targets.files import target_text
from roundoff.run.budget import UNLIMITED, RunBudget
from roundoff.run.capture import Samples

if TYPE_CHECKING:
    from roundoff.align.pairing import Pairing
    from roundoff.core.target import Arithmetic
    from roundoff.core.tensors import InputSpec, TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames

MAKERS = ("quantize", "tune")
"""Commands that leave a quantized model in their folder."""

_NO_SAMPLES = english("The run had no samples, so that there is no fault to show.")
_DATA = "--data data/worst.txt"


# What is known of a run's options, and what opens again what they name.


class OpenedModel(Protocol):
    """What a run analyzed."""

    @property
    def quantized(self) -> QuantizedModel:
        """The float model and its quantizers."""
        ...

    @property
    def samples(self) -> Samples:
        """What it was fed."""
        ...

    @property
    def arithmetic(self) -> "Arithmetic":
        """What it is made for."""
        ...

    @property
    def words(self) -> Remark:
        """Quantized how, in words."""
        ...


class OpenedSides(Protocol):
    """Both sides of a comparison."""

    @property
    def reference(self) -> "TensorSource":
        """What is right."""
        ...

    @property
    def candidate(self) -> "TensorSource":
        """What is compared with it."""
        ...

    @property
    def pairing(self) -> "Pairing":
        """Which tensor is which."""
        ...

    @property
    def model(self) -> Model | None:
        """The model of the reference, if known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPaths:
    """What a run was given, as far as a case depends on it.

    Attributes:
        model: The float model.
        quantized: The quantized one: a file, or a folder that quantize wrote.
        target: The chip it was quantized for in this run.
        rules: Rules for that.
        dumps: What a device wrote.
        reference: Of a comparison, what is right.
        data: Whether samples were given.
    """

    model: Path | None = None
    quantized: Path | None = None
    target: str | None = None
    rules: Path | None = None
    dumps: Path | None = None
    reference: Path | None = None
    data: bool = False


class EarlierRun(Protocol):
    """A run whose inputs can be opened again."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        ...

    @property
    def document(self) -> RunDocument:
        """What it found."""
        ...

    @property
    def given(self) -> GivenPaths:
        """What it was given."""
        ...

    def model(self, *, stored: Path | None = None) -> OpenedModel:
        """What it analyzed; with `stored`, what it left in that folder."""
        ...

    def device(self) -> "tuple[OpenedModel, TensorSource, KnownNames]":
        """The model that a device was given, what the device wrote, and what is known of its names."""
        ...

    def sides(self) -> AbstractContextManager[OpenedSides]:
        """Both sides of a comparison."""
        ...

    def compared(self) -> "EarlierRun":
        """A diagnosis of dumps as a comparison of the model with them; a comparison as it is."""
        ...

    def samples(self, inputs: "Sequence[InputSpec]") -> Samples:
        """The samples, for these inputs."""
        ...

    def quantize_settings(self) -> QuantizeSettings:
        """How it quantized for its target."""
        ...


class CommandReader(Protocol):
    """Reads the words of a run's command."""

    def __call__(self, file: Path, document: RunDocument, *, limits: RunBudget, progress: Progress) -> EarlierRun:
        """The run of a document; raises `BadInput` when this version does not take its words."""
        ...


@dataclass(frozen=True, slots=True)
class BundleSettings:
    """How a bundle is made.

    Attributes:
        confidential: Replace weights, names and samples, and verify that the fault is still there.
        keep_data: Keep the samples as they are all the same.
        seed: Of what is chosen at random.
        limits: What runs may take.
        progress: Told of runs.
        tell: Told of each step when it is over.
    """

    confidential: bool = False
    keep_data: bool = False
    seed: int = 0
    limits: RunBudget = UNLIMITED
    progress: Progress = SILENT
    tell: Tell = untold


class BuildReader(Protocol):
    """Opens what a vendor's tool left in a folder."""

    def __call__(self, path: Path, settings: BundleSettings) -> "AbstractContextManager[CaseSource]":
        """What is in it, with the model and data it was made of."""
        ...


def build_reader(path: Path) -> BuildReader | None:
    """Who opens a folder that is no run of ours; None when it is for nobody."""
    for file, module in roundoff.BUILD_READERS.items():
        if path.name == file or (path / file).is_file():
            reader: BuildReader = importlib.import_module(f"roundoff.{module}").open_build
            return reader
    return None


def number_of(value: object, *, what: str, least: int) -> int:
    """A whole number that was given.

    Raises:
        BadInput: It is none, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadInput(
            english("{what} is {value!r}.", what=what, value=value),
            fix=english("give a whole number from {least} on", least=least),
        )
    return value


def open_run(
    path: Path, supported: Sequence[str], *, what: str, limits: RunBudget, progress: Progress
) -> EarlierRun:
    """A run whose inputs are still what they were.

    Args:
        path: The folder of the run, or its file.
        supported: Commands whose runs will do.
        what: What is to be made of it, for messages.
        limits: What opening its inputs again may take.
        progress: Told of that.

    Raises:
        BadInput: It is no run, one of another command or version, or its inputs have changed.
    """
    file, document = read_run(path, supported, what=what)
    reader: CommandReader = importlib.import_module(f"roundoff.{roundoff.COMMAND_READER}").read_command
    run = reader(file, document, limits=limits, progress=progress)
    refuse_changed(document.inputs)
    return run


def read_run(path: Path, supported: Sequence[str], *, what: str) -> tuple[Path, RunDocument]:
    """The document of a run, and its file.

    Args:
        path: The folder of the run, or its file.
        supported: Commands whose runs will do.
        what: What is to be made of it, for messages.

    Raises:
        BadInput: It is no run, or one of another command.
    """
    file = path
    if path.is_dir():
        found = [path / name for name in (DOCUMENT_NAME, RECORD_NAME) if (path / name).is_file()]
        if not found:
            missing = english(
                "{path} holds no run: it has neither {document_name} nor {record_name}.",
                path=path,
                document_name=DOCUMENT_NAME,
                record_name=RECORD_NAME,
            )
            raise BadInput(missing, fix=english("give a folder that a command of roundoff wrote with -o"))
        file = found[0]
    document = load_document(file)
    called, *words = document.command
    if called != "roundoff":
        raise BadInput(
            english("{file} was made in Python, of a model or samples that are in no file.", file=file),
            fix=english("call {called}() with the paths of files, and save that run", called=called),
        )
    name = words[0] if words else ""
    if name not in supported:
        raise BadInput(
            "{file} is a run of {name!r}, of which no {what} can be made.",
            fix=english(
                "give a run of {supported} or {supported2}",
                supported=", ".join(supported[:-1]),
                supported2=supported[-1],
            ),
            file=file,
            name=name or english("nothing"),
            what=what,
        )
    return file, document


def refuse_changed(inputs: Iterable[InputFile]) -> None:
    """Refuse files that are gone or are not what a run read: what is made of them would show something else.

    Raises:
        BadInput: One of them is.
    """
    wrong = []
    for each in inputs:
        path = Path(each.path)
        # A configuration may be called .prototxt, and is no half of a Caffe net then.
        alone = each.role == "config"
        if not path.is_dir() and not all(file.exists() for file in ((path,) if alone else model_files(path))):
            wrong.append(f"the {each.role} {each.path} is missing")
            continue
        now = bytes_input(each.role, each.path, path.read_bytes()) if alone else input_file(each.role, path)
        if now.sha256 != each.sha256:
            wrong.append(f"the {each.role} {each.path} has changed since the run")
    if wrong:
        raise BadInput(
            english("The run cannot be made again: {wrong}.", wrong="; ".join(wrong)),
            fix=english("work in the folder where the command was run, put the files back, or run it again"),
        )


def findings_of(document: RunDocument) -> Iterator[Finding]:
    """The faults of a run, worst first; rows of tables become findings without a cause."""
    if document.diagnosis is not None:
        yield from document.diagnosis.findings
        return
    if document.layers is not None and document.layers.verdict.kind != "fine":
        causes = {row.tensor: row for row in document.layers.rows if row.introduced is not None}
        shares = {name: row.introduced.output_share for name, row in causes.items() if row.introduced is not None}
        culprits = [each.tensor for each in document.layers.verdict.culprits]
        rest = sorted(shares, key=lambda name: -shares[name])
        for number, name in enumerate(dict.fromkeys((*(each for each in culprits if each in causes), *rest)), 1):
            row = causes[name]
            cause = "" if row.introduced is None else row.introduced.cause
            yield Finding(number, cause, (row.node,), (name,), verbatim(f"{name} adds much of the error"))
    if document.comparison is not None:
        verdict = document.comparison.verdict
        nodes = {row.reference: row.node for row in document.comparison.rows}
        for number, name in enumerate(dict.fromkeys((*verdict.introduces, *verdict.worst)), 1):
            yield Finding(number, "difference", (nodes.get(name, ""),), (name,), verbatim(f"{name} differs"))


# What a bundle of a quantized model is made of.


@dataclass(frozen=True, slots=True)
class Extra:
    """What one kind of run adds to a bundle.

    Attributes:
        members: Files.
        target: For which chip, in words.
        reproduce: Commands that show the fault again.
        recalibrated: What calibrating on few samples gives, in words.
        files: What each of the files is, where not every bundle has it.
        vocabulary: Words that stand in its files whatever the model is.
    """

    members: dict[str, bytes]
    target: str = ""
    reproduce: tuple[str, ...] = ()
    recalibrated: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    vocabulary: tuple[str, ...] = ()


class Extras(Protocol):
    """Knows what a run adds."""

    def open(self, case: QuantizedCase, chosen: ChosenSamples) -> Extra:
        """As it is."""
        ...

    def secret(self, found: FoundSynthetic, chosen: ChosenSamples) -> Extra:
        """Under other names."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaseSource:
    """What a bundle of a quantized model is made of.

    Attributes:
        kind: The command whose run it is.
        quantized: The model that shows the fault.
        samples: What it was fed.
        original: The float model that is handed on.
        model: How that one is called in the ticket.
        words: What is wrong, in words: quantized how.
        command: The command of the run, word by word.
        environment: Where the run was made.
        paths: Files of the run, whose names are secrets.
        extras: Knows what such a run adds.
        texts: More secrets: names that only the run knows.
        diagnosis: What a diagnosis found; None where the run was none.
        missed: Whether the run had a goal and did not reach it.
        located: Nodes that an analysis of layers proved to make the loss; None where the run was none.
    """

    kind: str
    quantized: QuantizedModel
    samples: Samples
    original: Model
    model: str
    words: str
    command: tuple[str, ...]
    environment: Environment
    paths: tuple[str, ...]
    extras: Extras
    texts: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None
    missed: bool = False
    located: frozenset[str] | None = None

    @property
    def proven(self) -> frozenset[str] | None:
        """Nodes that the run proved to make the loss; None where it did not look for them."""
        if self.diagnosis is None:
            return self.located
        return frozenset(name for each in self.findings for name in each.accused_nodes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Causes that were proven."""
        return () if self.diagnosis is None else self.diagnosis.accused


def source_of(run: EarlierRun) -> CaseSource:
    """What a run analyzed or made.

    Raises:
        BadInput: There is nothing quantized in it, or no sample.
        ModelFailed: A model cannot be run.
    """
    document, given = run.document, run.given
    layers = document.layers
    opened = _opened(run)
    if not given.data and not opened.quantized.float_model.proto.graph.input:
        raise BadInput(_NO_SAMPLES, fix=english("run it with --data"))
    return CaseSource(
        kind=document.command[1],
        quantized=opened.quantized,
        samples=opened.samples,
        original=opened.quantized.float_model if given.model is None else load_model(given.model),
        model="model/float.onnx" + ("" if given.model is None else f" ({shown(given.model.name)})"),
        words=str(opened.words or "quantized as in config/quantizers.csv"),
        command=document.command,
        environment=document.environment,
        paths=tuple(each.path for each in document.inputs),
        extras=RunExtras(run),
        diagnosis=document.diagnosis,
        located=None
        if layers is None
        else frozenset(each.node or each.tensor for each in layers.verdict.culprits),
    )


def _opened(run: EarlierRun) -> OpenedModel:
    """What the run analyzed; what quantize and tune made is read from their folder."""
    name, given = run.document.command[1], run.given
    if name not in MAKERS:
        if given.quantized is None and given.target is None:
            what = english("The run of {name} looked at a float model: nothing in it is quantized.", name=name)
            raise BadInput(what, fix=english("run it with --quantized or --target"))
        if not given.data:
            raise BadInput(_NO_SAMPLES, fix=english("run it with --data"))
        return run.model()
    if not given.data:
        why = (
            english("was quantized without samples (--statistics)")
            if name == "quantize"
            else english("was fed by the evaluator")
        )
        what = english("The model {why}, so that there is no fault to show.", why=why)
        again = english("roundoff layers --quantized {folder} --data ... -o RUN", folder=run.folder)
        raise BadInput(what, fix=english("type '{again}', and bundle RUN", again=again))
    return run.model(stored=run.folder)


@dataclass(frozen=True, slots=True)
class RunExtras:
    """Plan, rules and target of a run, and its document.

    Attributes:
        run: The run.
    """

    run: EarlierRun

    def open(self, case: QuantizedCase, chosen: ChosenSamples) -> Extra:
        """Everything that the run had."""
        del chosen
        members = {**self._configuration(), "run.json": to_json(self.run.document).encode()}
        target = self._target_name("config/target.toml")
        return Extra(members, target, self._requantize(target), self._recalibrated(case))

    def secret(self, found: FoundSynthetic, chosen: ChosenSamples) -> Extra:
        """The target, unless it is the user's own."""
        del found, chosen
        target = self._target_name("one of the sender's own")
        return Extra(self._target(own=False), target, self._requantize(target if self._built_in else ""))

    @property
    def _built_in(self) -> bool:
        target = self.run.given.target
        return bool(target) and not Path(str(target)).is_file()

    @property
    def _command(self) -> str:
        return self.run.document.command[1]

    def _target_name(self, own: str) -> str:
        target = self.run.given.target
        if not target:
            return ""
        return target if self._built_in else own

    def _requantize(self, target: str) -> tuple[str, ...]:
        # What tune found takes more than the target to be made again.
        if not target or self._command == "tune":
            return ()
        return (f"roundoff quantize model/float.onnx --target {target} {_DATA} -o again",)

    def _configuration(self) -> dict[str, bytes]:
        """Plan, rules and target, as far as the run had them."""
        given = self.run.given
        members = self._target(own=True)
        # What diagnose --fix left in its folder is the repaired model's.
        made = self.run.folder if self._command in MAKERS else None
        for place in (made, given.quantized):
            if place is not None and (place / PLAN_NAME).is_file():
                members["config/plan.json"] = read_small(place / PLAN_NAME, what=english("The plan"))
                break
        if given.rules is not None:
            members["config/rules.toml"] = read_small(given.rules, what=english("The rules"))
        return members

    def _target(self, *, own: bool) -> dict[str, bytes]:
        """The target's file; one of the user's own only where that is allowed."""
        target = self.run.given.target
        if not target or not (self._built_in or own):
            return {}
        return {"config/target.toml": target_text(target).encode()}

    def _recalibrated(self, case: QuantizedCase) -> str:
        """What calibrating on the chosen samples alone gives: the minimal calibration set of the vendor's form."""
        given = self.run.given
        if not given.target or given.model is None or self._command == "tune":
            return ""
        result = quantize_model(load_model(given.model), case.samples, self.run.quantize_settings())
        if result.best.measured_db is None:
            return ""
        return english(
            "calibrated on {few} {few:sample|samples} alone: {value} dB at the worst output",
            few=len(case.samples.names),
            value=f"{result.best.measured_db:.1f}",
        )
