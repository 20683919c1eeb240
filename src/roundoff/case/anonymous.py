"""Names that tell nothing: nodes, tensors and quantizers become numbers, the same in all parts of a case."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from roundoff.case.minimal import Reproducer, ReproducerSample
from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.anonymous import Anonymous, anonymized

__all__ = ["anonymous_quantizers", "without_names"]


def without_names(found: Reproducer) -> Reproducer:
    """The same reproducer with other names.

    Raises:
        BadInput: Its operations are someone's own, and their names would tell.
    """
    quantized = None if found.quantized_model is None else anonymized(found.quantized_model)
    plain = anonymized(found.float_model, like=quantized)
    return replace(
        found,
        nodes=tuple((plain.nodes[name], kind) for name, kind in found.nodes),
        float_model=plain.model,
        quantized_model=None if quantized is None else quantized.model,
        samples=tuple(
            ReproducerSample(
                f"sample {number}",
                _keyed(sample.inputs, plain.tensors),
                _keyed(sample.expected, plain.tensors),
                _keyed(sample.observed, plain.tensors),
            )
            for number, sample in enumerate(found.samples)
        ),
        spot=replace(found.spot, tensor=plain.tensors[found.spot.tensor]),
    )


def anonymous_quantizers(quantizers: Sequence[Quantizer], names: Anonymous) -> list[Quantizer]:
    """The same quantizers for the same model under other names; codes belong to its weights, and are left out.

    Args:
        quantizers: The originals.
        names: The model, and what everything in it was called.
    """
    chain = {each.name: f"q_{place}" for place, each in enumerate(quantizers)}
    return [
        replace(
            each,
            name=chain[each.name],
            tensor=names.tensors[each.tensor],
            consumers=tuple(Consumer(names.nodes[edge.node], edge.input) for edge in each.consumers),
            after=chain.get(each.after, ""),
            codes=None,
        )
        for each in quantizers
    ]


def _keyed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    return {names[name]: array for name, array in arrays.items()}
