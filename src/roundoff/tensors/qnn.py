"""Folders of Qualcomm's net-run tools: ``Result_N`` for each sample, one .raw file for each tensor.

Values are float32 in the order of the chip, channels last; ``x_native.raw`` holds codes. What tensors are is in
``<model>_net.json`` where it lies beside them; without it the model says. ``input_list.txt`` says what was fed.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import Unreadable, map_array, stat_file
from roundoff.core.files import is_there, read_small
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource, parse_dtype
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.messages.message import Message, english, message
from roundoff.tensors.folders import CERTAIN, files_with, walk_files
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile, ToolScale

_SUFFIXES = (".raw",)
_RESULT = re.compile(r"^Result_(\d+)$")
_NATIVE = "_native"
_INPUTS = "input_list.txt"
_CODES = re.compile(r"^QNN_DATATYPE_([SU])FIXED_POINT_(\d+)$")
_FAMILIES = ("INT", "UINT", "FLOAT", "SFIXED_POINT", "UFIXED_POINT", "BOOL")
_PLAIN = re.compile(r"^QNN_DATATYPE_(FLOAT|INT|UINT|BOOL)_?(\d+)$")
_SANITIZED = re.compile(r"[^0-9A-Za-z_]")


def sniff(path: Path) -> int:
    """Score how well a path fits: folders ``Result_0``, ``Result_1`` ... of .raw files."""
    return CERTAIN if path.is_dir() and _results(path) else 0


def _results(path: Path) -> dict[int, Path]:
    """The folders of samples: the path itself, those in it, or those in a folder of it."""
    if own := _RESULT.match(path.name):
        return {int(own[1]): path} if files_with(path, _SUFFIXES) else {}
    found: dict[int, Path] = {}
    for file in walk_files(path):
        parts = file.split("/")
        place = next((at for at, part in enumerate(parts[:-1]) if _RESULT.match(part)), None)
        if place is not None and place <= 1 and file.lower().endswith(_SUFFIXES):
            number = int(parts[place].rpartition("_")[2])
            found.setdefault(number, path.joinpath(*parts[: place + 1]))
    return dict(sorted(found.items()))


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open the folder of results, one of its samples, or the folder with the list of inputs beside it.

    Args:
        path: The folder.
        shapes: The tensors of a model, for what no ``_net.json`` describes.
        run: There is only one.
    """
    run.found((), path)
    results = _results(path)
    if not results:
        what = english("{path} holds no folder Result_0 with .raw files.", path=path)
        raise BadInput(what, fix=english("give the output folder of qnn-net-run or snpe-net-run"))
    beside = list(dict.fromkeys((next(iter(results.values())).parent, path, path.parent, path.parent.parent)))
    described = _Described(_graph(beside), tuple(shapes or ()))
    single = len(results) == 1 and _RESULT.match(path.name)
    stored: list[TensorFile] = []
    fed = _fed(beside)
    for number, folder in results.items():
        sample = "" if single else folder.name
        dumped = list(_tensors(folder, sample, described))
        names = {place.name for place in dumped}
        stored += [
            TensorFile(name, sample, shown(file), functools.partial(described.probe, name, file))
            for name, file in fed.get(number, {}).items()
            if name not in names and is_there(file, file=True)
        ]
        stored += dumped
    order = {name: at for at, name in enumerate(described.names)}
    ordered = all(place.name in order for place in stored)
    stored.sort(key=lambda place: order.get(place.name, len(order)))
    return StoredSource(
        stored,
        label=shown(path),
        samples=[""] if single else [folder.name for folder in results.values()],
        ordered=ordered and bool(order),
        scales=described.scales(),
        remarks=lambda: [remark for folder in results.values() for remark in _remarks(folder, described)],
    )


