"""What layers compute on the first sample, as files: float values, codes, and ONNX test data."""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.document import json_text
from roundoff.core.files import write_bytes, write_text
from roundoff.core.names import FileNames, shown
from roundoff.core.plan import FLOAT, QuantPlan
from roundoff.core.quantizers import Quantizer, dequantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.insertion import Edges, fake_quant_model
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import LARGEST_MESSAGE_BYTES, fill, pending_bytes, save_model
from roundoff.graph.shapes import values
from roundoff.graph.subgraph import tap
from roundoff.run.bench import Bench
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.session import open_session
from roundoff.run.variants import Copies, LayerTensor, Variant, build_copies, layer_tensors, written_quantizers
from roundoff.vendors.pulsar2.config.checks import ResolvedConfig
from roundoff.vendors.pulsar2.config.document import to_document
from roundoff.vendors.pulsar2.config.schema import BuildConfig, PrecisionAnalysisMethod, PrecisionAnalysisMode
from roundoff.vendors.pulsar2.deployed import deployed_model
from roundoff.vendors.pulsar2.frontend import Frontend
from roundoff.vendors.pulsar2.layer_configs import ResolvedLayers, resolution_json
from roundoff.vendors.pulsar2.recipe import Analysis
from roundoff.vendors.pulsar2.tables import PrecisionRow, figure, precision_table

_POLICIES = (
    "PER_TENSOR", "PER_CHANNEL", "LINEAR", "EXPONENTIAL", "SYMMETRICAL", "ASYMMETRICAL", "POWER_OF_2",
)  # fmt: skip
_CONSTANT_STATES = {"weight": "BAKED", "bias": "PASSIVE_BAKED"}


@dataclass(frozen=True, slots=True, eq=False)
class _AxmodelPlace:
    """A tensor at an operation, and the quantizer there; none where it is in float, or no value at all."""

    operation: str
    tensor: str
    quantizer: Quantizer | None
    is_value: bool


def axmodel_document(
    quantized: QuantizedModel, frontend: Frontend, resolved: ResolvedLayers, config: BuildConfig
) -> dict[str, Any]:
    """The content of quant_axmodel.json.

    Args:
        quantized: The quantized model.
        frontend: The graph, with the user's names.
        resolved: What became of layer_configs.
        config: The configuration.
    """
    places = list(_places(quantized, frontend))
    hashes = _hashes(places)
    masters = _masters(places, _groups(resolved.plan))
    tensor_configs: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    for place in places:
        own = hashes[place]
        master = masters.get(place, place)
        tensor_configs.setdefault(place.operation, {})[place.tensor] = {
            **_description(place),
            "state": _state(place, master),
            "hash": own,
            "dominator": hashes[master],
        }
        if place.quantizer is not None and master is place:
            params = place.quantizer.params
            values[str(own)] = {
                "scale": [float(value) for value in np.atleast_1d(params.scale)],
                "zero_point": [int(value) for value in np.atleast_1d(params.zero_point)],
            }
    return {
        "tensor_configs": tensor_configs,
        "values": values,
        "dispatchings": dict(_dispatchings(resolved.plan, config)),
        "quant_config": {
            **to_document(config.quant, full=True),
            "mix_precision_configs": resolution_json(resolved.entries),
        },
    }


def state_counts(document: Mapping[str, Any]) -> dict[str, int]:
    """How many tensors at operations have each state, in the order they are met."""
    counts: dict[str, int] = {}
    for tensors in document["tensor_configs"].values():
        for each in tensors.values():
            counts[each["state"]] = counts.get(each["state"], 0) + 1
    return counts


def _places(quantized: QuantizedModel, frontend: Frontend) -> Iterator[_AxmodelPlace]:
    model = quantized.float_model
    edges = Edges(model, quantized.quantizers)
    written = written_quantizers(model, edges)
    view = frontend.view
    for node in model.proto.graph.node:
        if node.op_type == "Constant":
            continue
        name = frontend.names.original(node.name)
        for position, tensor in enumerate(node.input):
            if tensor:
                yield _AxmodelPlace(name, tensor, edges.read_by(node.name, position), view.is_float(tensor))
        for tensor in filter(None, node.output):
            yield _AxmodelPlace(name, tensor, written.get(tensor), view.is_float(tensor))


