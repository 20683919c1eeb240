"""The places of the curves: what quantized nodes compute, and what leaves the network."""

from collections.abc import Mapping, Sequence

from roundoff.analysis.switches import Switches
from roundoff.core.accumulation import CurveNode
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value, values
from roundoff.graph.units import derived_constants
from roundoff.runtime.measure import complete_values

__all__ = ["Place", "find_places"]

Place = tuple[CurveNode, Value]


def find_places(
    quantized: QuantizedModel, feed: Mapping[str, Array], *, threads: int | None = None
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """Find out where curves are measured: at each quantized node, and at the outputs.

    Args:
        quantized: The network.
        feed: A sample.
        threads: Threads to use.

    Returns:
        The places in execution order, and what the reader should know.

    Raises:
        BadInput: There is none.
    """
    model = quantized.float_model
    shapes = {name: array.shape for name, array in feed.items()}
    everything = complete_values(model, values(model, shapes), feed, threads=threads)
    leaving, constant = frozenset(outputs(model)), derived_constants(model.proto.graph)
    nodes = frozenset(Switches(quantized).nodes)
    wanted = [
        value
        for value in everything
        if value.node and value.name not in constant and (value.node in nodes or value.name in leaving)
    ]
    readable = [value for value in wanted if not value.obstacle() and (_is_float(value) or value.name in leaving)]
    if not readable:
        what = f"Nothing in {model.path} that quantized nodes compute can be compared."
        raise BadInput(what, fix="check with 'roundoff audit' what is quantized")
    places = tuple(
        (CurveNode(order, value.node, value.op_type, value.name, value.name in leaving), value)
        for order, value in enumerate(readable)
    )
    return places, _notes([value for value in wanted if value.obstacle()])


def _is_float(value: Value) -> bool:
    return value.element is None or "float" in value.element.dtype


def _notes(unreadable: Sequence[Value]) -> tuple[str, ...]:
    return tuple(f"{value.name} is not on the curves: {value.obstacle()}" for value in unreadable)
