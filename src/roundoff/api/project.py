"""A project's own file, roundoff.toml: what its commands would otherwise be told each time; and who writes it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from roundoff.api.call import public
from roundoff.api.inputs import PathLike, as_path
from roundoff.core.files import is_there, read_small, write_text
from roundoff.core.untrusted import read_toml
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english, shown

PROJECT_NAME = "roundoff.toml"

_TOP = ("model", "quantized", "target", "labels", "evaluator")
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "data": (
        "path", "samples", "data-format", "raw-dtype", "raw-shape", "image-color", "image-layout", "image-size",
        "image-resize", "image-filter", "image-resizer", "image-pad", "scale", "mean", "std",
    ),
    "quantization": ("calibration", "weight-method", "calibration-option", "set", "rules"),
    "goal": ("max-drop", "min-metric", "max-cost"),
    "limits": ("max-memory", "threads"),
}  # fmt: skip
# Sizes have an x between them, a Caffe net's two files and other lists a comma; what may be repeated is.
_SIZES, _REPEATED = ("raw-shape", "image-size"), ("path", "set", "calibration-option")
_FILES = ("model", "quantized", "labels", "evaluator", "path", "rules")
_FIX = english("correct it; 'roundoff init --help' shows what it may hold")


@dataclass(frozen=True, slots=True)
class Project:
    """What a project's file says.

    Attributes:
        file: Where it is.
        options: What is typed for each option, by its name without dashes; ``model`` is a word of its own.
    """

    file: Path
    options: Mapping[str, tuple[str, ...]]


@public
def load_project(folder: PathLike = ".") -> Project:
    """Read ``roundoff.toml`` of a folder.

    Args:
        folder: Where it is.

    Raises:
        BadInput: There is none, or it holds what no command takes; all such keys are named at once.
    """
    place = as_path(folder, option="The folder")
    file = place / PROJECT_NAME
    content = read_toml(file, what=english("The project"))
    wrong, found = [], {}
    for key, value, name in _keys(content):
        known = _TOP if "." not in name else _SECTIONS.get(name.partition(".")[0], ())
        words = _words(key, value, place) if key in known else None
        if words is None:
            wrong.append(name if key not in known else f"{name} = {value!r}")
        else:
            found["data" if key == "path" else key] = words
    if wrong:
        every = [*_TOP, *(f"{section}.{key}" for section, keys in _SECTIONS.items() for key in keys)]
        meant = nearest(wrong[0], every)
        raise BadInput(
            english("{file} holds what is not known there: {wrong}.", file=file, wrong=", ".join(wrong)),
            fix=meant if meant.endswith("?") else _FIX,
        )
    for first, second in (("labels", "evaluator"), ("max-drop", "min-metric")):
        if first in found and second in found:
            what = english("{file} says both {first} and {second}.", file=file, first=first, second=second)
            raise BadInput(what, fix=english("keep one of them"))
    return Project(file, found)


def _keys(content: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Each key, what it is set to, and how it is written; keys of sections may have ``_`` for ``-``."""
    for name, value in content.items():
        if name in _SECTIONS and isinstance(value, dict):
            for key, inner in value.items():
                yield key.replace("_", "-"), inner, f"{name}.{key}"
        else:
            yield name.replace("_", "-"), value, name


def _words(key: str, value: Any, folder: Path) -> tuple[str, ...] | None:
    """What is typed for a value; None where it is of no kind that can be typed."""
    if key == "path" and isinstance(value, dict):
        pairs = [f"{name}={_placed(path, folder)}" for name, path in value.items() if isinstance(path, str)]
        return tuple(pairs) if len(pairs) == len(value) > 0 else None
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in parts):
        return None
    placed = key in _FILES or (key == "target" and str(value).endswith(".toml"))
    spelled = [_placed(str(each), folder) if placed else str(each) for each in parts]
    if key in _REPEATED:
        return tuple(spelled)
    return (("x" if key in _SIZES else ",").join(spelled),)