def _hashes(places: Sequence[_AxmodelPlace]) -> dict[_AxmodelPlace, int]:
    """A number for each place, the same in every run."""
    taken: set[int] = set()
    found = {}
    for place in places:
        number = zlib.crc32(f"{place.operation}\0{place.tensor}".encode("utf-8", "surrogatepass"))
        while number in taken:
            number = (number + 1) & 0xFFFFFFFF
        taken.add(number)
        found[place] = number
    return found


def _groups(plan: QuantPlan) -> dict[str, str]:
    """Quantizers that share a scale with others, each with the name of what they share."""
    return {each.name: each.group for each in plan.quantizers if each.group}


def _masters(places: Sequence[_AxmodelPlace], groups: Mapping[str, str]) -> dict[_AxmodelPlace, _AxmodelPlace]:
    """For each place the first with the same scale, from which it has it."""
    first: dict[str, _AxmodelPlace] = {}
    found = {}
    for place in places:
        if place.quantizer is not None:
            name = place.quantizer.name
            # A copy that is quantized again for some readers has the scale of its group, but codes of its own.
            key = f"group {groups[name]} {place.quantizer.spec.dtype}" if name in groups else name
            found[place] = first.setdefault(key, place)
    return found


def _description(place: _AxmodelPlace) -> dict[str, Any]:
    if place.quantizer is None:
        policy = dict.fromkeys(_POLICIES, False)
        return {"bit_width": 32, "policy": policy, "quant_min": None, "quant_max": None}
    spec = place.quantizer.spec
    flags = {
        "PER_TENSOR": spec.axis is None,
        "PER_CHANNEL": spec.axis is not None,
        "LINEAR": True,
        "SYMMETRICAL": spec.symmetric,
        "ASYMMETRICAL": not spec.symmetric,
        "POWER_OF_2": spec.power_of_two,
    }
    return {
        "bit_width": spec.bits,
        "policy": {name: flags.get(name, False) for name in _POLICIES},
        "quant_min": spec.code_min,
        "quant_max": spec.code_max,
    }


def _state(place: _AxmodelPlace, master: _AxmodelPlace) -> str:
    if place.quantizer is None:
        return "FP32" if place.is_value else "SOI"
    constant = _CONSTANT_STATES.get(place.quantizer.kind)
    return constant or ("ACTIVATED" if master is place else "OVERLAPPED")


def _dispatchings(plan: QuantPlan, config: BuildConfig) -> Iterator[tuple[str, str]]:
    for node in plan.nodes:
        bits = {int(each[1:]) for each in node.seen.activation.split("/") if each not in ("", FLOAT)}
        chip = f"AX_NPU_{config.target_hardware.name}"
        yield node.node, "FP32" if node.in_float or not bits else f"{chip}_INT{max(bits)}"


# The two snapshots at the end of a quantization: of the network and of its quantizations.

_LABEL = 30


def snapshot(quantized: QuantizedModel, plan: QuantPlan, document: Mapping[str, Any]) -> str:
    """The figures as the vendor lays them out.

    Args:
        quantized: The quantized model.
        plan: What every node became.
        document: The content of quant_axmodel.json.
    """
    graph = quantized.float_model.proto.graph
    tensors = {name for node in graph.node for name in (*node.input, *node.output) if name}
    coded = {each.tensor for each in quantized.quantizers}
    states = state_counts(document)
    integer = sum(node.seen.arithmetic == "integer" for node in plan.nodes) if quantized.quantizers else 0
    network = {
        "Num of Op": len(plan.nodes),
        "Num of Quantized Op": integer,
        "Num of Variable": len(tensors),
        "Num of Quantized Var": len(coded),
    }
    quantization = {"Num of Quant Config": sum(states.values()), **states}
    lines = ["--------- Network Snapshot ---------", *_figures(network)]
    lines += ["------- Quantization Snapshot ------", *_figures(quantization)]
    return "\n".join(lines)


