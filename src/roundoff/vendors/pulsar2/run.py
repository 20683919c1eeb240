"""``pulsar2 run``: files in, files out, one folder per line of a list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.names import shown
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.vendors.pulsar2.chips import target_of
from roundoff.vendors.pulsar2.config.enums import PrecisionAnalysisMode, TargetHardware
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.engines import (
    Engine,
    IntegerEngine,
    ReferenceEngine,
    is_quantized,
    refuse_foreign,
)
from roundoff.vendors.pulsar2.run_files import (
    are_numbers,
    case_folder,
    file_names,
    random_input,
    read_cases,
    read_input,
    write_tensor,
)

__all__ = ["RunOutcome", "RunSettings", "run_model"]

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
        raise BadInput(f"A batch_size of {settings.batch_size} is none.", fix="give 0 or more")
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
        notes.append("group_index has no effect: groups of shapes exist in compiled models only")
    if settings.mode is PrecisionAnalysisMode.Reference:
        if settings.target_hardware is not TargetHardware.AX650:
            notes.append("target_hardware has no effect in the mode Reference")
        return ReferenceEngine(model, per_layer=settings.per_layer), tuple(notes)
    if not is_quantized(model):
        what = f"{settings.model} is a float model, which the mode NPUBackend cannot run."
        raise BadInput(what, fix="leave --mode out, or give quant/quant_axmodel.onnx of a build")
    if settings.target_hardware is not TargetHardware.AX650:
        notes.append(f"{settings.target_hardware.name} is simulated as AX650, whose rules are the only known ones")
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
