"""The run document: what was asked, on what, what was found; the only input of reports.

The types of its sections belong to the studies that make them, which stand above this module. They are named here
and imported when a document is read or written.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from roundoff import __version__
from roundoff.core.coverage import Judgement
from roundoff.core.files import is_caffe, model_files, reading
from roundoff.core.names import shown
from roundoff.core.tensors import Topology
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.messages.message import Message, english, message, message_content

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from roundoff.core.tensors import Array
    from roundoff.diagnosis.result import Diagnosis
    from roundoff.quantize.step_report import TransformReport
    from roundoff.search.result import Tuning
    from roundoff.studies.accumulate.result import Accumulation
    from roundoff.studies.audit.result import Audit
    from roundoff.studies.check_calibration.result import CalibrationCheck
    from roundoff.studies.check_io.result import IoCheck
    from roundoff.studies.compare.result import Comparison
    from roundoff.studies.distribution.result import ChannelReport, DistributionReport, OutlierReport
    from roundoff.studies.layers.result import LayerReport
    from roundoff.studies.partial.result import PartialQuantization
    from roundoff.studies.run_diff.result import RunDiff
    from roundoff.studies.samples.result import WorstSamples
    from roundoff.studies.sensitivity.result import SensitivityReport


# Raised whenever a reader of older documents would misread a newer one.
SCHEMA = 2
# Texts of the first were sentences; they are read as texts that are the same in every language.
_READ = (1, SCHEMA)

_SECTION_TYPES = {
    "comparison": ("Comparison", "roundoff.studies.compare.result"),
    "layers": ("LayerReport", "roundoff.studies.layers.result"),
    "distributions": ("DistributionReport", "roundoff.studies.distribution.result"),
    "channels": ("ChannelReport", "roundoff.studies.distribution.result"),
    "outliers": ("OutlierReport", "roundoff.studies.distribution.result"),
    "worst_samples": ("WorstSamples", "roundoff.studies.samples.result"),
    "accumulation": ("Accumulation", "roundoff.studies.accumulate.result"),
    "partial": ("PartialQuantization", "roundoff.studies.partial.result"),
    "sensitivity": ("SensitivityReport", "roundoff.studies.sensitivity.result"),
    "transform": ("TransformReport", "roundoff.quantize.step_report"),
    "tuning": ("Tuning", "roundoff.search.result"),
    "io_check": ("IoCheck", "roundoff.studies.check_io.result"),
    "calibration_check": ("CalibrationCheck", "roundoff.studies.check_calibration.result"),
    "diagnosis": ("Diagnosis", "roundoff.diagnosis.result"),
    "diff": ("RunDiff", "roundoff.studies.run_diff.result"),
    "audit": ("Audit", "roundoff.studies.audit.result"),
}
"""The type of each section, and where it is defined."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file or folder the run read.

    Attributes:
        role: What it was used as: reference, candidate, model, quantized, rules, data, aliases.
        path: As the user gave it.
        size_bytes: Size, all files of a folder together.
        sha256: Hash, by which a changed input is noticed.
        hashed: What the hash is of: the content, or the names and sizes where it is more than 256 MiB or
            a file in it cannot be read.
    """

    role: str
    path: str
    size_bytes: int
    sha256: str
    hashed: Literal["content", "listing"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where, when and how long it ran; never part of what two runs are compared by."""

    roundoff: str
    python: str
    packages: dict[str, str]
    host: str
    arithmetic: Message
    elapsed_s: float
    finished: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """One run. Everything but `environment` is the same, bit for bit, when the same is run twice.

    Attributes:
        schema: Version of this layout.
        command: The command line, word by word.
        inputs: What it read.
        network: The float network that the names are of; None when there is none.
        comparison: What a comparison found; None when it was none.
        layers: What a layer-by-layer run found; None when it was none.
        distributions: How values are distributed; None when that was not asked.
        channels: How channels differ; None when that was not asked.
        outliers: The outlier table; None when that was not asked.
        worst_samples: The ranking of samples; None when that was not asked.
        accumulation: Curves of accumulated error; None when none were measured.
        partial: What a sweep of partial quantization found; None when it was none.
        sensitivity: Rankings of what hurts; None when none were made.
        transform: What transforms and corrections brought; None when none were made.
        tuning: What a search for a better quantization found; None when it was none.
        io_check: What a check of a deployment's inputs and outputs found; None when it was none.
        calibration_check: What is wrong with a calibration set; None when none was checked.
        diagnosis: Why accuracy is lost, and what to do; None when that was not asked.
        diff: What differs between two other runs; None when none were compared.
        audit: Requested and effective precision of every node; None when that was not asked.
        judgement: What the verdict on the outputs rests on, where no section above says it; None where one does.
        environment: Versions, host and time.
    """

    schema: int
    command: tuple[str, ...]
    inputs: tuple[InputFile, ...]
    network: Topology | None = None
    comparison: "Comparison | None" = None
    layers: "LayerReport | None" = None
    distributions: "DistributionReport | None" = None
    channels: "ChannelReport | None" = None
    outliers: "OutlierReport | None" = None
    worst_samples: "WorstSamples | None" = None
    accumulation: "Accumulation | None" = None
    partial: "PartialQuantization | None" = None
    sensitivity: "SensitivityReport | None" = None
    transform: "TransformReport | None" = None
    tuning: "Tuning | None" = None
    io_check: "IoCheck | None" = None
    calibration_check: "CalibrationCheck | None" = None
    diagnosis: "Diagnosis | None" = None
    diff: "RunDiff | None" = None
    audit: "Audit | None" = None
    judgement: Judgement | None = None
    environment: Environment


