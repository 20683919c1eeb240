"""AMCT's functions for Caffe, by its names, order and defaults: ``import roundoff.vendors.amct.caffe as amct``.

No Caffe is needed: `run_model` runs nets, and runs of a modified net calibrate. `opencv_net` opens nets in OpenCV.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from roundoff.core.files import model_files, read_small
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage, text_proto_text
from roundoff.graph.caffe.convert import DATA_TYPES, import_caffe, net_of, runs_of, tell
from roundoff.graph.caffe.export import Ending, Owners, quantized_net, save_net
from roundoff.graph.caffe.net import CaffeLayer, Net, read_net
from roundoff.graph.caffe.wire import text_table
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.messages.message import english
from roundoff.vendors.amct.auto import ModelAutoCalibration
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationResult, SearchOptions
from roundoff.vendors.amct.config import DEFAULT_BITS, AmctConfig, write_json
from roundoff.vendors.amct.deploy import (
    Operation,
    ResultFiles,
    SaveType,
    chosen,
    operations_info,
    replacing,
    results_of,
)
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.observation import CalibrationStage, note_stage, run_batches, stage_text
from roundoff.vendors.amct.quantizers import quantizers_of, short_mantissa, weight_quantizers
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.workflow import (
    AmctModel,
    Files,
    Flavour,
    RecordedModel,
    begin_calibration,
    complete_records,
    convert,
    create_config,
    open_model,
)
from roundoff.vendors.facade import AMCT_LOGGER, CannotRun, WrongValue, a_path, in_vendors_terms, keep_apart

__all__ = [
    "CAFFE_TYPES",
    "CaffeFlavour",
    "Graph",
    "accuracy_based_auto_calibration",
    "convert_model",
    "create_quant_config",
    "init",
    "opencv_net",
    "quantize_model",
    "run_model",
    "save_model",
    "set_cpu_mode",
    "set_gpu_mode",
]


# Nets in OpenCV, which lacks AMCT's layers and cannot read their parameters: both are brought along.

_LOWEST, _HIGHEST = -128, 127
_INT16 = -(2.0**15), 2.0**15 - 1


def opencv_net(model_file: str, weights_file: str) -> Any:
    """Ours: a net as ``cv2.dnn.readNetFromCaffe`` gives it, also one with AMCT's layers.

    Args:
        model_file: The definition: of a float net, or of a fake-quant one.
        weights_file: The weights.

    Returns:
        A ``cv2.dnn.Net``. Runs of a modified net calibrate nothing here; `run_model` does that.

    Raises:
        CannotRun: OpenCV is not there or cannot read the net, or it is a deploy net.
        BadInput: The files cannot be read.
    """
    cv2 = _opencv()
    definition, weights = a_path("model_file", model_file), a_path("weights_file", weights_file)
    net = read_net(definition, weights)
    whole = next((each for each in net.layers if _is_whole(each.blobs)), None)
    if whole is not None:
        what = english(
            "OpenCV cannot compute with the integers of a deploy net, as layer {name!r} has them.", name=whole.name
        )
        raise CannotRun(what, fix=english("give the fake-quant net, or use roundoff.vendors.amct.caffe.run_model"))
    _register(cv2)
    text = text_proto_text(_readable(net), text_table("NetParameter"))
    try:
        return cv2.dnn.readNetFromCaffe(_bytes(text.encode()), _bytes(Path(weights).read_bytes()))
    except cv2.error as error:
        reason = str(error).strip().splitlines()[0]
        fix = english("use roundoff.vendors.amct.caffe.run_model, which knows more layers")
        raise CannotRun(
            english("OpenCV cannot read {definition}: {reason}", definition=definition, reason=reason), fix=fix
        ) from error


def _opencv() -> Any:
    fix = english("pip install 'opencv-python-headless<5'")
    try:
        import cv2
    except ImportError as error:
        raise CannotRun(english("OpenCV is not installed."), fix=fix) from error
    if not hasattr(getattr(cv2, "dnn", None), "readNetFromCaffe"):
        raise CannotRun(english("OpenCV {version} reads no Caffe nets.", version=cv2.__version__), fix=fix)
    return cv2


def _is_whole(blobs: Sequence[Array]) -> bool:
    return any(blob.dtype.kind in "iu" for blob in blobs)


def _bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _readable(net: Net) -> TextMessage:
    """The layers that run, with parameters that OpenCV takes: plain numbers, none below zero."""
    runs = runs_of(net)
    read = {bottom for layer in runs for bottom in layer.bottoms}
    kept = [each for each in runs if each.type not in DATA_TYPES or read.intersection(each.tops)]
    return TextMessage((TextEntry("name", net.name), *(TextEntry("layer", _layer(each.message)) for each in kept)))


def _layer(layer: TextMessage) -> TextMessage:
    own = [each for each in layer.entries if each.name not in ("quant_param", "dequant_param")]
    if layer.get("type") == "Quant":
        given = layer.message("quant_param") or TextMessage()
        offset = given.get("offset", b"")
        code = np.frombuffer((offset if isinstance(offset, bytes) else b"")[:1] or b"\0", np.int8)[0]
        zero = TextEntry("zero", int(code) - _LOWEST)
        own.append(
            TextEntry("quant_param", TextMessage((TextEntry("scale", repr(given.get("scale", 1.0))), zero)))
        )
    return TextMessage(tuple(own))


@functools.cache
def _register(cv2: Any) -> None:
    cv2.dnn_registerLayer("Quant", _Quant)
    cv2.dnn_registerLayer("DeQuant", _DeQuant)


class _Quant:
    """Rounds to codes and back."""

    def __init__(self, params: dict[str, Any], _: Sequence[Array]) -> None:
        self._step = np.float32(1 / float(params["scale"]))
        self._zero = np.float32(float(params["zero"]) + _LOWEST)

    def getMemoryShapes(self, inputs: Sequence[Any]) -> list[Any]:  # noqa: N802 - OpenCV's name
        """Shapes of the results."""
        return [inputs[0]]

    def forward(self, inputs: Sequence[Array]) -> list[Array]:
        """The results."""
        codes = np.clip(np.rint(inputs[0] / self._step) + self._zero, _LOWEST, _HIGHEST)
        return [np.asarray((codes - self._zero) * self._step, np.float32)]


class _DeQuant:
    """Nothing, unless the chip shifts sums."""

    def __init__(self, _: dict[str, Any], blobs: Sequence[Array]) -> None:
        self._factor, self._shift = (np.asarray(each, np.float32).ravel() for each in blobs[:2])

    def getMemoryShapes(self, inputs: Sequence[Any]) -> list[Any]:  # noqa: N802 - OpenCV's name
        """Shapes of the results."""
        return [inputs[0]]

    def forward(self, inputs: Sequence[Array]) -> list[Array]:
        """The results."""
        sums = np.asarray(inputs[0])
        if not self._shift.any():
            return [sums]
        factor, power = (each.reshape(-1, *[1] * (sums.ndim - 2)) for each in (self._factor, np.exp2(self._shift)))
        limited = np.clip(np.rint(np.rint(sums / factor) / power), *_INT16)
        return [np.asarray(limited * (factor * power), np.float32)]


CAFFE_TYPES: Mapping[str, tuple[str, ...]] = {
    "Convolution": ("Conv",),
    "Deconvolution": ("ConvTranspose",),
    "InnerProduct": ("Gemm",),
    "Pooling": ("AveragePool",),
}
_MORE_TYPES = ("ConvolutionDepthwise", "DepthwiseConvolution")
_FILTER_AXES = 4


def _taken(layer: CaffeLayer, found: AmctLayer) -> bool:
    if layer.type not in CAFFE_TYPES and layer.type not in _MORE_TYPES:
        return False
    if layer.type == "InnerProduct":
        params = layer.message.message("inner_product_param") or TextMessage()
        return not params.get("transpose", False)
    if layer.type == "Deconvolution":
        params = layer.message.message("convolution_param") or TextMessage()
        return len(found.weight_shape) == _FILTER_AXES and set(params.all("dilation")) <= {1}
    return not found.weight or len(found.weight_shape) == _FILTER_AXES


# What the DeQuant layers of a net hold, by the records of its layers.


def _ending_of(records: Mapping[str, LayerRecord], *, half: bool) -> Ending:
    """Factors with the shifts of the records; with half, cut to half precision."""

    def ending(name: str, factors: Array) -> tuple[Array, Array]:
        # A single input has a record of its own, and no shifts.
        bits = np.asarray(records.get(name, LayerRecord()).shift_bit or (0,), np.float32)
        if factors.size % bits.size:
            what = english(
                "The record of {name!r} has {size} values of shift_bit for {size2} outputs.",
                name=name,
                size=bits.size,
                size2=factors.size,
            )
            raise WrongValue(what, fix=english("give one shift_bit for each scale_w"))
        # Groups of a transposed convolution share their factors.
        shifts = np.tile(bits, factors.size // bits.size)
        return short_mantissa(factors) if half else factors, shifts

    return ending


def _net_information(deployed: Files, net: Net, layers: Mapping[str, AmctLayer]) -> dict[str, Any]:
    """Which layers were inserted into the deploy net, and which of the user's each stands for."""
    owners = Owners(runs_of(net))
    originals = {
        # The nodes of one layer are one.
        name: list(dict.fromkeys(owner for node in layer.originals if (owner := owners.of(node))))
        for name, layer in layers.items()
    }
    written = read_net(*deployed)
    return operations_info(written.name, _operations(written, net), originals)


