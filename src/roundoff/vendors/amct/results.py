"""Where results go: the models, their quantization information, and the folders for them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roundoff.core.files import model_files, writing
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model
from roundoff.graph.save import DeferredModel, save_model
from roundoff.vendors.amct.arguments import keep_apart
from roundoff.vendors.amct.configuration.full import write_json
from roundoff.vendors.amct.deploy import OwnOperators, PlainOperators, integer_model, quantization_info
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.logging import LOGGER
from roundoff.vendors.amct.quantizers import quantizers_of
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.errors import WrongType, WrongValue

__all__ = [
    "FAKE_QUANT_FORMS",
    "ResultFiles",
    "SaveType",
    "chosen",
    "make_folder",
    "replacing",
    "results_of",
    "save_quantized",
]


FAKE_QUANT_FORMS = ("qdq", "chain")
"""QuantizeLinear and DequantizeLinear, or Mul, Round, Add, Clip and Sub."""

SaveType = Literal["Fakequant", "Deploy", "Both"]

_LONGEST_PREFIX = 241
_FOLDER_MODE, _FILE_MODE = 0o750, 0o640


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The files of one result.

    Attributes:
        folder: Where they are.
        prefix: What their names begin with.
    """

    folder: Path
    prefix: str

    def path(self, rest: str) -> Path:
        """A file with the prefix."""
        return self.folder / (f"{self.prefix}_{rest}" if self.prefix else rest)

    @property
    def fake_quant(self) -> Path:
        """The model that simulates."""
        return self.path("fake_quant_model.onnx")

    @property
    def deploy(self) -> Path:
        """The model for the compiler."""
        return self.path("deploy_model.onnx")

    @property
    def info(self) -> Path:
        """The quantization information."""
        return self.path("quant.json")

    @property
    def record(self) -> Path:
        """The factors, where nobody says another place."""
        return self.path("record.txt")

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        return self.fake_quant, self.deploy, self.info


def results_of(save_path: Any) -> ResultFiles:
    """The files that go with a path and prefix.

    Raises:
        WrongType: It is not a path.
        WrongValue: The prefix is too long.
    """
    if not isinstance(save_path, str | Path):
        raise WrongType(f"The path to save at is {save_path!r}, not a text.", fix="give folder/prefix")
    text = str(save_path)
    folder, prefix = (Path(text), "") if text.endswith(("/", "\\")) else (Path(text).parent, Path(text).name)
    if len(prefix) > _LONGEST_PREFIX:
        what = f"The prefix of {len(prefix)} characters is too long for names of files."
        raise WrongValue(what, fix=f"give at most {_LONGEST_PREFIX}")
    return ResultFiles(folder, prefix)


def make_folder(folder: Path) -> None:
    """Make a folder for results, readable by its owner and group.

    Raises:
        BadInput: It cannot be made.
    """
    with writing(folder, option="save_path"):
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


def _write_fake_quant(
    path: Path,
    model: Model,
    layers: Mapping[str, AmctLayer],
    *,
    records: Mapping[str, LayerRecord],
    form: str = "qdq",
) -> None:
    """Write the model that simulates; it runs in any onnxruntime."""
    if form == "qdq":
        save_model(fake_quant_model(model, quantizers_of(model, layers, records)), path, replace=True)
    else:
        chained = integer_model(model, layers, records, form=PlainOperators())
        save_model(DeferredModel(chained), path, replace=True)


def save_quantized(  # noqa: PLR0913 - a model, its numbers, and what to write of it
    results: ResultFiles,
    model: Model,
    layers: Mapping[str, AmctLayer],
    *,
    records: Mapping[str, LayerRecord],
    half_precision: bool = False,
    form: str = "qdq",
    which: SaveType = "Both",
) -> None:
    """Write both models and the quantization information, replacing earlier ones.

    Args:
        results: Where.
        model: The float model.
        layers: Its layers.
        records: Of those that are quantized.
        half_precision: Whether scales are limited to half precision.
        form: Of the fake-quant model.
        which: Both models, or one of them; the quantization information goes with the deploy model.

    Raises:
        WrongValue: There is no such form, or a record does not fit.
    """
    shifted = [name for name, record in records.items() if any(record.shift_bit)]
    if shifted:
        LOGGER.warning("sums of %s are shifted on the chip, which the fake-quant model leaves out", shifted[0])
    # What is wrong with a record is said before anything is replaced.
    quantizers_of(model, layers, records)
    if form not in FAKE_QUANT_FORMS:
        raise WrongValue(f"There is no fake-quant model of the form {form!r}.", fix="choose qdq or chain")
    with replacing(chosen(which, results.files[:1], results.files[1:]), model):
        if which != "Deploy":
            _write_fake_quant(results.fake_quant, model, layers, records=records, form=form)
        if which != "Fakequant":
            _write_deploy(results, model, layers, records=records, half_precision=half_precision)


def chosen(which: SaveType, fake_quant: Sequence[Path], deploy: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are written."""
    return (*(fake_quant if which != "Deploy" else ()), *(deploy if which != "Fakequant" else ()))


@contextlib.contextmanager
def replacing(files: Sequence[Path], model: Model) -> Iterator[None]:
    """Write results in this block: their folder is made, and what is replaced is said.

    Args:
        files: The results.
        model: What they are made from.

    Raises:
        WrongValue: One of them is a file of that model.
        BadInput: The folder cannot be made.
    """
    keep_apart(files, model_files(model.path))
    make_folder(files[0].parent)
    for path in files:
        if path.exists():
            LOGGER.warning("%s is replaced", path)
    yield
    for path in files:
        with contextlib.suppress(OSError):  # a file system without modes
            path.chmod(_FILE_MODE)


def _write_deploy(
    results: ResultFiles,
    model: Model,
    layers: Mapping[str, AmctLayer],
    *,
    records: Mapping[str, LayerRecord],
    half_precision: bool,
) -> None:
    deployed = integer_model(model, layers, records, form=OwnOperators(half_precision=half_precision))
    save_model(deployed, results.deploy, replace=True)
    quantized = {name: layer for name, layer in layers.items() if name in records}
    write_json(results.info, quantization_info(deployed, quantized))