def _figures(counts: Mapping[str, int]) -> list[str]:
    return [f"{f'{name}:':<{_LABEL}}[{count}]" for name, count in counts.items()]


# Float values of as many tensors as this are computed at a time.
_MOST_BYTES = 1 << 29
_NAMES = "names.json"


@dataclass(frozen=True, slots=True, eq=False)
class Dumping:
    """What is written.

    Attributes:
        quantized: The quantized model.
        samples: The first of them is run.
        end_to_end: Whether the quantized model runs through; otherwise each layer is fed with float tensors.
        arithmetic: How integers compute; None for fake quantization.
        tensors: The tensors that have files of their own, besides inputs and outputs.
    """

    quantized: QuantizedModel
    samples: Samples
    end_to_end: bool
    arithmetic: Arithmetic | None
    tensors: frozenset[str]

    def write(self, folder: Path) -> None:
        """Fill ``numpy/float``, ``numpy/xrun``, ``io/float`` and ``io/quant``.

        Codes are written as they are; outputs of the network as values. ``names.json`` says which file is which.
        """
        model = self.quantized.float_model
        feed = read_feed(model, self.samples, 0)
        inferred = values(model, {name: array.shape for name, array in feed.items()})
        known = complete_values(model, inferred, feed)
        tensors = layer_tensors(self.quantized, known)
        wanted = [
            each
            for each in tensors
            if each.value.node and not each.value.obstacle() and (each.output or each.name in self.tensors)
        ]
        names = FileNames()
        # In the order of the network, so that stems do not depend on what is written first.
        stems = {each.name: names.stem(each.name) for each in tensors}
        for name, array in feed.items():
            for side in ("float", "quant"):
                _save(folder / "io" / side / f"{stems[name]}.npy", array)
        for each, ours, theirs in self._runs(feed, wanted):
            stem = f"{stems[each.name]}.npy"
            _save(folder / "numpy" / "float" / stem, ours)
            _save(folder / "numpy" / "xrun" / stem, theirs)
            if each.output:
                _save(folder / "io" / "float" / stem, ours)
                _save(folder / "io" / "quant" / stem, theirs)
        written = {f"{stems[each.name]}.npy": each.name for each in wanted}
        write_text(folder / "numpy" / _NAMES, json_text(written))

    def _runs(
        self, feed: Mapping[str, Array], wanted: Sequence[LayerTensor]
    ) -> Iterator[tuple[LayerTensor, Array, Array]]:
        """Each tensor with its float values and what the quantized model has."""
        variant: Variant = "accumulated" if self.end_to_end else "local"
        copies = build_copies(self.quantized, [variant])
        integers = self._integers(feed, [each.name for each in wanted])
        bench = Bench(self.quantized.float_model, self.samples)
        for some in _portions(wanted):
            network = bench.open_copies(copies, [each.value for each in some])
            run = network.run(feed, sample=self.samples.names[0])
            for each in some:
                theirs = integers[each.name] if integers is not None else _reference(copies, variant, each, run)
                yield each, run[each.name], _as_value(each, theirs)

    def _integers(self, feed: Mapping[str, Array], names: Sequence[str]) -> Mapping[str, Array] | None:
        if self.arithmetic is None:
            return None
        model = self.quantized.float_model
        runner = IntegerRunner(model, self.quantized.quantizers, self.arithmetic)
        if self.end_to_end:
            run = runner.run(feed, names, sample=self.samples.names[0])
        else:
            floats = dict(feed)
            computed = [name for node in model.proto.graph.node for name in node.output if name]
            session = open_session(model, outputs=tap(model, computed))
            floats.update(zip(computed, session.run(feed), strict=True))
            run = runner.run_local(floats, names)
        return {**run.values, **run.codes}


def _portions(tensors: Sequence[LayerTensor]) -> Iterator[list[LayerTensor]]:
    some: list[LayerTensor] = []
    size = 0
    for each in tensors:
        needed = 4 * math.prod(each.value.shape or ())
        if some and size + needed > _MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += needed
    if some:
        yield some


