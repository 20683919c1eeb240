"""What lies in a folder: its files in the order people expect, its manifest, and which format it looks like."""

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.files import reading
from roundoff.core.names import natural_key, shown
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.manifest import find_manifest, read_manifest
from roundoff.tensors.stored import Content, Declared, TensorFile

CERTAIN = 95
"""Score of a file with the format's suffix, and of a folder whose manifest lists only such files."""
LIKELY = 80
"""Score of a folder that holds files of the format."""
POSSIBLE = 50
"""Score of files that could be the format's, by a suffix that many programs use."""

ARCHIVES = (".npz", ".safetensors")
_MANIFEST_SUFFIXES = (".json", ".csv")


def is_tensor_file(path: Path) -> bool:
    """Whether a path is one file that is to be read by itself, not a folder or the manifest of one."""
    return path.is_file() and path.suffix.lower() not in _MANIFEST_SUFFIXES


def locate(path: Path) -> tuple[Path, Path | None]:
    """Tell the folder that is meant and its manifest; `path` may be either."""
    if path.is_dir():
        return path, find_manifest(path)
    return path.parent, path


def list_files(folder: Path) -> list[str]:
    """List the files of a folder and its sub-folders, in natural order; see `walk_files`."""
    return sorted(walk_files(folder), key=lambda file: (natural_key(without_suffix(file)), file))