def _load_section_types(sections: Collection[object]) -> None:
    """Import the types of the sections that a document has, so that pydantic can look them up in this module.

    Of those that it has not, nothing is needed but that their names mean something: they are None.
    """
    for section, (name, module) in _SECTION_TYPES.items():
        if section in sections:
            globals()[name] = getattr(import_module(module), name)
        else:
            globals().setdefault(name, type(None))


# Run documents as JSON, and back.

DOCUMENT_NAME = "run.json"
RECORD_NAME = "command.json"
"""The document of a run whose folder is known by another file: what was asked, on what, and where."""

_OURS = english("give a folder that roundoff wrote")


def to_json(document: RunDocument) -> str:
    """The document as JSON text; infinities and NaN are written as strings, so that none is lost."""
    content = {each.name: getattr(document, each.name) for each in fields(document)}
    # A document has one result; those of other kinds of runs are not mentioned.
    return _text({key: value for key, value in content.items() if value is not None}, message_content)


def environment_content(found: Environment) -> dict[str, object]:
    """Versions and host for files that are no run documents; when and how long it ran differs every time."""
    changing = ("elapsed_s", "finished")
    content = {each.name: getattr(found, each.name) for each in fields(found) if each.name not in changing}
    return content | {"arithmetic": message_content(found.arithmetic)}


def read_environment(content: Mapping[str, object]) -> Environment:
    """Versions and host as `environment_content` wrote them.

    Raises:
        ValueError: They are not.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(Environment).validate_python({**content, "elapsed_s": 0.0})


def json_text(content: object) -> str:
    """Dictionaries, lists, results, texts and numbers as JSON; infinities and NaN are written as strings."""
    return _text(content, str)


def _text(content: object, of_message: Callable[[Message], object]) -> str:
    # Should a float that JSON lacks be left, it refuses it loudly.
    return json.dumps(_plain(content, of_message), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load_document(path: Path | str) -> RunDocument:
    """Read a run directory or its run.json.

    Raises:
        BadInput: It is none, or nothing was found out there: a folder of ``roundoff quantize``.
    """
    file = Path(path) / DOCUMENT_NAME if Path(path).is_dir() else Path(path)
    if not file.exists() and (Path(path) / RECORD_NAME).is_file():
        what = english("{path} holds a quantized model, and nothing that was found out about it.", path=path)
        fix = english(
            "'roundoff audit {path} --html FILE' reports its precisions, 'roundoff layers' its errors", path=path
        )
        raise BadInput(what, fix=fix)
    return parse_document(read_json(file, what=english("The run document"), fix=_OURS), file)


def parse_document(content: object, file: object) -> RunDocument:
    """The run that the content of a run.json tells of.

    Args:
        content: What its JSON holds.
        file: What it is called, for messages.

    Raises:
        BadInput: It is of another version, or no run document.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema not in _READ or not isinstance(content, dict):
            what = english(
                "{file} has schema {schema!r}; this version reads {read}.",
                file=file,
                schema=schema,
                read=" and ".join(map(str, _READ)),
            )
            raise BadInput(what, fix=english("run the command again with this version of roundoff"))
        _load_section_types(content)
        return replace(TypeAdapter(RunDocument).validate_python(content), schema=SCHEMA)
    except ValidationError as error:
        raise BadInput(
            english("{file} is not a run document: {first}.", file=file, first=_first(error.errors())), fix=_OURS
        ) from error
    except ValueError as error:
        raise BadInput(
            english("{file} is not a run document: {error}.", file=file, error=error), fix=_OURS
        ) from error