def _reference(copies: Copies[Variant], variant: Variant, tensor: LayerTensor, run: Mapping[str, Array]) -> Array:
    return run[copies.taps[tensor.name][variant].name]


def _as_value(tensor: LayerTensor, array: Array) -> Array:
    """Codes of an output of the network as the values that leave it."""
    coded = np.issubdtype(array.dtype, np.integer) and tensor.quantizer is not None
    if not coded or not tensor.output or tensor.quantizer is None:
        return array
    return dequantize(array, tensor.quantizer.params, tensor.axis).astype(np.float32)


def _save(path: Path, array: Array) -> None:
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def write_test_data(folder: Path, feed: Mapping[str, Array], results: Mapping[str, Array]) -> None:
    """Write inputs and float outputs as ONNX test data: ``input_0.pb`` ... and ``output_0.pb`` ..."""
    from onnx.numpy_helper import from_array

    for kind, arrays in (("input", feed), ("output", results)):
        for place, (name, array) in enumerate(arrays.items()):
            content = from_array(np.ascontiguousarray(array), name).SerializeToString()
            write_bytes(folder / f"{kind}_{place}.pb", content)


# The precision analysis as a Mermaid flow chart: tensors are nodes, layers are edges.

# The vendor publishes the first colour alone; the limits are its two thresholds and one between.
_COLOURS = (
    (0.999, "good", "#2efe08"),
    (0.99, "fair", "#c8fe08"),
    (0.98, "poor", "#fe9a08"),
    (-2.0, "bad", "#fe2e08"),
)


def mermaid_chart(analysis: Analysis, frontend: Frontend) -> str:
    """The text of a .mmd file.

    Args:
        analysis: What was measured.
        frontend: The graph.
    """
    return "\n".join(_lines(analysis, frontend)) + "\n"


def _lines(analysis: Analysis, frontend: Frontend) -> Iterator[str]:
    scored = {row.tensor: row for row in analysis.rows}
    inner = frozenset(name for unit in frontend.units for name in unit.inner)
    edges = list(_edges(frontend, inner))
    names = list(dict.fromkeys(name for start, end, _ in edges for name in (start, end)))
    numbers = {name: place for place, name in enumerate(names)}
    yield "flowchart TD"
    yield f'    legend["<u>{analysis.method.name} {analysis.mode.name}</u>"]'
    for name in names:
        row = scored.get(name)
        colour = "" if row is None or row.cosine is None else f":::{_class(row.cosine)}"
        yield f'    t{numbers[name]}["{_quoted(_label(name, row))}"]{colour}'
    for start, end, label in edges:
        yield f'    t{numbers[start]} -->|"{_quoted(label)}"| t{numbers[end]}'
    used = {_class(row.cosine) for row in analysis.rows if row.cosine is not None and row.tensor in numbers}
    for _, name, colour in _COLOURS:
        if name in used:
            yield f"    classDef {name} fill:{colour}"