def files_with(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """List the files that have one of the suffixes, in natural order."""
    return [file for file in list_files(folder) if suffix_of(file) in suffixes]


def walk_files(folder: Path) -> Iterator[str]:
    """Walk through the files of a folder and its sub-folders.

    Hidden files and folders (names that begin with a dot) are left alone: they are bookkeeping of file managers
    and half-written results. Links are followed, each folder once.

    Yields:
        Paths relative to `folder`, with ``/``.
    """
    yield from _walk(str(folder), "", {os.path.realpath(folder)})


def _walk(folder: str, below: str, visited: set[str]) -> Iterator[str]:
    with reading(Path(folder), what=english("The folder")), os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in found:
        if not _is_folder(entry):
            yield f"{below}{entry.name}"
        elif (real := os.path.realpath(entry.path)) not in visited:
            visited.add(real)
            yield from _walk(entry.path, f"{below}{entry.name}/", visited)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle: reading it will tell, if it is named like a tensor
        return False


def suffix_of(file: str) -> str:
    """The suffix of a path in lower case, with its dot; plain text because a dump has thousands of paths."""
    stem, dot, suffix = file.rpartition("/")[2].rpartition(".")
    return f".{suffix.lower()}" if stem and dot else ""


def without_suffix(file: str) -> str:
    """The path without its suffix."""
    return file[: len(file) - len(suffix_of(file))]


def sniff_files(path: Path, *, suffixes: tuple[str, ...], bare: int = LIKELY) -> int:
    """Score how well a path fits a format that is known by its suffixes.

    Args:
        path: A file, a folder, or a manifest.
        suffixes: The suffixes of the format.
        bare: Score of a folder that holds such files but has no manifest.
    """
    if is_tensor_file(path):
        return CERTAIN if path.suffix.lower() in suffixes else 0
    if not path.exists():
        return 0
    folder, manifest = locate(path)
    listed = _listed_suffixes(manifest)
    if listed:
        return CERTAIN if listed <= set(suffixes) else LIKELY if listed & set(suffixes) else 0
    if not any(suffix_of(file) in suffixes for file in walk_files(folder)):
        return 0
    return LIKELY if manifest else bare


def _listed_suffixes(manifest: Path | None) -> set[str]:
    """The kinds of files a manifest names; empty when it names none or is broken, which opening it will tell."""
    if manifest is None:
        return set()
    try:
        entries = read_manifest(manifest).tensors
    except BadInput:
        return set()
    return {_kind(entry.file) for entry in entries if entry.file}


def _kind(file: str) -> str:
    containers = (suffix_of(part) for part in file.split("/")[:-1])
    return next((suffix for suffix in containers if suffix in ARCHIVES), suffix_of(file))


_SAMPLE_FOLDER = re.compile(
    r"[0-9]+|sample.*|(s|result|batch|iter|step|frame|image|img|input|case)[_-]?[0-9]+", re.IGNORECASE
)
_MOSTLY = 0.5
"""Share of all tensors that each sub-folder must hold for the sub-folders to be samples of one model."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One place that can hold a tensor.

    Attributes:
        file: Path below the folder, with ``/``; a member continues the path of its archive.
        name: What the place itself calls the tensor: the path without suffix, or the member's name.
        path: The file on disk.
        probe: Reads the header, given what a manifest declares; raises `Unreadable` or `OSError`.
        archive: Path of the archive below the folder; empty for a file of its own.
        node: The node that computes the tensor, when the place says so.
        origin: What it was in the original model, when the place says so.
    """

    file: str
    name: str
    path: Path
    probe: Callable[[Declared | None], Content]
    archive: str = ""
    node: str = ""
    origin: str = ""

    @property
    def home(self) -> str:
        """The archive or folder it lies in, below the folder; empty for the folder itself."""
        return self.archive or self.file.rpartition("/")[0]

    @property
    def route(self) -> str:
        """Its path below the folder without suffixes, through the archive where it lies in one."""
        return f"{shown(without_suffix(self.archive))}/{self.name}" if self.archive else self.name

    @property
    def where(self) -> str:
        """The place as the user would name it."""
        inside = self.file[len(self.archive) :] if self.archive else ""
        return shown(f"{self.path}{inside}")

    def stored(self, name: str, sample: str = "", *, declared: Declared | None = None) -> TensorFile:
        """Use the place as the given tensor of the given sample."""
        probe = functools.partial(self.probe, declared)
        return TensorFile(name, sample, self.where, probe, self.node, origin=self.origin)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Tensors by name and sample, in the order in which they are to be listed.

    Attributes:
        stored: The tensors.
        samples: All samples in order.
        ordered: Whether the order is that of execution.
        broken: Samples of which nothing can be read, with the reason.
        runs: Where the folder holds several runs: the one taken, then the others.
    """

    stored: Sequence[TensorFile]
    samples: Sequence[str] = ("",)
    ordered: bool = False
    broken: dict[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


def is_sample_folder(name: str) -> bool:
    """Whether a sub-folder's name says that it holds one sample: ``7``, ``sample`` and anything, ``Result_0``."""
    return _SAMPLE_FOLDER.fullmatch(name) is not None


_COPIES = frozenset(
    {"golden", "reference", "ref", "expected", "baseline", "truth", "gt", "original", "orig", "cpu", "host", "pc"}
    | {"onnx", "onnxruntime", "ort", "torch", "pytorch", "tf", "tensorflow", "caffe"}
)
_GOLDEN = _COPIES | {"float", "float32", "fp32"}
_RUNS = (
    *("runtime", "device", "npu", "board", "target", "chip", "actual", "dut", "hw", "hardware", "dsp", "htp"),
    *("tpu", "gpu", "rknn", "om", "trt", "engine", "simulator", "sim", "quantized", "quant", "qdq", "w8a8"),
    *("int8", "int16"),
)
"""What tools call the folders of runs that lie side by side: the right one, and the others, the chip's first."""
_KINDS = frozenset({"npy", "npz", "bin", "raw", "txt"})
"""Folders that are called so say what their files are, and nothing of the tensors."""


def choose_run(
    paths: Sequence[str], asked: str | None = None, *, golden: bool = False
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Of runs of one network that lie side by side, take one.

    Args:
        paths: All that lies in a folder, without suffixes.
        asked: The run that the user wants.
        golden: Without such a wish: whether the golden copy is wanted, or what is to be judged by it.

    Returns:
        The paths of that run without the part that names it; and the runs, the one taken first. Everything and no
        runs where there is but one.
    """
    parts = [path.split("/") for path in paths]
    for depth in range(max(map(len, parts), default=1) - 1):
        runs: dict[str, set[str]] = {}
        for each in parts:
            if len(each) > depth + 1:
                runs.setdefault(each[depth], set()).add("/".join([*each[:depth], *each[depth + 1 :]]))
        names = _recognised(runs, golden=golden) if asked is None else _as_asked(runs, asked)
        if names:
            # What lies beside the runs belongs to each of them.
            kept = [each for each in parts if len(each) <= depth + 1 or each[depth] == names[0]]
            return {
                "/".join(each): "/".join([*each[:depth], *each[depth + 1 :]] if len(each) > depth + 1 else each)
                for each in kept
            }, names
    return _marked_run(paths, asked, golden=golden) or ({path: path for path in paths}, ())


_MARK = "|".join((*sorted(_COPIES), *_RUNS, "my"))
_MARKED = re.compile(
    rf"(?:(?P<name>.+)[._-])?(?P<mark>{_MARK})|(?P<first>{_MARK})[._-](?P<rest>.+)", re.IGNORECASE
)
"""How names of files tell the right run from another: ``x.golden.npy`` and ``x.npy``, ``cpu_x`` and ``npu_x``."""
UNMARKED = "unmarked"
"""The run of files whose names say nothing of a run."""


def _marked_run(
    paths: Sequence[str], asked: str | None, *, golden: bool
) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """One of runs that are told by the ends of their files' names; None where these tell none."""
    runs: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        found = _MARKED.fullmatch(name)
        bare = found and (found["name"] or found["rest"])
        mark = (found["mark"] or found["first"]).lower() if found and bare else UNMARKED
        runs.setdefault(mark, {})[path] = f"{folder}{slash}{bare or name}"
    right = [mark for mark in runs if mark in _COPIES]
    judged = sorted((mark for mark in runs if mark not in _COPIES), key=_rank)
    if not right or not judged:
        return None
    # Every golden copy has its partner, and most that is judged has a golden copy.
    copies = set(runs[right[0]].values())
    if not copies <= set(runs[judged[0]].values()) or len(copies) < _MOSTLY * len(runs[judged[0]]):
        return None
    names = (*right, *judged) if golden else (*judged, *right)
    if asked is not None:
        names = _as_asked(dict.fromkeys(names, ()), asked)
    return (runs[names[0]], names) if names else None


def _as_asked(runs: Mapping[str, Collection[str]], asked: str) -> tuple[str, ...]:
    taken = [name for name in runs if name == asked] or [
        name for name in runs if name.casefold() == asked.casefold()
    ]
    return (*taken[:1], *(name for name in runs if name not in taken)) if taken else ()


def _recognised(runs: Mapping[str, set[str]], *, golden: bool) -> tuple[str, ...]:
    """Runs, the one to take first; none where the names of folders do not say so or what they hold differs."""
    right = [
        name for name in runs if _GOLDEN.intersection(_words(name)) and not set(_RUNS).intersection(_words(name))
    ]
    judged = sorted((name for name in runs if name not in right), key=_rank)
    if not judged or len(runs) < 2 or (not right and any(_rank(name) == len(_RUNS) for name in judged)):
        return ()
    common = set.intersection(*runs.values())
    if len(common) < _MOSTLY * max(map(len, runs.values())):
        return ()
    return (*right, *judged) if golden and right else (*judged, *right)


def unknown_runs(paths: Sequence[str], sizes: Callable[[str], int]) -> tuple[str, ...]:
    """Folders that hold the same tensors, everything there is, and whose names say neither runs nor samples.

    Args:
        paths: All that lies in a folder, without suffixes.
        sizes: How large what lies at a path is.
    """
    parts = [path.split("/") for path in paths]
    for depth in range(min(map(len, parts), default=1) - 1):
        folders: dict[str, dict[str, str]] = {}
        for path, each in zip(paths, parts, strict=True):
            folders.setdefault(each[depth], {})["/".join([*each[:depth], *each[depth + 1 :]])] = path
        if not 1 < len(folders) <= _MOST_RUNS or all(map(is_sample_folder, folders)):
            continue
        first, *others = folders.values()
        common = set(first).intersection(*others)
        # Layers have folders, too: they hold few tensors, and those called alike have sizes of their own.
        if len(common) < max(_FEWEST_OF_RUN, _MOSTLY * max(map(len, folders.values()))):
            continue
        if all(len({sizes(folder[name]) for folder in folders.values()}) == 1 for name in common):
            return tuple(folders)
    return ()


_MOST_RUNS, _FEWEST_OF_RUN = 8, 3


def _words(folder: str) -> list[str]:
    return re.split(r"[\W_]+", folder.lower())


def _rank(folder: str) -> int:
    return min((_RUNS.index(word) for word in _words(folder) if word in _RUNS), default=len(_RUNS))


def arrange_files(units: Sequence[TensorPlace]) -> Arranged:
    """Name tensors by their paths; sub-folders called like samples that hold mostly the same files are samples."""
    bare = [_without_kinds(unit.name) for unit in units]
    if all(name != unit.name for name, unit in zip(bare, units, strict=True)):
        units = [replace(unit, name=name) for name, unit in zip(bare, units, strict=True)]
    tops: dict[str, set[str]] = {}
    for unit in units:
        top, _, rest = unit.name.partition("/")
        tops.setdefault(top if rest else "", set()).add(rest)
    union = set[str]().union(*tops.values())
    if all(is_sample_folder(top) and len(names) >= _MOSTLY * len(union) for top, names in tops.items()):
        stored = [unit.stored(name, top) for unit in units for top, _, name in [unit.name.partition("/")]]
        return Arranged(stored, sorted(tops, key=natural_key))
    return Arranged([unit.stored(unit.name) for unit in units])


def _without_kinds(name: str) -> str:
    *folders, last = name.split("/")
    return "/".join([*(folder for folder in folders if folder.lower() not in _KINDS), last])


def arrange_archives(units: Sequence[TensorPlace]) -> Arranged:
    """Take each archive as one sample, unless no two archives share a name: then they are parts of one."""
    readable = sorted((unit for unit in units if unit.archive), key=lambda unit: natural_key(unit.name))
    broken = {_sample_of(unit.file): _problem_of(unit) for unit in units if not unit.archive}
    archives = {unit.archive for unit in readable}
    shared = len({unit.name for unit in readable}) < len(readable)
    if not broken and (len(archives) == 1 or not shared):
        return Arranged([unit.stored(unit.name) for unit in readable])
    samples = sorted([*map(_sample_of, archives), *broken], key=natural_key)
    stored = [unit.stored(unit.name, _sample_of(unit.archive)) for unit in readable]
    return Arranged(stored, samples, broken=broken)


def _sample_of(archive: str) -> str:
    return shown(without_suffix(archive))


def _problem_of(unit: TensorPlace) -> str:
    try:
        unit.probe(None)
    except Unreadable as error:
        return error.problem
    except OSError as error:
        return error.strerror or str(error)
    raise AssertionError(unit)  # an archive that can be read has members


def unreadable_unit(file: str, path: Path, error: Unreadable | OSError) -> TensorPlace:
    """Stand in for an archive that cannot be opened and so has no members to be listed."""

    def probe(declared: Declared | None) -> Content:
        raise error

    return TensorPlace(file, shown(without_suffix(file)), path, probe)
