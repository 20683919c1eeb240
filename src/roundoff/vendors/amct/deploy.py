"""AMCT's models with whole numbers in layers: for the compiler with operators of its own, or with plain ones."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from roundoff.core.files import model_files, writing
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.draft import Assembly
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.save import DeferredModel, drop_unused, save_model
from roundoff.graph.weights import Weights, codes_of
from roundoff.messages.message import english
from roundoff.vendors.amct.config import write_json
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.quantizers import quantizers_of, short_mantissa
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.facade import AMCT_LOGGER, WrongType, WrongValue, keep_apart


class Form(Protocol):
    """How a model goes over to whole numbers and back."""

    weight_type: str
    bias_type: str

    def begin(self, graph: Assembly, quantizer: Quantizer, source: str) -> str:
        """Add what turns values into whole numbers; gives the name of the result."""
        ...

    def end(self, graph: Assembly, layer: AmctLayer, sums: str, *, scale: Array, shift: Array) -> None:
        """Add what turns sums into the values that the layer hands on."""
        ...

    def back(self, graph: Assembly, quantizer: Quantizer, numbers: str) -> str:
        """Add what turns whole numbers into values again at once; gives the name of the result."""
        ...


def integer_model(
    model: Model, layers: Mapping[str, AmctLayer], records: Mapping[str, LayerRecord], *, form: Form
) -> Model:
    """The model in which layers compute with whole numbers.

    Args:
        model: The float model; it is not changed.
        layers: Its layers.
        records: Of those that are quantized.
        form: How it goes over to whole numbers and back.

    Raises:
        WrongValue: A record does not fit.
    """
    graph, weights = Assembly(model), Weights(model)
    quantizers = quantizers_of(model, layers, records)
    reads = {(each.node, each.input): quantizer for quantizer in quantizers for each in quantizer.consumers}
    begun: dict[str, str] = {}
    # The node behind which a layer's sums are complete: itself, or the addition of its bias.
    ends = {
        layer.name if layer.bias is None else layer.bias.node: layer
        for layer in map(layers.get, records)
        if layer is not None
    }

    def read(node: Any, at: int) -> str:
        """What a node reads in the place of a quantized input."""
        quantizer = reads[node.name, at]
        if quantizer.kind != "activation":
            kind = form.weight_type if quantizer.kind == "weight" else form.bias_type
            codes = codes_of(weights[quantizer.tensor], quantizer.params, quantizer.spec)
            return graph.add_constant(codes.astype(kind), f"{quantizer.tensor}.codes")
        if quantizer.name not in begun:
            begun[quantizer.name] = form.begin(graph, quantizer, quantizer.tensor)
        numbers = begun[quantizer.name]
        return numbers if node.name in layers and node.name in records else form.back(graph, quantizer, numbers)

    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    for node in model.proto.graph.node:
        inputs = {at: read(node, at) for at in range(len(node.input)) if (node.name, at) in reads}
        copy = graph.copy_node(node)
        for at, name in inputs.items():
            copy.input[at] = name
        layer = ends.get(node.name)
        if layer is not None:
            copy.output[0] = sums = graph.free_tensor(f"{layer.name}.sums")
            record = records[layer.name]
            scale = np.asarray(np.float32(record.scale_d) * np.asarray(record.scale_w or (1.0,), np.float32))
            form.end(graph, layer, sums, scale=scale, shift=np.asarray(record.shift_bit, np.int64))
    drop_unused(graph.proto.graph)
    return Model(graph.proto, model.path, inside_bytes(graph.proto))


def packed_scales(scale: Array, shift: Array) -> Array:
    """Parameters of AscendDequant: float32 scale in bits 31 to 0, shift in 39 to 32, offset of weights above."""
    bits = scale.astype(np.float32).view(np.uint32).astype(np.uint64)
    shifts = np.broadcast_to(shift if shift.size else np.zeros(1, np.int64), scale.shape).astype(np.uint64)
    return np.asarray(bits | (shifts << np.uint64(32)))


class OwnOperators:
    """AscendQuant and AscendDequant, for the compiler; no runtime on a host knows them.

    Args:
        half_precision: Whether scales of sums are cut to half precision.
    """

    weight_type = "int8"
    bias_type = "int32"

    def __init__(self, *, half_precision: bool = False) -> None:
        self._half = half_precision

    def begin(self, graph: Assembly, quantizer: Quantizer, source: str) -> str:
        """Add AscendQuant, which holds one over the step."""
        target = graph.free_tensor(f"{quantizer.name}.codes")
        attributes = {
            "scale": float(np.float32(1.0) / quantizer.params.scale),
            "offset": float(quantizer.params.zero_point),
            "dst_type": f"INT{quantizer.spec.bits}",
        }
        graph.add_node("AscendQuant", [source], target, name=quantizer.name, attributes=attributes)
        return target

    def end(self, graph: Assembly, layer: AmctLayer, sums: str, *, scale: Array, shift: Array) -> None:
        """Add AscendDequant."""
        steps = short_mantissa(scale) if self._half else scale
        name = f"{layer.name}.dequant"
        parameter = graph.add_constant(packed_scales(steps.ravel(), shift), f"{name}.param")
        graph.add_node("AscendDequant", [sums, parameter], layer.output, name=name)

    def back(self, graph: Assembly, quantizer: Quantizer, numbers: str) -> str:
        """Add AscendAntiQuant."""
        name = f"{quantizer.name.removesuffix('.quant')}.anti_quant"
        target = graph.free_tensor(f"{name}.values")
        attributes = {"scale": float(quantizer.params.scale), "offset": float(-quantizer.params.zero_point)}
        graph.add_node("AscendAntiQuant", [numbers], target, name=name, attributes=attributes)
        return target


class PlainOperators:
    """Mul, Round, Add, Clip, Sub and Mul on whole numbers kept as floats: runs anywhere."""

    weight_type = "float32"
    bias_type = "float32"

    def begin(self, graph: Assembly, quantizer: Quantizer, source: str) -> str:
        """Add the chain; codes come out less their offset."""
        prefix = f"{quantizer.name}.fakequant"
        spec = quantizer.spec
        constants = {
            "scale": np.float32(1.0) / quantizer.params.scale,
            "offset": np.float32(quantizer.params.zero_point),
            "min_val": np.float32(spec.code_min),
            "max_val": np.float32(spec.code_max),
        }
        names = {key: graph.add_constant(np.asarray(value), f"{prefix}.{key}") for key, value in constants.items()}
        steps: list[tuple[str, list[str]]] = [
            ("Mul", [names["scale"]]), ("Round", []), ("Add", [names["offset"]]),
            ("Clip", [names["min_val"], names["max_val"]]), ("Sub", [names["offset"]]),
        ]  # fmt: skip
        current = source
        for op_type, operands in steps:
            name = f"{prefix}.{op_type.lower()}"
            target = graph.free_tensor(name)
            graph.add_node(op_type, [current, *operands], target, name=name)
            current = target
        return current

    def end(self, graph: Assembly, layer: AmctLayer, sums: str, *, scale: Array, shift: Array) -> None:
        """Add the multiplication with the steps of the sums; shifts belong to chips and are left out."""
        name = f"{layer.name}.fakedequant.mul"
        spatial = (1,) * (len(layer.weight_shape) - 2) if layer.can_be_channel_wise else ()
        shape = (-1, *spatial) if scale.size > 1 else ()
        constant = graph.add_constant(scale.astype(np.float32).reshape(shape), f"{name}.scale")
        graph.add_node("Mul", [sums, constant], layer.output, name=name)

    def back(self, graph: Assembly, quantizer: Quantizer, numbers: str) -> str:
        """Add the multiplication with the step."""
        name = f"{quantizer.name.removesuffix('.quant')}.fakeantiquant.mul"
        constant = graph.add_constant(np.asarray(quantizer.params.scale), f"{name}.scale")
        target = graph.free_tensor(name)
        graph.add_node("Mul", [numbers, constant], target, name=name)
        return target


# The quantization information file: which nodes were inserted, and which of the user's nodes each stands for.

_INSERTED = (".quant", ".dequant", ".anti_quant", ".weight_quant")
_ENTERS, _LEAVES = ("AscendQuant", "AscendAntiQuant", "Quant", "AntiQuant"), ("AscendDequant", "DeQuant")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a deploy model.

    Attributes:
        name: Its name.
        type: Its type.
        outputs: How many results it has.
        owner: The quantized layer that it is, or was inserted for; any other name when it is none.
    """

    name: str
    type: str
    outputs: int
    owner: str