def _first(wrong: "Sequence[ErrorDetails]") -> str:
    """The first thing that is wrong in a document, where, and how much else is."""
    place = ".".join(map(str, wrong[0]["loc"])) or english("the document")
    more = english(", and {number} more like this", number=len(wrong) - 1) if len(wrong) > 1 else ""
    return f"{place}: {wrong[0]['msg']}{more}"


def _plain(value: object, of_message: Callable[[Message], object]) -> object:
    """The same content in JSON's types, with floats JSON lacks as the strings Python reads back."""
    if isinstance(value, Message):
        value = of_message(value)
    elif is_dataclass(value):
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        # What few runs have is not mentioned in the others.
        rare = {each.name for each in fields(value) if "rare" in each.metadata}
        value = {name: item for name, item in found.items() if item or name not in rare}
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {_plain(key, of_message): _plain(item, of_message) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, of_message) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return str(value)
    return value


# What a run read and where it ran, for its document.

# More than this is told apart by names and sizes: hashing it would take longer than the comparison.
_HASHED_BYTES = 256 << 20
_PACKAGES = ("numpy", "onnx", "onnxruntime")


def input_file(role: str, path: Path) -> "InputFile":
    """Identify a file, a folder or the two files of a Caffe net by a hash.

    It is one of the content while that is quick, else of the names and sizes.
    """
    with reading(path, what=english("The input")):
        listing = sorted(_listing(path))
        size = sum(file_size for _, file_size in listing)
        content = _content_hash(path, [name for name, _ in listing]) if size <= _HASHED_BYTES else None
    if content is not None:
        return InputFile(role, str(path), size, content, "content")
    return InputFile(role, str(path), size, _text_hash(f"{size} {name}" for name, size in listing), "listing")


def bytes_input(role: str, name: str, content: bytes) -> "InputFile":
    """Identify what was given in memory by a hash of its bytes.

    Args:
        role: What it was used as.
        name: What stands in place of a path.
        content: Its bytes.
    """
    return InputFile(role, name, len(content), hashlib.sha256(content).hexdigest(), "content")


def array_input(role: str, feeds: "Iterable[Mapping[str, Array]]", *, name: str = "(array)") -> "InputFile":
    """Identify arrays by a hash of their names, types, shapes and values.

    Beyond what is hashed of files only names, types and shapes count, too.

    Args:
        role: What they were used as.
        feeds: The arrays, by the inputs they are for; one mapping for each sample.
        name: What stands in place of a path.
    """
    content, listing, size = hashlib.sha256(), hashlib.sha256(), 0
    for feed in feeds:
        for key, array in feed.items():
            head = f"{key} {array.dtype.str} {array.shape}\n".encode("utf-8", "surrogatepass")
            listing.update(head)
            size += array.nbytes
            if size <= _HASHED_BYTES:
                content.update(head)
                content.update(array.tobytes())
    if size <= _HASHED_BYTES:
        return InputFile(role, name, size, content.hexdigest(), "content")
    return InputFile(role, name, size, listing.hexdigest(), "listing")


def data_paths(given: Sequence[str] | None) -> Iterator[Path]:
    """The files and folders that --data names, with or without an input before them."""
    for text in given or ():
        path = Path(text)
        yield path if path.exists() else Path(text.partition("=")[2])


def environment(elapsed_s: float) -> "Environment":
    """Versions, host and time of this run."""
    return Environment(
        roundoff=__version__,
        python=platform.python_version(),
        packages={name: metadata.version(name) for name in _PACKAGES},
        host=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        arithmetic=message("about.arithmetic_used"),
        elapsed_s=round(elapsed_s, 3),
        finished=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _listing(path: Path) -> list[tuple[str, int]]:
    if not path.is_dir():
        return [(file.name, file.stat().st_size) for file in model_files(path)]
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [(str(file.relative_to(path)), file.stat().st_size) for file in files if file.is_file()]


def _content_hash(path: Path, names: Sequence[str]) -> str | None:
    """The hash of a file, or of the names and hashes of a folder's files; None when one cannot be read."""
    try:
        if is_caffe(path):
            return _text_hash(f"{_file_hash(file)} {file.suffix}" for file in model_files(path))
        if path.is_file():
            return _file_hash(path)
        return _text_hash(f"{_file_hash(path / name)} {name}" for name in names)
    except OSError:
        # Such a file is a row of the result; it must not cost the whole result.
        return None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text_hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
