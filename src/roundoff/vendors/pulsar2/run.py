"""``pulsar2 run``: files in, files out, one folder per line of a list."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from roundoff.core.array_files import Unreadable, map_array, stat_file
from roundoff.core.files import read_small, reading, write_bytes
from roundoff.core.names import FileNames, shown
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs, topology
from roundoff.graph.load import Model, load_model
from roundoff.graph.nodes import STANDARD_DOMAINS
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.subgraph import tap
from roundoff.graph.units import derived_constants
from roundoff.messages.message import english
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.session import Session, open_session
from roundoff.samples.arrays import input_error
from roundoff.vendors.pulsar2.config.schema import BuildConfig, PrecisionAnalysisMode, TargetHardware
from roundoff.vendors.pulsar2.tables import target_of

# What computes a model for ``pulsar2 run``: onnxruntime, or the simulator of integer hardware.

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# What the vendor's own files hold: operators of its quantized graph, and the compiled part as one node.
_FOREIGN = ("Ax", "AX", "NPU", "neu")


class Engine(Protocol):
    """Computes tensors of a model."""

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        ...

    @property
    def tensors(self) -> tuple[str, ...]:
        """What is computed, in execution order."""
        ...

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values by tensor; integer codes where a tensor inside of the model has some."""
        ...


def is_quantized(model: Model) -> bool:
    """Whether a model has quantizers."""
    return any(node.op_type in (_QUANTIZE, _DEQUANTIZE) for node in model.proto.graph.node)


def refuse_foreign(model: Model) -> None:
    """Refuse a model that only the vendor's tool can run.

    Raises:
        BadInput: It has operators of the vendor's.
    """
    for node in model.proto.graph.node:
        if node.domain not in STANDARD_DOMAINS and node.op_type.startswith(_FOREIGN):
            raise BadInput(
                "{path} holds the vendor's operator {op_type} ({name}), which only its tool runs.",
                fix=english("give the float ONNX, or quant/quant_axmodel.onnx of 'roundoff pulsar2 build'"),
                path=model.path,
                op_type=node.op_type,
                name=node.name,
            )


class ReferenceEngine:
    """Runs a model in onnxruntime as its graph says, quantizers included.

    Args:
        model: The model, float or with QuantizeLinear and DequantizeLinear.
        per_layer: Give what every operation computes; tensors that are quantized as their codes.
    """

    def __init__(self, model: Model, *, per_layer: bool) -> None:
        self._model = model
        self._places = {name: name for name in outputs(model)}
        if per_layer:
            self._places = {**_layers(model), **self._places}
        self._names = tuple(dict.fromkeys(self._places.values()))
        self._session: Session = open_session(model, outputs=tap(model, self._names))

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        return inputs(self._model)

    @property
    def tensors(self) -> tuple[str, ...]:
        """What is computed."""
        return tuple(self._places)

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values of one sample.

        Raises:
            ModelFailed: The model cannot be run.
        """
        found = dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))
        return {name: found[place] for name, place in self._places.items()}


def _layers(model: Model) -> dict[str, str]:
    """What operations compute, by name, each with the tensor to read: its codes where it is quantized.

    A tensor that is quantized in two ways has its second codes under their own name.
    """
    graph = model.proto.graph
    fixed = derived_constants(graph)
    codes: dict[str, str] = {}
    places: dict[str, str] = {}
    fed = {spec.name for spec in inputs(model)}
    for node in topology(model).nodes:
        if node.op_type == _QUANTIZE and node.inputs:
            first = codes.setdefault(node.inputs[0], node.outputs[0])
            if first != node.outputs[0]:
                places[node.outputs[0]] = node.outputs[0]
            elif node.inputs[0] in fed:
                places[node.inputs[0]] = node.outputs[0]
        elif node.op_type != _DEQUANTIZE:
            places |= {name: name for name in node.outputs if name not in fixed}
    return {name: codes.get(name, place) for name, place in places.items()}


@dataclass(frozen=True, slots=True)
class IntegerEngine:
    """Runs a quantized model as integer hardware does. Made by `make`."""

    model: Model
    runner: IntegerRunner
    tensors: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def make(cls, model: Model, arithmetic: Arithmetic, *, per_layer: bool) -> "IntegerEngine":
        """Take the quantizers out of a model, for the simulator to apply.

        Args:
            model: The model with QuantizeLinear and DequantizeLinear.
            arithmetic: How the hardware computes.
            per_layer: Give what every operation computes.

        Raises:
            BadInput: The quantizers cannot be read.
        """
        quantized = read_quantized(model)
        known: Any = quantized.float_model
        made = [name for node in topology(known).nodes for name in node.outputs] if per_layer else []
        fixed = derived_constants(known.proto.graph)
        names = dict.fromkeys((*(name for name in made if name not in fixed), *outputs(known)))
        runner = IntegerRunner(known, quantized.quantizers, arithmetic)
        return cls(known, runner, tuple(names), tuple(map(str, quantized.notes)))

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        return inputs(self.model)

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values of one sample.

        Raises:
            ModelFailed: A part of the model that runs in float failed.
        """
        found = self.runner.run(feed, self.tensors, sample=sample)
        results = frozenset(outputs(self.model))
        codes = found.codes
        return {
            name: codes[name] if name in codes and name not in results else found.values[name]
            for name in self.tensors
        }