def quantization_info(deployed: Model, layers: Mapping[str, AmctLayer]) -> dict[str, Any]:
    """What Ascend's comparer reads to tell which tensors of both models belong together.

    Args:
        deployed: The deploy model.
        layers: The layers of the float model that are quantized.
    """
    graph = deployed.proto.graph
    operations = (Operation(node.name, node.op_type, len(node.output), _owner(node.name)) for node in graph.node)
    return operations_info(graph.name, operations, {name: layer.originals for name, layer in layers.items()})


def _owner(name: str) -> str:
    return next((name.removesuffix(end) for end in _INSERTED if name.endswith(end)), name)


def operations_info(
    name: str, operations: Iterable[Operation], originals: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The same for operations of any framework.

    Args:
        name: Of the model.
        operations: Those of the deploy model, in order.
        originals: For each quantized layer the user's layers that it computes.
    """
    return {"name": name, "graph": [{"op": [_entry(each, originals.get(each.owner)) for each in operations]}]}


def _entry(operation: Operation, computed: Sequence[str] | None) -> dict[str, Any]:
    originals = [operation.name] if computed is None else list(computed)
    entry: dict[str, Any] = {
        "name": operation.name,
        "type": operation.type,
        "attr": [
            {
                "key": "_datadump_original_op_names",
                "value": {"list": {"s": originals, "val_type": "VT_LIST_STRING"}},
            }
        ],
    }
    stands_for_output = computed is not None and operation.type in _LEAVES
    if stands_for_output or (computed is None and operation.type not in _ENTERS):
        entry["output_desc"] = [_output(originals[-1], index) for index in range(operation.outputs)]
    return entry


def _output(name: str, index: int) -> dict[str, Any]:
    facts: dict[str, dict[str, Any]] = {
        "_datadump_origin_format": {"s": "NCHW"},
        "_datadump_data_type": {"s": "DT_FLOAT"},
        "_datadump_origin_output_index": {"i": index},
        "_datadump_origin_name": {"s": name},
    }
    return {"attr": [{"key": key, "value": value} for key, value in facts.items()]}


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
        raise WrongType(
            english("The path to save at is {save_path!r}, not a text.", save_path=save_path),
            fix=english("give folder/prefix"),
        )
    text = str(save_path)
    folder, prefix = (Path(text), "") if text.endswith(("/", "\\")) else (Path(text).parent, Path(text).name)
    if len(prefix) > _LONGEST_PREFIX:
        what = english("The prefix of {count} characters is too long for names of files.", count=len(prefix))
        raise WrongValue(what, fix=english("give at most {longest_prefix}", longest_prefix=_LONGEST_PREFIX))
    return ResultFiles(folder, prefix)


def make_folder(folder: Path) -> None:
    """Make a folder for results, readable by its owner and group.

    Raises:
        BadInput: It cannot be made.
    """
    with writing(folder, option="save_path"):
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


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
        AMCT_LOGGER.warning(
            english(
                "sums of {layer} are shifted on the chip, which the fake-quant model leaves out", layer=shifted[0]
            )
        )
    # What is wrong with a record is said before anything is replaced.
    quantizers_of(model, layers, records)
    if form not in FAKE_QUANT_FORMS:
        raise WrongValue(
            "There is no fake-quant model of the form {form!r}.", fix=english("choose qdq or chain"), form=form
        )
    with replacing(chosen(which, results.files[:1], results.files[1:]), model):
        if which != "Deploy":
            # Write the model that simulates; it runs in any onnxruntime.
            path = results.fake_quant
            if form == "qdq":
                save_model(fake_quant_model(model, quantizers_of(model, layers, records)), path, replace=True)
            else:
                chained = integer_model(model, layers, records, form=PlainOperators())
                save_model(DeferredModel(chained), path, replace=True)
        if which != "Fakequant":
            deployed = integer_model(model, layers, records, form=OwnOperators(half_precision=half_precision))
            save_model(deployed, results.deploy, replace=True)
            quantized = {name: layer for name, layer in layers.items() if name in records}
            write_json(results.info, quantization_info(deployed, quantized))


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
            AMCT_LOGGER.warning(english("{path} is replaced", path=path))
    yield
    for path in files:
        with contextlib.suppress(OSError):  # a file system without modes
            path.chmod(_FILE_MODE)