def _placed(path: str, folder: Path) -> str:
    """A path as it is seen from here; one that ships with roundoff by its name stays."""
    placed = folder / path
    return str(placed) if folder != Path() and is_there(placed) else path


_TARGET_LINE = re.compile(r"\s*#\s*target\s*=")


def target_hint(folder: Path = Path()) -> str:
    """How the chip is set in a project's file that sets none; empty where there is no such file, or it need not.

    Args:
        folder: Where it is.
    """
    file = folder / PROJECT_NAME
    try:
        if {"target", "quantized"} & set(load_project(folder).options):
            return ""
        lines = read_small(file, what=english("The project")).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError, BadInput):
        return ""
    gaps = {"file": file, "setting": 'target = "NAME"'}
    line = next((number for number, text in enumerate(lines, 1) if _TARGET_LINE.match(text)), None)
    if line is None:
        return english("put {setting} at the top of {file}", **gaps)
    return english("set {setting} in line {line} of {file}, without its #", line=line, **gaps)


# What a folder has -----------------------------------------------------------------------------------------------

# Files and folders looked at, two levels deep: a project is found at once, a disk is not walked.
_MOST_ENTRIES, _MOST_MODELS = 4000, 16
_LARGEST_MODEL = 2**31
_EVALUATES = re.compile(rb"^def evaluate\(", re.MULTILINE)
_LABELS = re.compile(r"label|class|target|truth", re.IGNORECASE)
# Of several, what the name says it is for; test data come last: they are to judge by.
_PREFERRED = ("calib", "sample", "data", "image", "train", "input", "val", "test")
_FEW_TENSORS = 3
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear", "MatMulNBits")


@dataclass(frozen=True, slots=True)
class FoundParts:
    """What lies in a folder that commands can take, the likeliest first.

    Attributes:
        models: Float networks.
        quantized: Quantized networks, and folders of ``roundoff quantize``.
        data: Files and folders of samples.
        labels: Files of right classes of the first data.
        judged: Arrays of samples that have as many labels, and these.
        evaluators: Python files with ``evaluate``.
        dumps: Folders of tensors that are no samples.
        runs: Folders with a run.json.
        pictures: How many of the first data are pictures; 0 for arrays.
    """

    models: tuple[Path, ...] = ()
    quantized: tuple[Path, ...] = ()
    data: tuple[Path, ...] = ()
    labels: tuple[Path, ...] = ()
    judged: tuple[tuple[Path, Path], ...] = ()
    evaluators: tuple[Path, ...] = ()
    dumps: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()
    pictures: int = 0


@dataclass(slots=True)
class _FolderLook:
    """A folder while it is looked through."""

    files: list[Path] = field(default_factory=list)
    inside: dict[Path, list[Path]] = field(default_factory=dict)


def look_into(folder: Path) -> FoundParts:
    """What a folder has that commands can take.

    Args:
        folder: Itself and the folders in it are looked at.
    """
    seen = _seen(folder)
    models, quantized = _networks(seen)
    runs = [place for place, files in seen.inside.items() if any(each.name == "run.json" for each in files)]
    plans = [place for place, files in seen.inside.items() if any(each.name == "plan.json" for each in files)]
    ours = {*runs, *plans}
    shapes = _input_shapes(models[0]) if models else ()
    arrays = {file: shape for file in seen.files if (shape := _array_shape(file)) is not None}
    data = [file for file, shape in arrays.items() if _fits(shape, shapes)]
    labels = [file for file, shape in arrays.items() if len(shape) == 1 and _LABELS.search(file.stem)]
    labels += [
        file for file in seen.files if file.suffix.lower() in (".csv", ".txt") and _LABELS.search(file.stem)
    ]
    pictures, dumps = {}, []
    for place, files in seen.inside.items():
        if place in ours:
            continue
        count = sum(_is_picture(file) for file in files)
        if count:
            pictures[place] = count
        elif (kind := _kind_of_tensors(files, shapes)) == "samples":
            data.append(place)
        elif kind == "dump":
            dumps.append(place)
    ranked = sorted([*data, *pictures], key=_preference)
    fitting = {each: _of_as_many(labels, each, arrays) for each in ranked}
    first_labels = fitting[ranked[0]] if ranked else tuple(labels)
    return FoundParts(
        models=tuple(models),
        quantized=(*quantized, *(place for place in plans if place not in runs)),
        data=tuple(ranked),
        labels=first_labels,
        judged=tuple((each, found[0]) for each, found in fitting.items() if found and each in arrays),
        evaluators=tuple(file for file in seen.files if file.suffix == ".py" and _EVALUATES.search(_start(file))),
        dumps=tuple(dumps),
        runs=tuple(runs),
        pictures=pictures.get(ranked[0], 0) if ranked else 0,
    )


