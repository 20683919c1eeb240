"""build_context.json: what was built, from what, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from roundoff import __version__
from roundoff.graph.load import Model
from roundoff.graph.node_costs import node_products
from roundoff.graph.shapes import values
from roundoff.runtime.feeds import Samples
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed
from roundoff.vendors.pulsar2.building.precision import Analysis
from roundoff.vendors.pulsar2.building.quantizing import Outcome
from roundoff.vendors.pulsar2.config.applicability import not_applicable
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.writing import to_document
from roundoff.vendors.pulsar2.layers.table import resolution_json

__all__ = ["context_document", "count_macs"]


def count_macs(model: Model, samples: Samples) -> int:
    """Products that the model computes for one sample."""
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    shapes = {
        value.name: value.shape for value in complete_values(model, inferred, feed) if value.shape is not None
    }
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.proto.graph.initializer}
    return sum(node_products(node, shapes) for node in model.proto.graph.node)


def context_document(
    config: BuildConfig,
    outcome: Outcome,
    analysis: Analysis | None,
    *,
    macs: int,
    record: Mapping[str, Any],
    log: Sequence[str],
) -> dict[str, Any]:
    """The content of build_context.json.

    Args:
        config: The configuration with everything that the command line changed.
        outcome: The quantized model.
        analysis: Its precision, where that was measured.
        macs: Products that the model computes for one sample.
        record: More of it: the command, the files that were read, versions.
        log: What was said.
    """
    found: dict[str, Any] = {
        "roundoff": __version__,
        **record,
        "config": to_document(config, full=True),
        "not_applicable": [asdict(each) for each in not_applicable(config)],
        "macs": macs,
        "layer_configs": resolution_json(outcome.resolved.entries),
        "notes": list(outcome.notes),
        "log": list(log),
    }
    if outcome.same_as_minmax is not None:
        same, total = outcome.same_as_minmax
        found["scales_of_minmax"] = {"same": same, "activations": total}
    if analysis is not None:
        found["precision_analysis"] = {
            "method": analysis.method.name,
            "mode": analysis.mode.name,
            "samples": list(analysis.samples),
            "output_cosine": analysis.output_cosine,
            "rows": [asdict(row) for row in analysis.rows],
            "modes_disagree": [asdict(each) for each in analysis.findings],
            "overflows": list(analysis.overflows),
            "in_float": list(analysis.in_float),
        }
    return found
