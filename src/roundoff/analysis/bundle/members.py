"""The files of a case: models, samples, and what the test script reads."""

import tempfile
from pathlib import Path

from roundoff.analysis.bundle.case import Case, CaseSamples
from roundoff.core.bundle import CaseNumbers
from roundoff.data.copying import copy_samples
from roundoff.errors import BadInput
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model
from roundoff.graph.saving import save_model

__all__ = [
    "FLOAT_MODEL",
    "QUANTIZED_MODEL",
    "SAMPLES_LIST",
    "model_members",
    "quantized_members",
    "sample_members",
]

FLOAT_MODEL, QUANTIZED_MODEL = "model/float.onnx", "model/quantized.onnx"
SAMPLES_LIST = "data/worst.txt"

Content = dict[str, bytes]


def quantized_members(case: Case, float_model: Model, numbers: CaseNumbers) -> tuple[Content, dict[str, object]]:
    """Both models, the samples, and what the script needs to know.

    Args:
        case: The case.
        float_model: What is handed on as the float model: the case's own, or what that was prepared from.
        numbers: What the case shows.

    Raises:
        BadInput: The models are too large for one archive, or there is no score to show.
    """
    if numbers.sqnr_db is None:
        what = "The outputs of the worst sample have no score, so that there is no number to show."
        raise BadInput(what, fix="run roundoff samples on it to see why, and leave such samples out of --data")
    members = model_members(float_model, FLOAT_MODEL)
    members |= model_members_deferred(case)
    samples, places = sample_members(case.samples)
    outputs = sorted({value.name for value in case.quantized.float_model.proto.graph.output})
    description: dict[str, object] = {
        "float": FLOAT_MODEL,
        "quantized": QUANTIZED_MODEL,
        "outputs": [name for name in outputs if name == numbers.output] or outputs,
        "samples": places,
        "expected_sqnr_db": numbers.sqnr_db,
    }
    return members | samples, description


def model_members(model: Model, name: str) -> Content:
    """A model in one file, or with its weights beside it when they are large."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / Path(name).name)
        return _read(Path(folder), str(Path(name).parent))


def model_members_deferred(case: Case) -> Content:
    """The model with quantizers."""
    with tempfile.TemporaryDirectory() as folder:
        deferred = fake_quant_model(case.quantized.float_model, case.quantized.quantizers)
        save_model(deferred, Path(folder) / Path(QUANTIZED_MODEL).name)
        return _read(Path(folder), str(Path(QUANTIZED_MODEL).parent))


def sample_members(samples: CaseSamples) -> tuple[Content, list[dict[str, object]]]:
    """Samples as files, and where the inputs of each are."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = list(zip(samples.names, samples.feeds, strict=True))
        copy_samples(Path(folder), pairs, heading="the samples that show the fault, the worst first")
        members = _read(Path(folder), "data")
    files = [name for name in members if name.endswith(".npy")]
    places: list[dict[str, object]] = []
    for number, (name, feed) in enumerate(pairs, start=1):
        own = [file for file in files if Path(file).name.startswith(f"{number:04d}_")]
        by_input = dict(zip(feed, sorted(own, key=_order(members)), strict=True))
        places.append({"name": name, "inputs": by_input})
    return members, places


def _order(members: Content) -> "_Order":
    return _Order(members[SAMPLES_LIST].decode())


class _Order:
    """Sorts files as the list names them: in the order of the inputs."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, file: str) -> int:
        return self._text.index(file.removeprefix("data/"))


def _read(folder: Path, prefix: str) -> Content:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}
