"""roundoff finds where a quantized or deployed neural network loses accuracy, proves why, and repairs it.

The names below are the public API. Each is loaded when first used, so that ``import roundoff`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roundoff.align import align as pair_tensors
    from roundoff.align import read_aliases
    from roundoff.analysis.compare import CompareSettings, compare
    from roundoff.core.comparison import Comparison
    from roundoff.core.measure import measure_pair
    from roundoff.core.tensors import InputSpec, TensorInfo, TensorSource
    from roundoff.data import ImageOptions, SampleOptions, open_samples
    from roundoff.errors import RoundoffError
    from roundoff.formats import open_source
    from roundoff.graph.interface import inputs, topology
    from roundoff.graph.load import load_model
    from roundoff.metrics import all_metrics, score
    from roundoff.metrics.thresholds import load_profile, parse_thresholds
    from roundoff.report.documents import load_document
    from roundoff.runtime.capture import LiveSource

__version__ = "0.1.0"

__all__ = [
    "CompareSettings",
    "Comparison",
    "ImageOptions",
    "InputSpec",
    "LiveSource",
    "RoundoffError",
    "SampleOptions",
    "TensorInfo",
    "TensorSource",
    "all_metrics",
    "compare",
    "inputs",
    "load_document",
    "load_model",
    "load_profile",
    "measure_pair",
    "open_samples",
    "open_source",
    "pair_tensors",
    "parse_thresholds",
    "read_aliases",
    "score",
    "topology",
]

_HOMES = {
    "CompareSettings": "analysis.compare",
    "Comparison": "core.comparison",
    "ImageOptions": "data",
    "InputSpec": "core.tensors",
    "LiveSource": "runtime.capture",
    "RoundoffError": "errors",
    "SampleOptions": "data",
    "TensorInfo": "core.tensors",
    "TensorSource": "core.tensors",
    "all_metrics": "metrics",
    "compare": "analysis.compare",
    "inputs": "graph.interface",
    "load_document": "report.documents",
    "load_model": "graph.load",
    "load_profile": "metrics.thresholds",
    "measure_pair": "core.measure",
    "open_samples": "data",
    "open_source": "formats",
    "pair_tensors": "align",
    "parse_thresholds": "metrics.thresholds",
    "read_aliases": "align",
    "score": "metrics",
    "topology": "graph.interface",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'roundoff' has no attribute {name!r}")
    # The package `roundoff.align` would hide a function of that name here.
    there = "align" if name == "pair_tensors" else name
    return getattr(importlib.import_module(f"roundoff.{_HOMES[name]}"), there)