def _seen(folder: Path) -> _FolderLook:
    look = _FolderLook()
    try:
        entries = sorted(
            islice((each for each in folder.iterdir() if not each.name.startswith(".")), _MOST_ENTRIES)
        )
    except OSError:
        return look
    left = _MOST_ENTRIES
    for entry in entries:
        path = entry.relative_to(folder) if folder == Path() else entry
        if not entry.is_dir():
            look.files.append(path)
            continue
        try:
            files = sorted(islice((each for each in entry.iterdir() if each.is_file()), max(0, left)))
        except OSError:
            continue
        left -= len(files)
        look.inside[path] = files
    return look


def _start(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(2**18)
    except OSError:
        return b""


def _networks(seen: _FolderLook) -> tuple[list[Path], list[Path]]:
    """Float networks and quantized ones."""
    floats: list[Path] = []
    quantized: list[Path] = []
    nets = [file for file in seen.files if file.suffix.lower() in (".onnx", ".prototxt")]
    for file in nets[:_MOST_MODELS]:
        if file.suffix.lower() == ".prototxt":
            floats.append(file)
        elif (kind := _kind_of_network(file)) is not None:
            (quantized if kind == "quantized" else floats).append(file)
    return floats, quantized


def _graph(file: Path) -> Any:
    """The graph of a network, weights in other files left where they are; None where it cannot be read."""
    import onnx

    try:
        if file.stat().st_size > _LARGEST_MODEL:
            return None
        return onnx.load(str(file), load_external_data=False).graph
    except Exception:  # noqa: BLE001  what is no network is none of our business here
        return None


def _kind_of_network(file: Path) -> str | None:
    graph = _graph(file)
    if graph is None or not graph.node:
        return None
    kinds = {node.op_type for node in graph.node}
    integer = any(kind in _QUANTIZING or kind.startswith("QLinear") or kind.endswith("Integer") for kind in kinds)
    return "quantized" if integer else "float"


def _input_shapes(model: Path) -> tuple[tuple[int, ...], ...]:
    """Shapes of a network's inputs, 0 for what is open."""
    graph = _graph(model) if model.suffix.lower() == ".onnx" else None
    if graph is None:
        return ()
    constants = {each.name for each in graph.initializer}
    return tuple(
        tuple(each.dim_value for each in value.type.tensor_type.shape.dim)
        for value in graph.input
        if value.name not in constants
    )


def _array_shape(file: Path) -> tuple[int, ...] | None:
    from roundoff.core.array_files import Unreadable, read_header

    if file.suffix.lower() != ".npy":
        return None
    try:
        return read_header(file).shape
    except (Unreadable, OSError):
        return None


def _fits(shape: Sequence[int], inputs: Iterable[Sequence[int]]) -> bool:
    """Whether an array can be samples of an input: the same axes behind the first, one of which may be missing."""
    for wanted in inputs:
        for axes in (tuple(shape), (1, *shape)):
            behind = tuple(zip(axes[1:], wanted[1:], strict=False))
            if len(axes) == len(wanted) and len(axes) > 1 and all(b in (0, a) for a, b in behind):
                return True
    return False


def _is_picture(file: Path) -> bool:
    from roundoff.samples.files import IMAGE_SUFFIXES

    return file.suffix.lower() in IMAGE_SUFFIXES


def _kind_of_tensors(files: Sequence[Path], inputs: tuple[tuple[int, ...], ...]) -> str | None:
    """Whether a folder holds samples, tensors of one run, or neither."""
    shapes = [shape for file in files if (shape := _array_shape(file)) is not None]
    raw = sum(file.suffix.lower() in (".bin", ".raw") for file in files)
    if shapes and all(_fits(shape, inputs) for shape in shapes):
        return "samples"
    return "dump" if len(shapes) + raw >= _FEW_TENSORS else None


def _preference(path: Path) -> tuple[int, str]:
    name = path.name.lower()
    return next((rank for rank, part in enumerate(_PREFERRED) if part in name), len(_PREFERRED)), name


def _of_as_many(labels: Sequence[Path], data: Path, arrays: Mapping[Path, tuple[int, ...]]) -> tuple[Path, ...]:
    """Labels that can belong to the samples: as many, where both are counted; of the same name first."""
    from roundoff.samples.labels import labels_counted

    samples = arrays[data][0] if data in arrays else None
    fitting = [each for each in labels if samples is None or labels_counted(each) in (None, samples)]
    return tuple(sorted(fitting, key=lambda each: (data.stem not in each.stem, each.name)))


# Who writes it ---------------------------------------------------------------------------------------------------


@public
def init(
    folder: PathLike = ".",
    *,
    model: PathLike | None = None,
    data: PathLike | None = None,
    labels: PathLike | None = None,
    target: str | None = None,
    force: bool = False,
    ask: Callable[[str, Sequence[str]], str | None] | None = None,
) -> Path:
    """Write ``roundoff.toml`` from what a folder has, so that commands need not be told it again.

    What can be seen is not asked. What several files may be is asked where somebody answers; else the likeliest is
    taken and the others are named in a comment.

    Args:
        folder: Where the project is.
        model: The float model, if it is not the one that is found.
        data: Samples, likewise.
        labels: Right classes, likewise.
        target: The chip.
        force: Replace an earlier one.
        ask: Given a question and answers to choose from, answers; None where nobody does.

    Returns:
        The file.

    Raises:
        BadInput: There is one already, the folder has no model, or there is no such chip.
    """
    place = as_path(folder, option="The folder")
    file = place / PROJECT_NAME
    if file.exists() and not force:
        fix = english("edit it, or add --force to replace it")
        raise BadInput(english("{path} exists.", path=file), fix=fix)
    found = look_into(place)
    given = {"models": model, "data": data, "labels": labels}
    named = {key: (as_path(value, option=key),) for key, value in given.items() if value is not None}
    if data is not None:
        there = {place / each: labels for each, labels in found.judged}
        own = there.get(named["data"][0], there.get(place / named["data"][0]))
        found = replace(found, labels=() if own is None else (own,), judged=())
    found = _fitting_first(replace(found, **named))  # type: ignore[arg-type]
    if not found.models and not found.quantized:
        raise BadInput(
            english("There is no model in {place}.", place=place.resolve()),
            fix=english("go to the folder of one, or name it: roundoff init --model FILE"),
        )
    if target is not None:
        from roundoff.quantize.targets.files import load_target

        load_target(target)
    elif ask is not None:
        target = _asked_target(ask)
    write_text(file, project_text(found, target=target, ask=ask))
    return file


def _fitting_first(found: FoundParts) -> FoundParts:
    """What was found, networks that take the samples before others."""
    shape = _array_shape(found.data[0]) if found.data else None
    if shape is None:
        return found
    of_kind = (
        tuple(sorted(nets, key=lambda net: not _fits(shape, _input_shapes(net))))
        for nets in (found.models, found.quantized)
    )
    models, quantized = of_kind
    return replace(found, models=models, quantized=quantized)


def _asked_target(ask: Callable[[str, Sequence[str]], str | None]) -> str | None:
    """The chip that somebody names; None for none yet."""
    from roundoff.quantize.targets.files import load_target

    while answer := ask(english("Which chip is it for? (Enter: none yet; 'roundoff targets' lists them)"), ()):
        try:
            load_target(answer)
        except BadInput as error:
            ask(f"{error.what} {error.fix}", ())
            continue
        return answer
    return None


def project_text(
    found: FoundParts, *, target: str | None, ask: Callable[[str, Sequence[str]], str | None] | None = None
) -> str:
    """The text of a project's file.

    Args:
        found: What its folder has.
        target: The chip; None for none yet.
        ask: As for `init`.
    """
    first = english("What roundoff's commands are told in this folder. An option that is typed counts more.")
    lines = [f"# {shown(first)}", ""]
    for key, paths, question in (
        ("model", found.models, english("Which is the float model?")),
        ("quantized", found.quantized, english("Which quantized model is it about?")),
    ):
        lines += _choice(key, paths, question, ask)
    lines.append(f"target = {_quoted(target)}" if target else '# target = "generic-int8"')
    lines += _choice("labels", found.labels, english("Which are the right classes?"), ask)
    if not found.labels:
        pairs = found.judged[:1]
        lines += [f"# labels = {_quoted(each.as_posix())}  # --data {data.as_posix()}" for data, each in pairs]
        lines += _choice("evaluator", found.evaluators, english("Which file measures the model?"), ask)
    lines += ["", "[data]", *_choice("path", found.data, english("Which samples?"), ask)]
    if not found.data:
        lines.append('# path = "calibration"')
    if found.pictures:
        how = english(
            "As in training; without these lines pictures must have the input's size and are fed as 0..255."
        )
        lines += [f"# {shown(how)}", *_preprocessing(ask)]
    lines += ["", "[goal]", f'# max-drop = "1%"  # {shown(english("for tune"))}', ""]
    return "\n".join(lines)


def _choice(
    key: str,
    paths: Sequence[Path],
    question: str,
    ask: Callable[[str, Sequence[str]], str | None] | None,
) -> list[str]:
    if not paths:
        return []
    names = [path.as_posix() for path in paths]
    chosen = names[0]
    if len(names) > 1 and ask is not None:
        chosen = ask(question, names) or chosen
    others = [name for name in names if name != chosen]
    return [f"{key} = {_quoted(chosen)}" + (f"  # {shown(english('or'))}: {', '.join(others)}" if others else "")]


# Most pictures are fed in one of these ways; their numbers are in preprocessing/conventions.toml.
_ASKED_CONVENTIONS = ("x / 255", "x / 127.5 - 1", "ImageNet")


def _preprocessing(ask: Callable[[str, Sequence[str]], str | None] | None) -> list[str]:
    """How pictures become inputs; what nobody says stands there as a comment."""
    from roundoff.preprocessing.conventions import table_rows

    # Of rows of one name, which differ in digits alone, the first.
    ways = {each["name"]: each for each in reversed(table_rows()) if each["name"] in _ASKED_CONVENTIONS}
    asked, mark = _ASKED_CONVENTIONS[0], "# "
    if ask is not None:
        answer = ask(english("How are pixels 0..255 fed? (Enter: it is not known yet)"), _ASKED_CONVENTIONS)
        if answer is not None and answer in ways:
            asked, mark = answer, ""
    chosen = ways[asked]
    numbers: dict[str, Any] = {}
    if "divisor" in chosen:
        numbers["scale"] = f"1/{chosen['divisor']:g}"
    if chosen["mean"]:
        numbers["mean"] = chosen["mean"]
    if numbers:
        numbers["std"] = chosen["std"]
    else:
        numbers["scale"] = f"1/{chosen['std']:g}"
    lines = [f"{mark}{key} = {_quoted(each) if isinstance(each, str) else each}" for key, each in numbers.items()]
    return [*lines, '# image-resize = "crop"  # or stretch, letterbox']


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