def _operations(written: Net, net: Net) -> Iterator[Operation]:
    for place, layer in enumerate(written.layers):
        owner = layer.name
        if layer.name not in net.layer_names and layer.type == "Quant":
            # It is called after the first layer that reads it, which need not stand directly behind it.
            owner = next(other.name for other in written.layers[place + 1 :] if layer.tops[0] in other.bottoms)
        elif layer.name not in net.layer_names:
            owner = written.layers[place - 1].name
        yield Operation(layer.name, layer.type, len(layer.tops), owner)


# Caffe nets: read as ONNX graphs, written with the layers that AMCT has for Caffe.

# A comment, so that everyone who reads nets can read this one.
_MARK = "# roundoff.amct: "


class CaffeFlavour(Flavour):
    """Two files, definition and weights; see `roundoff.vendors.amct.workflow.Flavour`."""

    name = "caffe"
    layer_types: Mapping[str, tuple[str, ...]] = CAFFE_TYPES
    how_to_run = "give it and batches to roundoff.vendors.amct.caffe.run_model, in this process"
    folds_forward = True

    def read(self, files: Files) -> Model:
        """The net of two files; a modified one says in its first line what its runs are for."""
        imported = import_caffe(*files)
        tell(imported)
        first = read_small(files[0], what=english("The .prototxt")).partition(b"\n")[0].decode(errors="replace")
        if first.startswith(_MARK):
            note_stage(imported.model, first.removeprefix(_MARK))
        return imported.model

    def layers(self, model: Model, found: Mapping[str, AmctLayer]) -> dict[str, AmctLayer]:
        """Those that AMCT quantizes in Caffe: over planes, full connections and means, not steps of others."""
        types = {layer.name: layer for layer in net_of(model).layers}
        return {name: layer for name, layer in found.items() if name in types and _taken(types[name], layer)}

    def check(self, config: AmctConfig, *, name: str) -> None:
        """Codes have 8 bits, stand in front of layers, and nothing is balanced."""
        if config.tensors:
            what = english("{name} has tensor_quantize, which AMCT does not have for Caffe.", name=name)
            raise WrongValue(what, fix=english("remove it"))
        for layer, settings in config.enabled.items():
            if settings.balance is not None:
                raise WrongValue(
                    "{name} asks for dmq_balancer in {layer!r}, which AMCT does not have for Caffe.",
                    fix=english("remove it; 'roundoff transform smooth' does the like on ONNX models"),
                    name=name,
                    layer=layer,
                )
            if settings.activation.bits != DEFAULT_BITS:
                what = english(
                    "{name} asks for inputs of {bits} bits in {layer!r}; Caffe's have 8.",
                    name=name,
                    bits=settings.activation.bits,
                    layer=layer,
                )
                raise WrongValue(what, fix=english("remove dst_type or num_bits of its activation"))

    def facts(self, model: Model, layers: Mapping[str, AmctLayer]) -> dict[str, tuple[TextEntry, ...]]:
        """Channels, height and width of what each layer reads, as AMCT's records of Caffe nets have them."""
        # The number of samples may be any.
        fed = {
            each.name: tuple(size if isinstance(size, int) else 1 for size in each.shape or ())
            for each in inputs(model)
        }
        shapes = {value.name: value.shape for value in values(model, fed)}
        steps = {node.output[0]: node for node in model.proto.graph.node if node.output}
        found = {}
        for name, layer in layers.items():
            tensor = layer.inputs[0][0]
            step = steps.get(tensor)
            # What a layer does to its input before it multiplies is its own affair.
            if step is not None and step.name.startswith(f"{name}/"):
                tensor = step.input[0]
            sizes = (shapes.get(tensor) or ())[1:]
            named = zip(("channels", "height", "width"), (*sizes, 1, 1), strict=False)
            found[name] = tuple(TextEntry(key, size) for key, size in named) if sizes else ()
        return found

    def write_modified(self, files: Files, recorded: RecordedModel, stage: CalibrationStage) -> None:
        """Write the net that is run for calibration."""
        model, layers, records = recorded
        written = quantized_net(net_of(model), QuantizedModel(model, weight_quantizers(layers, records)))
        save_net(written, *files, heading=f"{_MARK}{stage_text(stage)}\n")

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The fake-quant and the deploy net."""
        found = results_of(save_path)
        return _pair(found, "fake_quant"), _pair(found, "deploy")

    def write_results(
        self, save_path: str | Path, recorded: RecordedModel, *, half_precision: bool, which: SaveType = "Both"
    ) -> None:
        """Write both nets and the quantization information, or a part of it."""
        (fake, deploy), info = self.results(save_path), self.info(save_path)
        model, layers, records = recorded
        net = net_of(model)
        quantized = QuantizedModel(model, quantizers_of(model, layers, records))
        with replacing(chosen(which, fake, (*deploy, info)), model):
            if which != "Deploy":
                save_net(quantized_net(net, quantized, ending=_ending_of(records, half=False)), *fake)
            if which != "Fakequant":
                ending = _ending_of(records, half=half_precision)
                save_net(quantized_net(net, quantized, deploy=True, ending=ending), *deploy)
                own = {name: layer for name, layer in layers.items() if name in records}
                write_json(info, _net_information(deploy, net, own))


def _pair(results: ResultFiles, kind: str) -> Files:
    return results.path(f"{kind}_model.prototxt"), results.path(f"{kind}_weights.caffemodel")


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """What `init` returns: a model with weights quantized, ready to be calibrated."""

    opened: AmctModel
    records: dict[str, LayerRecord]
    stage: CalibrationStage
    record_file: Path


_CAFFE = CaffeFlavour()


def _files(model_file: Any, weights_file: Any) -> Files:
    return a_path("model_file", model_file), a_path("weights_file", weights_file)


def _known(graph: Any) -> Graph:
    if not isinstance(graph, Graph):
        raise CannotRun(
            english("graph is {name}, not what init() returned.", name=type(graph).__name__),
            fix=english("call init() first"),
        )
    return graph


def set_cpu_mode() -> None:
    """Compute on the processor, as is always done here."""


def set_gpu_mode() -> None:
    """Ask for a graphics card; said is that the processor is used all the same."""
    AMCT_LOGGER.warning(english("models are run on the processor, also in GPU mode"))


@in_vendors_terms
def create_quant_config(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    config_file: str,
    model_file: str,
    weights_file: str,
    skip_layers: Sequence[str] | None = None,
    batch_num: int = 1,
    activation_offset: bool = True,
    config_defination: str | None = None,
) -> None:
    """Write the configuration of a model; see `roundoff.vendors.amct.onnx.create_quant_config`."""
    create_config(
        _CAFFE,
        _files(model_file, weights_file),
        config_file,
        skip_layers=skip_layers,
        batch_num=batch_num,
        activation_offset=activation_offset,
        config_defination=config_defination,
    )


@in_vendors_terms
def init(config_file: str, model_file: str, weights_file: str, scale_offset_record_file: str) -> Graph:
    """Open a model, quantize its weights and begin its record."""
    files, config = _files(model_file, weights_file), a_path("config_file", config_file)
    record = a_path("scale_offset_record_file", scale_offset_record_file)
    keep_apart([record], [*files, config])
    opened = open_model(_CAFFE, files, config)
    opened, records, stage = begin_calibration(opened, record)
    return Graph(opened, records, stage, record)


@in_vendors_terms
def quantize_model(graph: Graph, modified_model_file: str, modified_weights_file: str) -> None:
    """Write the model from whose runs the factors of activations are learned."""
    files = _files(modified_model_file, modified_weights_file)
    opened = _known(graph).opened
    keep_apart(files, [*model_files(opened.model.path), graph.record_file])
    _CAFFE.write_modified(files, opened.recorded(graph.records), graph.stage)


@in_vendors_terms
def run_model(model_file: str, weights_file: str, feeds: Iterable[Mapping[str, Any]]) -> list[dict[str, Array]]:
    """Ours: run a model on batches without Caffe; runs of a modified model calibrate.

    Args:
        model_file: The definition.
        weights_file: The weights.
        feeds: Batches, each a value for every input.

    Returns:
        For each batch the outputs by name.
    """
    return list(run_batches(_CAFFE.read(_files(model_file, weights_file)), feeds))


@in_vendors_terms
def save_model(graph: Graph, save_type: str, save_path: str) -> None:
    """Write the fake-quant model, the deploy model, or both.

    Raises:
        CannotRun: Fewer than ``batch_num`` batches were run.
        WrongValue: There is no such type.
    """
    which: Any = save_type
    if which not in get_args(SaveType):
        raise WrongValue(
            english("save_type is {save_type!r}.", save_type=save_type),
            fix=english("choose 'Fakequant', 'Deploy' or 'Both'"),
        )
    opened = _known(graph).opened
    records = complete_records(graph.stage, opened.config, graph.record_file, how=_CAFFE.how_to_run)
    half = opened.config.half_precision
    _CAFFE.write_results(save_path, opened.recorded(records), half_precision=half, which=which)


@in_vendors_terms
def convert_model(model_file: str, weights_file: str, scale_offset_record_file: str, save_path: str) -> None:
    """Quantize a model with factors that somebody else found."""
    record = a_path("scale_offset_record_file", scale_offset_record_file)
    converted = convert(_CAFFE, _files(model_file, weights_file), record)
    _CAFFE.write_results(save_path, converted, half_precision=False)


@in_vendors_terms
def accuracy_based_auto_calibration(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_file: str,
    weights_file: str,
    model_evaluator: Any,
    config_file: str,
    record_file: str,
    save_dir: str,
    strategy: Any = "BinarySearch",
    sensitivity: Any = "CosineSimilarity",
    *,
    options: SearchOptions | None = None,
) -> AutoCalibrationResult:
    """Search for a configuration that is good enough; see `roundoff.vendors.amct.onnx`."""
    return ModelAutoCalibration(
        _CAFFE,
        _files(model_file, weights_file),
        evaluator=model_evaluator,
        config_file=config_file,
        record_file=record_file,
        save_dir=save_dir,
        strategy=strategy,
        sensitivity=sensitivity,
        options=options,
    ).run()