def _remarks(folder: Path, described: "_Described") -> Iterator[Message]:
    """Codes that are not those of the values beside them."""
    for path in sorted(folder.glob(f"*{_NATIVE}{_SUFFIXES[0]}")):
        name = path.stem.removesuffix(_NATIVE)
        beside, scale = folder / f"{name}{_SUFFIXES[0]}", described.scale(name)
        if scale is None or not beside.is_file():
            continue
        try:
            codes, values = (described.probe(name, each, native=each == path).load() for each in (path, beside))
        except (Unreadable, OSError):
            continue
        with np.errstate(all="ignore"):  # what is not finite differs
            close = codes.shape == values.shape and bool((np.abs(codes - values) <= scale[0]).all())
        if not close:
            yield message("tensors.qnn_codes", where=folder.name, name=name)


def _tensors(folder: Path, sample: str, described: "_Described") -> Iterator[TensorFile]:
    files = sorted(files_with(folder, _SUFFIXES), key=natural_key)
    plain = {file[: -len(_SUFFIXES[0])] for file in files}
    for name in sorted(plain, key=natural_key):
        place = folder / f"{name}{_SUFFIXES[0]}"
        bare = name.removesuffix(_NATIVE)
        # Codes beside the values of a tensor are a copy, which is held against them; alone they are the tensor.
        if bare == name or bare not in plain:
            native = bare != name and described.knows(bare)
            probe = functools.partial(described.probe, bare if native else name, place, native=native)
            yield TensorFile(bare if native else name, sample, shown(place), probe)


