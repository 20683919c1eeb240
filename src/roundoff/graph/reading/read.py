"""From the file of a quantized model to a float model and its quantizers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roundoff.graph.load import Model
from roundoff.graph.quantized_model import Oddity, OddityKind, QuantizedModel
from roundoff.graph.reading.activations import restore_activations
from roundoff.graph.reading.arity import check_arity
from roundoff.graph.reading.ascend import rewrite_ascend
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.dynamic import rewrite_integer_products
from roundoff.graph.reading.extraction import Extraction
from roundoff.graph.reading.fake_nodes import rewrite_fake_nodes
from roundoff.graph.reading.nested import inlined, inside_subgraphs
from roundoff.graph.reading.onto_float import onto_float_model
from roundoff.graph.reading.qoperator import rewrite_qoperators
from roundoff.graph.reading.twin import quantizers_of, twin_of

__all__ = ["read_quantized"]

_LISTED = 5
_SAID: dict[OddityKind, str] = {
    "disagreement": "not dequantized as quantized, or not the weights of the float model",
    "not_represented": "could not be read as quantizers, and stays as it is",
    "dynamic": "has scales that are computed while the model runs, and is float here",
    "interface": "integers in the file, values here",
    "restored": "an activation that the limits of the codes had replaced was put back behind",
}
_DIALECTS = (rewrite_fake_nodes, rewrite_ascend, rewrite_qoperators, rewrite_integer_products)


def read_quantized(model: Model, *, float_model: Model | None = None) -> QuantizedModel:
    """Read a quantized model, whichever tool made it.

    QuantizeLinear and DequantizeLinear in all their arrangements, onnxruntime's operators on codes (QLinearConv,
    QGemm ...) and on codes of dynamic scale, HzCalibration nodes, AMCT's models, OpenVINO's FakeQuantize and
    QONNX's Quant become quantizers. What cannot be said by quantizers stays a node, and is reported. Subgraphs (of
    If, Loop, Scan) stay as they are.

    Args:
        model: The quantized model.
        float_model: The float model it was made from; quantizers are then moved onto its tensors and nodes, and
            keep the codes of weights where rounding gives others. Without it the float model is what remains when
            the quantizers are taken out, its weights being the values of their codes.

    Raises:
        BadInput: The model is of a kind that cannot be read, or the float model is not the one it was made from.
    """
    check_arity(model)
    draft = Draft(inlined(model))
    draft.oddities += inside_subgraphs(draft.model)
    for rewrite in _DIALECTS:
        rewrite(draft)
    extraction = Extraction(draft)
    extraction.run()
    restore_activations(extraction)
    if float_model is not None:
        found = onto_float_model(extraction, float_model)
    else:
        twin = twin_of(extraction)
        found = QuantizedModel(twin, quantizers_of(extraction, twin))
    own = [oddity for oddity in draft.oddities if float_model is None or oddity.kind != "restored"]
    oddities = (*own, *found.oddities)
    return replace(found, notes=tuple(_notes(oddities)), oddities=oddities)


def _notes(oddities: Sequence[Oddity]) -> Iterator[str]:
    """All oddities of one kind in a sentence."""
    for kind, text in _SAID.items():
        names = list(dict.fromkeys(oddity.node for oddity in oddities if oddity.kind == kind))
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            yield f"{text}: {', '.join(names[:_LISTED])}{more}"
