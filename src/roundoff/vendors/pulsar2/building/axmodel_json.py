"""quant_axmodel.json: every quantization of every tensor at every operation, laid out as the vendor does."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT, QuantPlan
from roundoff.core.quantizers import Quantizer
from roundoff.graph.insertion import Edges
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.variants import written_quantizers
from roundoff.vendors.pulsar2.config.decoding import to_document
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.layer_configs import Frontend, ResolvedLayers, resolution_json

__all__ = [
    "axmodel_document",
    "snapshot",
    "state_counts",
]


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