# Tensors as the raw files that ``pulsar2 run`` and the board read and write, and how these are called.

SUFFIX = ".bin"
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 240


def file_names(names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The file of each tensor: every odd character becomes ``_``; where two would be the same, one gets a mark.

    Returns:
        File names by tensor, and a sentence for each that is not what the vendor's tool would call it.
    """
    stems = FileNames(illegal=_ILLEGAL, limit=_LONGEST)
    found = {name: stems.stem(name) + SUFFIX for name in names}
    odd = [
        f"tensor {name} is in {file}: its plain name would be that of another, or is one that no disk takes"
        for name, file in found.items()
        if file != _ILLEGAL.sub("_", name) + SUFFIX
    ]
    return found, tuple(odd)


def read_cases(path: Path | None) -> tuple[str, ...]:
    """The sub-folders that a list file names, one per line; one without a name when there is no list.

    Raises:
        BadInput: It names none, one twice, or one outside of the folder.
    """
    if path is None:
        return ("",)
    text = read_small(path, what=english("The list")).decode("utf-8-sig", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(
            english("The list {path} names no folders.", path=shown(path)), fix=english("write one name per line")
        )
    seen: set[PurePosixPath] = set()
    for line in lines:
        place = PurePosixPath(line)
        if place.is_absolute() or ".." in place.parts or "\\" in line or "\0" in line:
            what = english(
                "The list {path} names {line!r:.100}, which is not a folder inside of another.",
                path=shown(path),
                line=line,
            )
            raise BadInput(what, fix=english("name folders relative to --input_dir, without .."))
        if place in seen:
            raise BadInput(
                english("The list {path} names {line!r:.100} twice.", path=shown(path), line=line),
                fix=english("remove one of them"),
            )
        seen.add(place)
    return tuple(lines)


def read_input(path: Path, spec: InputSpec, *, batch: int = 1) -> list[Array]:
    """The values of an input, once for each of `batch` runs.

    Raises:
        BadInput: The file is missing, or does not hold so many values.
    """
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    if not path.exists():
        there = sorted(each.name for each in path.parent.glob(f"*{SUFFIX}")) if path.parent.is_dir() else []
        found = (
            english("found {there}", there=", ".join(there[:5])) if there else english("there are no .bin files")
        )
        raise input_error(
            spec,
            "There is no file for the input {name!r} ({describe}): expected {path}; {found}.",
            fix=english("write it there, or add --random_input"),
            path=shown(path),
            found=found,
        )
    try:
        with reading(path, what=english("The input file")):
            held = stat_file(path)
            shape = _shape(spec, held // max(1, dtype.itemsize * batch), where=shown(path))
            wanted = dtype.itemsize * math.prod(shape) * batch
            if held != wanted:
                times = english(" {batch} times", batch=batch) if batch > 1 else ""
                what = english(
                    "{path} has {held} bytes; the input {name!r} takes {describe}{times}",
                    path=shown(path),
                    held=held,
                    name=spec.name,
                    describe=spec.describe(),
                    times=times,
                )
                raise BadInput(
                    english("{what}, {wanted} bytes.", what=what, wanted=wanted),
                    fix=english("write raw little-endian values of that type and shape"),
                )
            values = map_array(path, offset=0, dtype=dtype, shape=(batch, *shape))
    except Unreadable as error:
        raise BadInput(
            "{path} {problem}.", fix=english("give a regular file"), path=shown(path), problem=error.problem
        ) from error
    return [np.asarray(values[index], dtype.newbyteorder("=")) for index in range(batch)]


def _shape(spec: InputSpec, count: int, *, where: str) -> tuple[int, ...]:
    """The input's shape; one free axis is found from the number of values."""
    axes = spec.shape
    free = [place for place, axis in enumerate(axes or ()) if not isinstance(axis, int)]
    if axes is None or len(free) > 1:
        raise input_error(
            spec,
            "{where} says nothing of its shape, and the input {name!r} leaves it open: {describe}.",
            fix=english("fix the shapes of the model's inputs"),
            where=where,
        )
    fixed = math.prod(axis for axis in axes if isinstance(axis, int))
    size = count // fixed if fixed else 0
    return tuple(axis if isinstance(axis, int) else size for axis in axes)


def random_input(spec: InputSpec, rng: np.random.Generator, *, batch: int = 1) -> Array:
    """Values for an input: floats from 0 to 1, bytes over their range, other whole numbers 0 or 1.

    Args:
        spec: The input; free axes get the size 1.
        rng: Where chance comes from.
        batch: How many times.

    Raises:
        BadInput: Even the number of its axes is free.
    """
    if spec.shape is None:
        what = english("The input {name!r} is of any shape; no values can be made up for it.", name=spec.name)
        raise BadInput(what, fix=english("write its files yourself"))
    shape = (batch, *(axis if isinstance(axis, int) else 1 for axis in spec.shape))
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.random(shape, np.float32).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.integers(0, 2, shape).astype(dtype)


def are_numbers(arrays: Sequence[object]) -> bool:
    """Whether values have bytes that a raw file can hold: text and sequences of tensors have none."""
    return all(isinstance(array, np.ndarray) and array.dtype.kind not in "OSU" for array in arrays)


def write_tensor(path: Path, arrays: Sequence[Array]) -> None:
    """Write values one after the other, raw and little-endian."""
    write_bytes(path, b"".join(np.asarray(array).astype(_little(array), order="C").tobytes() for array in arrays))


def _little(array: Array) -> "np.dtype[np.generic]":
    return array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype


def case_folder(root: Path, case: str) -> Path:
    """The folder of one line of the list."""
    return root / PurePosixPath(case) if case else root


_SEED = 0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What to run on what.

    Attributes:
        model: A float model, or one that ``roundoff pulsar2 build`` quantized.
        input_dir: Where files of inputs are, ``<name>.bin``.
        output_dir: Where files of outputs go.
        list_file: Names a sub-folder of both per line; without it the folders themselves are used.
        random_input: Make up the files of inputs that are missing.
        batch_size: Run so many times, with inputs that stand one after the other in their files; 0 for once.
        per_layer: Write what every operation computes too.
        mode: Onnxruntime, or the simulator of integer hardware.
        target_hardware: Whose arithmetic is simulated.
        group_index: Which group of shapes of a compiled model; has no meaning here.
    """

    model: Path
    input_dir: Path
    output_dir: Path
    list_file: Path | None = None
    random_input: bool = False
    batch_size: int = 0
    per_layer: bool = False
    mode: PrecisionAnalysisMode = PrecisionAnalysisMode.Reference
    target_hardware: TargetHardware = TargetHardware.AX650
    group_index: int = 0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What was done.

    Attributes:
        files: The files of each tensor, in every folder.
        cases: The folders.
        notes: What the user should know.
    """

    files: Mapping[str, str]
    cases: tuple[str, ...]
    notes: tuple[str, ...]


def run_model(settings: RunSettings, say: Callable[[str], None] = lambda _: None) -> RunOutcome:
    """Run a model on all folders of a list.

    Args:
        settings: What to run on what.
        say: Told of every file and of what the user should know.

    Raises:
        BadInput: A file is missing or does not fit, or the model is one that only the vendor's tool runs.
        ModelFailed: The model cannot be run.
    """
    if settings.batch_size < 0:
        raise BadInput(
            "A batch_size of {batch_size} is none.", fix=english("give 0 or more"), batch_size=settings.batch_size
        )
    cases = read_cases(settings.list_file)
    engine, notes = _engine(settings)
    read, odd_inputs = file_names(spec.name for spec in engine.inputs)
    written, odd_outputs = file_names(engine.tensors)
    notes = (*notes, *odd_inputs, *odd_outputs)
    for note in notes:
        say(note)
    rng = np.random.default_rng(_SEED)
    left_out: dict[str, str] = {}
    for case in cases:
        say(f">>> [{case or settings.input_dir}] start")
        folder = case_folder(settings.input_dir, case)
        if settings.random_input:
            _make_up(engine, folder, read, rng, batch=max(1, settings.batch_size), say=say)
        found = _run_case(engine, folder, read, batch=max(1, settings.batch_size), case=case)
        target = case_folder(settings.output_dir, case)
        for name, arrays in found.items():
            if not are_numbers(arrays):
                left_out[name] = (
                    f"[{shown(name)}] is not written: it holds text or a sequence, which are no numbers"
                )
                say(left_out[name])
                continue
            write_tensor(target / written[name], arrays)
            say(f"write [{name}] to [{shown(target / written[name])}], {_described(arrays)}")
        say(f">>> [{case or settings.input_dir}] finish")
    kept = {name: file for name, file in written.items() if name not in left_out}
    return RunOutcome(kept, cases, (*notes, *left_out.values()))


def _engine(settings: RunSettings) -> tuple[Engine, tuple[str, ...]]:
    model = load_model(settings.model)
    refuse_foreign(model)
    notes = []
    if settings.group_index:
        notes.append(english("group_index has no effect: groups of shapes exist in compiled models only"))
    if settings.mode is PrecisionAnalysisMode.Reference:
        if settings.target_hardware is not TargetHardware.AX650:
            notes.append(english("target_hardware has no effect in the mode Reference"))
        return ReferenceEngine(model, per_layer=settings.per_layer), tuple(notes)
    if not is_quantized(model):
        what = english("{model} is a float model, which the mode NPUBackend cannot run.", model=settings.model)
        raise BadInput(what, fix=english("leave --mode out, or give quant/quant_axmodel.onnx of a build"))
    if settings.target_hardware is not TargetHardware.AX650:
        notes.append(
            english(
                "{chip} is simulated as AX650, whose rules are the only known ones",
                chip=settings.target_hardware.name,
            )
        )
    target = target_of(BuildConfig(target_hardware=settings.target_hardware))
    engine = IntegerEngine.make(model, target.arithmetic, per_layer=settings.per_layer)
    return engine, (*notes, *engine.notes)


def _make_up(
    engine: Engine,
    folder: Path,
    files: Mapping[str, str],
    rng: np.random.Generator,
    *,
    batch: int,
    say: Callable[[str], None],
) -> None:
    for spec in engine.inputs:
        path = folder / files[spec.name]
        if path.exists():
            say(f"kept: {shown(path)} exists, no random values are written over it")
        else:
            write_tensor(path, [random_input(spec, rng, batch=batch)])
            say(f"write random values for [{spec.name}] to [{shown(path)}]")


def _run_case(
    engine: Engine, folder: Path, files: Mapping[str, str], *, batch: int, case: str
) -> dict[str, list[Array]]:
    given = {spec.name: read_input(folder / files[spec.name], spec, batch=batch) for spec in engine.inputs}
    found: dict[str, list[Array]] = {name: [] for name in engine.tensors}
    for index in range(batch):
        feed = {name: arrays[index] for name, arrays in given.items()}
        for name, array in engine.run(feed, sample=case or str(folder)).items():
            found[name].append(array)
    return found


def _described(arrays: list[Array]) -> str:
    times = f" x {len(arrays)}" if len(arrays) > 1 else ""
    return f"{arrays[0].dtype.name} {list(arrays[0].shape)}{times}"
