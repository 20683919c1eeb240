"""Caffe nets: read as ONNX graphs, written with the layers that AMCT has for Caffe."""

from collections.abc import Mapping
from pathlib import Path

from roundoff.core.files import read_small
from roundoff.core.text_proto import Entry
from roundoff.graph.caffe.convert import import_caffe, net_of, tell
from roundoff.graph.caffe.export import deploy_net, fake_quant_net, save_net
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.vendors.amct.caffe.layers import (
    CAFFE_TYPES,
    check_config,
    ending_of,
    input_sizes,
    net_information,
    own_layers,
)
from roundoff.vendors.amct.configuration.parsing import write_json
from roundoff.vendors.amct.configuration.settings import QuantConfig
from roundoff.vendors.amct.flavour import Files, add_flavour
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.amct.modified import Stage, note_stage, stage_text
from roundoff.vendors.amct.quantizers import quantizers_of, weight_quantizers
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.saving import Results, SaveType, chosen, replacing, results_of

__all__ = ["CaffeFlavour"]

# A comment, so that everyone who reads nets can read this one.
_MARK = "# roundoff.amct: "


class CaffeFlavour:
    """Two files, definition and weights; see `roundoff.vendors.amct.flavour.Flavour`."""

    name = "caffe"
    layer_types: Mapping[str, tuple[str, ...]] = CAFFE_TYPES
    how_to_run = "give it and batches to roundoff.vendors.amct.caffe.run_model, in this process"

    def read(self, files: Files) -> Model:
        """The net of two files; a modified one says in its first line what its runs are for."""
        imported = import_caffe(*files)
        tell(imported)
        first = read_small(files[0], what="The .prototxt").partition(b"\n")[0].decode(errors="replace")
        if first.startswith(_MARK):
            note_stage(imported.model, first.removeprefix(_MARK))
        return imported.model

    def layers(self, model: Model, found: Mapping[str, Layer]) -> dict[str, Layer]:
        """Those that AMCT quantizes in Caffe."""
        return own_layers(net_of(model), found)

    def check(self, config: QuantConfig, *, name: str) -> None:
        """Codes have 8 bits, stand in front of layers, and nothing is balanced."""
        check_config(config, name)

    def facts(self, model: Model, layers: Mapping[str, Layer]) -> dict[str, tuple[Entry, ...]]:
        """How large the input of each layer is."""
        return input_sizes(model, layers)

    def write_modified(
        self,
        files: Files,
        model: Model,
        *,
        layers: Mapping[str, Layer],
        records: Mapping[str, LayerRecord],
        stage: Stage,
    ) -> None:
        """Write the net that is run for calibration."""
        written = fake_quant_net(net_of(model), QuantizedModel(model, weight_quantizers(layers, records)))
        save_net(written, *files, heading=f"{_MARK}{stage_text(stage)}\n")

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The fake-quant and the deploy net."""
        found = results_of(save_path)
        return _pair(found, "fake_quant"), _pair(found, "deploy")

    def info(self, save_path: str | Path) -> Path:
        """The quantization information."""
        return results_of(save_path).info

    def write_results(
        self,
        save_path: str | Path,
        model: Model,
        *,
        layers: Mapping[str, Layer],
        records: Mapping[str, LayerRecord],
        half_precision: bool,
        which: SaveType = "Both",
    ) -> None:
        """Write both nets and the quantization information, or a part of it."""
        (fake, deploy), info = self.results(save_path), self.info(save_path)
        net = net_of(model)
        quantized = QuantizedModel(model, quantizers_of(model, layers, records))
        with replacing(chosen(which, fake, (*deploy, info)), model):
            if which != "Deploy":
                save_net(fake_quant_net(net, quantized, ending=ending_of(records, half=False)), *fake)
            if which != "Fakequant":
                ending = ending_of(records, half=half_precision)
                save_net(deploy_net(net, quantized, ending=ending), *deploy)
                own = {name: layer for name, layer in layers.items() if name in records}
                write_json(info, net_information(deploy, net, own))


def _pair(results: Results, kind: str) -> Files:
    return results.path(f"{kind}_model.prototxt"), results.path(f"{kind}_weights.caffemodel")


add_flavour("caffe", CaffeFlavour)