@dataclass(frozen=True, slots=True)
class _Described:
    """What is known of tensors: from the converter's JSON, or from the model whose tensors they are.

    Attributes:
        graph: Entries of the JSON by name, in its order.
        shapes: The tensors of the model.
    """

    graph: Mapping[str, Mapping[str, Any]]
    shapes: Sequence[TensorInfo]

    @property
    def names(self) -> list[str]:
        """Names of the JSON, in its order."""
        return list(self.graph)

    def knows(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self.graph or self._of_model(name) is not None

    def _of_model(self, name: str) -> TensorInfo | None:
        return next(
            (info for info in self.shapes if _SANITIZED.sub("_", info.name) == name.replace(":", "_")), None
        )

    def shape(self, name: str, size: int) -> tuple[int, ...]:
        """The shape of a tensor of so many values; flat where nothing tells it."""
        entry = self.graph.get(name, {})
        dims = entry.get("current_dims", entry.get("dims"))
        if isinstance(dims, list) and all(type(axis) is int and axis >= 0 for axis in dims):
            if int(np.prod(dims, dtype=np.float64)) == size:
                return tuple(dims)
            raise Unreadable(
                english("holds {size} values, the _net.json says {shape}", size=size, shape=dims),
                fix=english("give the _net.json of the model that was run, or run it again"),
            )
        info = self._of_model(name)
        if info is not None and info.size == size:
            shape = info.shape
            # The chip stores pictures with channels last.
            return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape
        return (size,)

    def scale(self, name: str) -> tuple[float, int] | None:
        """Scale and zero point: a value is scale * (code - zero point); the tool writes the latter's negative."""
        params = self.graph.get(name, {}).get("quant_params")
        numbers = params.get("scale_offset") if isinstance(params, Mapping) else None
        if not isinstance(numbers, Mapping):
            return None
        scale, offset = numbers.get("scale"), numbers.get("offset", 0)
        if not isinstance(scale, int | float) or type(offset) is not int or not 0 < scale < np.inf:
            return None
        return float(scale), -offset

    def scales(self) -> dict[str, ToolScale]:
        """How tensors with codes are coded."""
        found = {}
        for name, entry in self.graph.items():
            code, numbers = _CODES.match(_type_name(entry)), self.scale(name)
            if code is None or numbers is None or int(code[2]) not in (8, 16):
                continue
            scale, zero = numbers
            first = -(1 << (int(code[2]) - 1)) if code[1] == "S" else 0
            last = first + (1 << int(code[2])) - 1
            found[name] = ToolScale(scale, scale * (first - zero), scale * (last - zero))
        return found

    def probe(self, name: str, path: Path, *, native: bool = False) -> Content:
        """What a file holds: codes as values, float32, or what the JSON says where the length is that."""
        length = stat_file(path)
        kind = _type_name(self.graph.get(name, {}))
        code, plain = _CODES.match(kind), _PLAIN.match(kind)
        if native and code:
            dtype, numbers = np.dtype(f"{'int' if code[1] == 'S' else 'uint'}{code[2]}"), self.scale(name)
            if numbers is None:
                raise Unreadable(english("holds codes without a scale"))
            shape = self.shape(name, length // dtype.itemsize)
            return Content("float32", shape, functools.partial(_decoded, path, dtype, shape, numbers))
        wanted = np.dtype(np.float32)
        if plain and (native or plain[1] != "FLOAT" or plain[2] != "32"):
            bits = "bool" if plain[1] == "BOOL" else f"{plain[1].lower()}{plain[2]}"
            own = parse_dtype(bits)
            dims = self.graph[name].get("current_dims", self.graph[name].get("dims")) or ()
            if length == int(np.prod(dims, dtype=np.int64)) * own.itemsize:
                wanted = own
        if not length or length % wanted.itemsize:
            raise Unreadable(
                english("has {length} bytes, no whole number of {name}", length=length, name=wanted.name),
                fix=english("copy the file again: it is cut short"),
            )
        shape = self.shape(name, length // wanted.itemsize)
        return Content(wanted.name, shape, functools.partial(map_array, path, offset=0, dtype=wanted, shape=shape))


def _type_name(entry: Mapping[str, Any]) -> str:
    """What a tensor is made of; the tool writes its name, or the number that its headers give it: 0x0408."""
    told = entry.get("data_type", "")
    if type(told) is not int:
        return str(told)
    family, bits = divmod(told, 0x100)
    # The width is in decimal digits: 0x16 is 16 bits.
    return f"QNN_DATATYPE_{_FAMILIES[family]}_{bits:x}" if 0 <= family < len(_FAMILIES) else ""


def _decoded(path: Path, dtype: "np.dtype[Any]", shape: tuple[int, ...], numbers: tuple[float, int]) -> Array:
    codes = map_array(path, offset=0, dtype=dtype, shape=shape)
    return ((codes.astype(np.float64) - numbers[1]) * numbers[0]).astype(np.float32)


def _graph(folders: Sequence[Path]) -> dict[str, Mapping[str, Any]]:
    """The tensors of the only ``_net.json`` in the first of the folders that has some."""
    for folder in folders:
        found = sorted(folder.glob("*_net.json"))
        if not found:
            continue
        if len(found) > 1:
            what = english("{folder} holds several _net.json files.", folder=folder)
            raise BadInput(what, fix=english("keep the one of the model that was run"))
        content = read_json(found[0], what=english("The model's description"))
        graph = content.get("graph") if isinstance(content, dict) else None
        tensors = graph.get("tensors") if isinstance(graph, dict) else None
        if not isinstance(tensors, dict):
            what = english("{path} has no graph with tensors.", path=found[0])
            raise BadInput(what, fix=english("give the _net.json that the converter wrote"))
        return {name: entry for name, entry in tensors.items() if isinstance(entry, dict)}
    return {}


def _fed(folders: Sequence[Path]) -> dict[int, dict[str, Path]]:
    """What each sample was fed, by the list of inputs: ``name:=path`` on each line; paths stay below the list."""
    for folder in folders:
        path = folder / _INPUTS
        if not path.is_file():
            continue
        lines = read_small(path, what=english("The list of inputs")).decode("utf-8", "replace").splitlines()
        samples = [line.split() for line in lines if line.strip() and not line.startswith(("#", "%"))]
        return {
            number: {
                name: folder / file
                for name, mark, file in (part.partition(":=") for part in parts)
                if mark and name and not Path(file).is_absolute() and ".." not in Path(file).parts
            }
            for number, parts in enumerate(samples)
        }
    return {}
