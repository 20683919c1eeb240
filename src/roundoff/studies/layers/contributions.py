"""What each unit of a network contributes to the error at its outputs, as an estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roundoff.graph.insertion import Edges
from roundoff.graph.interface import topology
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import units
from roundoff.measure.light_pairs import ErrorTotals
from roundoff.run.bench import spread_over
from roundoff.run.layer_tensors import FUSED, LayerTensor
from roundoff.run.variants import written_quantizers
from roundoff.studies.layers.attribution import OwnError, output_shares, own_error
from roundoff.studies.layers.experiments import UnitParts
from roundoff.studies.layers.measuring import Measuring
from roundoff.studies.layers.tally import Tally
from roundoff.studies.layers.verdict import Contribution, forwarded_tensors

__all__ = ["ATTRIBUTION_SAMPLES", "find_contributions"]

ATTRIBUTION_SAMPLES = 4
"""What units add themselves is measured on so many samples, evenly spaced."""


def find_contributions(
    measuring: Measuring, tallies: Mapping[str, Tally], indices: Sequence[int]
) -> list[Contribution]:
    """Find out what units add themselves, and estimate what of it arrives at the outputs.

    Args:
        measuring: The network and the samples.
        tallies: What was measured of each tensor, accumulated among it.
        indices: The samples it was measured on.
    """
    quantized = measuring.quantized
    edges = Edges(quantized.float_model, quantized.quantizers)
    forwarded = forwarded_tensors(quantized, written_quantizers(quantized.float_model, edges))
    known = _Known(_weighted_nodes(quantized), UnitParts(quantized, forwarded))
    added = measuring.reference(("own", "coded"), spread_over(indices, ATTRIBUTION_SAMPLES), fused=False)
    own = {
        name: _with_integers(own_error(tally, has_weights=tally.tensor.unit in known.weighted), tallies.get(name))
        for name, tally in added.items()
        if name not in forwarded
    }
    inside = {tensor.name for tensor in measuring.tensors if tensor.quantized == FUSED}
    shares = output_shares(topology(quantized.float_model), own, _accumulated(tallies, added), inside=inside)
    return [
        known.contribution(tensor, own[tensor.name], shares.get(tensor.name, 0.0))
        for tensor in measuring.tensors
        if tensor.name in own and tensor.name not in inside and own[tensor.name].ratio
    ]


def _accumulated(tallies: Mapping[str, Tally], added: Mapping[str, Tally]) -> dict[str, ErrorTotals]:
    """The accumulated error of each tensor; that of the network's inputs is what their quantizers add."""
    found = {name: tally.variants["coded"].totals for name, tally in added.items() if name not in tallies}
    return found | {name: tally.variants["accumulated"].totals for name, tally in tallies.items()}


def _with_integers(own: OwnError, tally: Tally | None) -> OwnError:
    """Add what integer arithmetic costs beyond fake quantization, where it was measured and is the larger part."""
    if tally is None or "reference" not in tally.variants:
        return own
    integer, reference = (tally.variants[variant].totals for variant in ("local", "reference"))
    excess = integer.noise_ratio - reference.noise_ratio
    if not excess > own.ratio:
        return own
    ratio = own.ratio + excess
    return replace(own, ratio=ratio, loss=own.loss + excess, channel_ratio=ratio, cause="integer arithmetic")


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of all units: the first node with weights in each, and the quantizers of each."""

    weighted: Mapping[str, tuple[str, str]]
    parts: UnitParts

    def contribution(self, tensor: LayerTensor, own: OwnError, share: float) -> Contribution:
        writer = tensor.value.node, tensor.value.op_type
        return Contribution(
            writer=writer,
            weighted=self.weighted.get(tensor.unit, writer),
            tensor=tensor.name,
            own=own,
            share=share,
            levels=tensor.levels,
            parts=self.parts.of(tensor.name, tensor.unit),
        )


def _weighted_nodes(quantized: QuantizedModel) -> dict[str, tuple[str, str]]:
    """Name and operation of the first node with quantized weights in each unit that has one."""
    weighted = {
        consumer.node
        for quantizer in quantized.quantizers
        if quantizer.kind != "activation"
        for consumer in quantizer.consumers
    }
    unit_of = units(quantized.float_model, quantized.quantizers).unit_of
    found: dict[str, tuple[str, str]] = {}
    for node in quantized.float_model.proto.graph.node:
        if node.name in weighted:
            found.setdefault(unit_of.get(node.name, node.name), (node.name, node.op_type))
    return found
