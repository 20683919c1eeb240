"""ONNX models as they are."""

from collections.abc import Mapping
from pathlib import Path

from roundoff.core.text_proto import Entry
from roundoff.graph.load import Model, load_model
from roundoff.vendors.amct.configuration.full import AmctConfig
from roundoff.vendors.amct.flavour import Files, add_flavour
from roundoff.vendors.amct.layers import LAYER_TYPES, AmctLayer
from roundoff.vendors.amct.modified import CalibrationStage, write_modified
from roundoff.vendors.amct.quantizers import weight_quantizers
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.results import SaveType, results_of, save_quantized

__all__ = ["OnnxFlavour"]


class OnnxFlavour:
    """One file, read and written as it is; see `roundoff.vendors.amct.flavour.Flavour`."""

    name = "onnx"
    layer_types: Mapping[str, tuple[str, ...]] = {name: (name,) for name in LAYER_TYPES}
    how_to_run = "call run() of a session on it in this process, with roundoff.vendors.amct.onnx imported"

    def read(self, files: Files) -> Model:
        """The model of a file."""
        return load_model(files[0])

    def layers(self, model: Model, found: Mapping[str, AmctLayer]) -> dict[str, AmctLayer]:
        """All of them."""
        return dict(found)

    def check(self, config: AmctConfig, *, name: str) -> None:
        """Everything has a form in ONNX."""

    def facts(self, model: Model, layers: Mapping[str, AmctLayer]) -> dict[str, tuple[Entry, ...]]:
        """Nothing."""
        return dict.fromkeys(layers, ())

    def write_modified(
        self,
        files: Files,
        model: Model,
        *,
        layers: Mapping[str, AmctLayer],
        records: Mapping[str, LayerRecord],
        stage: CalibrationStage,
    ) -> None:
        """Write the model that is run for calibration."""
        write_modified(files[0], model, weight_quantizers(layers, records), stage=stage)

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The fake-quant and the deploy model."""
        found = results_of(save_path)
        return (found.fake_quant,), (found.deploy,)

    def info(self, save_path: str | Path) -> Path:
        """The quantization information."""
        return results_of(save_path).info

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
        """Write both models and the quantization information, or a part of it."""
        results = results_of(save_path)
        save_quantized(results, model, layers, records=records, half_precision=half_precision, which=which)


add_flavour("onnx", OnnxFlavour)