def _edges(frontend: Frontend, inner: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """From what each layer reads to what it writes."""
    for unit in frontend.units:
        if not any(frontend.view.computes_values(node) for node in unit.nodes):
            continue
        label = f"{frontend.type_of(unit)},{frontend.names.original(unit.first.name)}"
        read = dict.fromkeys(
            name
            for node in unit.nodes
            for _, name in frontend.view.operands(node)
            if name not in inner and not frontend.view.is_constant(name)
        )
        for start in read:
            for end in frontend.view.results(unit.last):
                yield start, end, label


def _label(name: str, row: PrecisionRow | None) -> str:
    if row is None:
        return f"{name},None->None,None,None"
    shape = f"({', '.join(map(str, row.shape))})"
    return ",".join((name, shape, f"{row.dtype}->{row.qdtype}", figure(row.cosine), figure(row.mse)))


def _class(cosine: float) -> str:
    return next(name for limit, name, _ in _COLOURS if cosine >= limit)


def _quoted(text: str) -> str:
    """A text between quotes: what Mermaid would read as markup is spelled as entities."""
    marks: Sequence[tuple[str, str]] = (
        ("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " "), ("\r", " "), ("`", "#96;"),
    )  # fmt: skip
    text = text.replace("->", "\0")
    for mark, entity in marks:
        text = text.replace(mark, entity)
    return text.replace("\0", "->")


# The folder that a build leaves behind, laid out as the vendor's.

CONTEXT = "build_context.json"
"""The record of a build, by which its folder is known."""

OPTIMIZED, OPTIMIZED_QUANTIZED = "frontend/optimized.onnx", "frontend/optimized_quant_axmodel.onnx"
AXMODEL, AXMODEL_JSON = "quant/quant_axmodel.onnx", "quant/quant_axmodel.json"
DEPLOYED = "quant/deployed_axmodel.onnx"
DATASET, DEBUG, TEST_DATA = "quant/dataset", "quant/debug", "quant/debug/test_data_set_0"
TABLE, CHART = "quant/debug/precision_analysis_table.txt", "quant/debug/precision_analysis.mmd"


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that is being filled.

    Attributes:
        folder: Where files are written now.
        name: What the user calls the folder.
    """

    folder: Path
    name: str

    def shown(self, path: str) -> str:
        """A path in it, as the user will find it."""
        return f"{self.name}/{path}"

    def named(self, path: Path) -> str:
        """Any path, as the user will find it."""
        inside = path.is_relative_to(self.folder)
        return self.shown(path.relative_to(self.folder).as_posix()) if inside else shown(path)

    def write_quantized(self, quantized: QuantizedModel, document: dict[str, Any], *, frontend_too: bool) -> None:
        """Write the quantized model and all its scales."""
        model = fake_quant_model(quantized.float_model, quantized.quantizers)
        save_model(model, self.folder / AXMODEL)
        if frontend_too:
            again = fake_quant_model(quantized.float_model, quantized.quantizers)
            save_model(again, self.folder / OPTIMIZED_QUANTIZED)
        write_text(self.folder / AXMODEL_JSON, json_text(document))

    def write_deployed(self, quantized: QuantizedModel, settled: ResolvedConfig) -> tuple[str, ...]:
        """Write the quantized model with the processing of its inputs and outputs; says what was put in.

        Where there is none, or the model is too large to be changed in memory, nothing is written.
        """
        deferred = fake_quant_model(quantized.float_model, quantized.quantizers)
        if pending_bytes(deferred) > LARGEST_MESSAGE_BYTES:
            return ("the model is too large to put the processing of inputs and outputs into it",)
        plain = fill(deferred)
        model, notes = deployed_model(plain, settled)
        if model is not plain:
            save_model(model, self.folder / DEPLOYED)
        return notes

    def write_test_data(self, quantized: QuantizedModel, samples: Samples) -> None:
        """Write the first sample and what the float model makes of it."""
        model = quantized.float_model
        feed, names = read_feed(model, samples, 0), outputs(model)
        found = open_session(model, outputs=tap(model, names)).run(feed, sample=samples.names[0])
        arrays = {name: array for name, array in zip(names, found, strict=True) if hasattr(array, "dtype")}
        write_test_data(self.folder / TEST_DATA, feed, arrays)

    def write_analysis(
        self,
        analysis: Analysis,
        frontend: Frontend,
        *,
        quantized: QuantizedModel,
        samples: Samples,
        arithmetic: Arithmetic,
    ) -> None:
        """Write the table in full width, the chart, and what was compared."""
        method, mode = analysis.method.name, analysis.mode.name
        write_text(self.folder / TABLE, precision_table(analysis.rows, method=method, mode=mode) + "\n")
        write_text(self.folder / CHART, mermaid_chart(analysis, frontend))
        Dumping(
            quantized,
            samples,
            end_to_end=analysis.method is PrecisionAnalysisMethod.EndToEnd,
            arithmetic=arithmetic if analysis.mode is PrecisionAnalysisMode.NPUBackend else None,
            tensors=frozenset(row.tensor for row in analysis.rows),
        ).write(self.folder / DEBUG)
