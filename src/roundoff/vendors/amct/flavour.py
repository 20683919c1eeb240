"""What a framework brings along to take part: reading its models, and writing them quantized.

Everything between is the same for all of them: a model is an ONNX graph once it is read, its nodes named as the
user's layers are. Flavours are `roundoff.vendors.amct.onnx` and `roundoff.vendors.amct.caffe`; another registers
itself by `add_flavour`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from roundoff.core.table import Table
from roundoff.core.text_proto import TextEntry
from roundoff.graph.load import Model
from roundoff.vendors.amct.config import AmctConfig
from roundoff.vendors.amct.deploy import SaveType
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.observation import CalibrationStage
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.errors import CannotRun

__all__ = ["Files", "Flavour", "add_flavour", "get_flavour"]

Files = tuple[Path, ...]
"""The files of one model: one for ONNX; definition and weights for Caffe."""


class Flavour(Protocol):
    """A framework.

    Attributes:
        name: What it is called.
        layer_types: What its users call types of layers, each with the ONNX operations that they become.
        how_to_run: What to do so that a run of a modified model is seen.
    """

    name: str
    layer_types: Mapping[str, tuple[str, ...]]
    how_to_run: str

    def read(self, files: Files) -> Model:
        """The model of these files as a float ONNX graph.

        Raises:
            BadInput: They cannot be read.
        """
        ...

    def layers(self, model: Model, found: Mapping[str, AmctLayer]) -> dict[str, AmctLayer]:
        """Those of the layers found in a model that are layers of the framework's own."""
        ...

    def check(self, config: AmctConfig, *, name: str) -> None:
        """Refuse what its models cannot say.

        Raises:
            WrongValue: The configuration, which is called so, asks for it.
        """
        ...

    def facts(self, model: Model, layers: Mapping[str, AmctLayer]) -> dict[str, tuple[TextEntry, ...]]:
        """What its records say of layers beside the factors."""
        ...

    def write_modified(
        self,
        files: Files,
        model: Model,
        *,
        layers: Mapping[str, AmctLayer],
        records: Mapping[str, LayerRecord],
        stage: CalibrationStage,
    ) -> None:
        """Write the model that is run for calibration, weights being quantized as the records say."""
        ...

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The files of the fake-quant and of the deploy model that go with a path and prefix."""
        ...

    def info(self, save_path: str | Path) -> Path:
        """The quantization information that goes with the deploy model."""
        ...

    def write_results(
        self,
        save_path: str | Path,
        model: Model,
        *,
        layers: Mapping[str, AmctLayer],
        records: Mapping[str, LayerRecord],
        half_precision: bool,
        which: SaveType = "Both",
    ) -> None:
        """Write the fake-quant model, the deploy model with the quantization information, or both."""
        ...


_KNOWN: Table[Callable[[], Flavour]] = Table("flavour")


def add_flavour(name: str, make: Callable[[], Flavour]) -> None:
    """Let a framework take part from now on."""
    _KNOWN[name] = make


def get_flavour(name: str) -> Flavour:
    """The framework of that name.

    Raises:
        CannotRun: Nobody brought it along.
    """
    if name not in _KNOWN:
        what = f"Models of {name.capitalize()} cannot be read and written by this version of roundoff."
        raise CannotRun(what, fix="convert the model to ONNX and use roundoff.vendors.amct.onnx")
    return _KNOWN[name]()
