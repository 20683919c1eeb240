"""roundoff finds where a quantized or deployed neural network loses accuracy, proves why, and repairs it.

The names below are the public API: a function for each command, what they give, the errors they raise, and the
parts they are made of. Each is loaded when first used, so that ``import roundoff`` costs nothing.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# onnxruntime reads it when it is loaded. Nothing of a model or its data leaves the machine (SECURITY.md), whatever
# the environment says; processes that are started from here inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

if TYPE_CHECKING:
    from roundoff.align.alignment import align as pair_tensors
    from roundoff.align.names import read_aliases
    from roundoff.api.checks import check_calibration, check_io, self_check
    from roundoff.api.comparison import compare
    from roundoff.api.diagnosis import diagnose
    from roundoff.api.mcp import mcp
    from roundoff.api.outcome import Outcome
    from roundoff.api.project import init, load_project
    from roundoff.api.quantization import audit, export_settings, quantize, targets, transform
    from roundoff.api.runs import bundle, diff, explain, gate, report, reproduce, serve
    from roundoff.api.search import tune
    from roundoff.api.studies import (
        accumulate,
        channels,
        distribution,
        layers,
        outliers,
        partial,
        samples,
        sensitivity,
    )
    from roundoff.api.tensors import convert, dump
    from roundoff.core.document import load_document
    from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec
    from roundoff.core.tensors import InputSpec, TensorInfo, TensorSource
    from roundoff.errors import BadInput, CannotAlign, MissingExtra, ModelFailed, RoundoffError
    from roundoff.graph.caffe.conversion import register_layer
    from roundoff.graph.caffe.convert import import_caffe
    from roundoff.graph.insertion import bake_quantizers, insert_quantizers
    from roundoff.graph.interface import inputs, topology
    from roundoff.graph.load import load_model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.graph.save import save_model
    from roundoff.measure.metrics import all_metrics, score
    from roundoff.measure.pairs import measure_pair
    from roundoff.measure.verdicts import load_profile, parse_thresholds
    from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
    from roundoff.quantize.planning.rules import parse_rule
    from roundoff.quantize.targets.files import load_target, target_names
    from roundoff.run.capture import LiveSource
    from roundoff.run.integer.machine import IntegerRunner
    from roundoff.samples.options import ImageOptions, SampleOptions
    from roundoff.samples.sample_set import ArraySamples, open_samples
    from roundoff.studies.compare.result import Comparison
    from roundoff.studies.compare.study import CompareSettings
    from roundoff.studies.layers.study import LayerSettings, analyze_layers
    from roundoff.tensors import open_source

__version__ = "0.1.0"

__all__ = [
    "ArraySamples",
    "BadInput",
    "CannotAlign",
    "CompareSettings",
    "Comparison",
    "ImageOptions",
    "InputSpec",
    "IntegerRunner",
    "LayerSettings",
    "LiveSource",
    "MissingExtra",
    "ModelFailed",
    "Outcome",
    "QuantParams",
    "QuantSpec",
    "QuantizeSettings",
    "QuantizedModel",
    "Quantizer",
    "RoundoffError",
    "SampleOptions",
    "TensorInfo",
    "TensorSource",
    "accumulate",
    "all_metrics",
    "analyze_layers",
    "audit",
    "bake_quantizers",
    "bundle",
    "channels",
    "check_calibration",
    "check_io",
    "compare",
    "convert",
    "diagnose",
    "diff",
    "distribution",
    "dump",
    "explain",
    "export_settings",
    "gate",
    "import_caffe",
    "init",
    "inputs",
    "insert_quantizers",
    "layers",
    "load_document",
    "load_model",
    "load_profile",
    "load_project",
    "load_target",
    "mcp",
    "measure_pair",
    "open_samples",
    "open_source",
    "outliers",
    "pair_tensors",
    "parse_rule",
    "parse_thresholds",
    "partial",
    "quantize",
    "quantize_model",
    "read_aliases",
    "read_quantized",
    "register_layer",
    "report",
    "reproduce",
    "samples",
    "save_model",
    "score",
    "self_check",
    "sensitivity",
    "serve",
    "target_names",
    "targets",
    "topology",
    "transform",
    "tune",
]

_HOMES = {
    "ArraySamples": "samples.sample_set",
    "BadInput": "errors",
    "CannotAlign": "errors",
    "CompareSettings": "studies.compare.study",
    "Comparison": "studies.compare.result",
    "ImageOptions": "samples.options",
    "InputSpec": "core.tensors",
    "IntegerRunner": "run.integer.machine",
    "LayerSettings": "studies.layers.study",
    "LiveSource": "run.capture",
    "MissingExtra": "errors",
    "ModelFailed": "errors",
    "Outcome": "api.outcome",
    "QuantParams": "core.quantizers",
    "QuantSpec": "core.quantizers",
    "QuantizeSettings": "quantize.pipeline",
    "QuantizedModel": "graph.quantized_model",
    "Quantizer": "core.quantizers",
    "RoundoffError": "errors",
    "SampleOptions": "samples.options",
    "TensorInfo": "core.tensors",
    "TensorSource": "core.tensors",
    "accumulate": "api.studies",
    "all_metrics": "measure.metrics",
    "analyze_layers": "studies.layers.study",
    "audit": "api.quantization",
    "bake_quantizers": "graph.insertion",
    "bundle": "api.runs",
    "channels": "api.studies",
    "check_calibration": "api.checks",
    "check_io": "api.checks",
    "compare": "api.comparison",
    "convert": "api.tensors",
    "diagnose": "api.diagnosis",
    "diff": "api.runs",
    "distribution": "api.studies",
    "dump": "api.tensors",
    "explain": "api.runs",
    "export_settings": "api.quantization",
    "gate": "api.runs",
    "import_caffe": "graph.caffe.convert",
    "init": "api.project",
    "inputs": "graph.interface",
    "insert_quantizers": "graph.insertion",
    "layers": "api.studies",
    "load_document": "core.document",
    "load_model": "graph.load",
    "load_profile": "measure.verdicts",
    "load_project": "api.project",
    "load_target": "quantize.targets.files",
    "mcp": "api.mcp",
    "measure_pair": "measure.pairs",
    "open_samples": "samples.sample_set",
    "open_source": "tensors",
    "outliers": "api.studies",
    "pair_tensors": "align.alignment",
    "parse_rule": "quantize.planning.rules",
    "parse_thresholds": "measure.verdicts",
    "partial": "api.studies",
    "quantize": "api.quantization",
    "quantize_model": "quantize.pipeline",
    "read_aliases": "align.names",
    "read_quantized": "graph.readers.reader",
    "register_layer": "graph.caffe.conversion",
    "report": "api.runs",
    "reproduce": "api.runs",
    "samples": "api.studies",
    "save_model": "graph.save",
    "score": "measure.metrics",
    "self_check": "api.checks",
    "sensitivity": "api.studies",
    "serve": "api.runs",
    "target_names": "quantize.targets.files",
    "targets": "api.quantization",
    "topology": "graph.interface",
    "transform": "api.quantization",
    "tune": "api.search",
}

# `roundoff.case` goes on from earlier runs. Who reads the words of their commands, and the folders of vendors'
# builds by a file they have, is above it, and loaded when such a run is there.
COMMAND_READER = "cli.earlier_runs"
BUILD_READERS = {"build_context.json": "vendors.pulsar2.ticket"}

# Packages of ours that are called like a function, and can be called as it: whatever was imported before, the same
# thing has that name (`roundoff.core.make_callable`).
_CALLABLE_PACKAGES = ("quantize", "report", "samples")


def __getattr__(name: str) -> Any:
    if name in ("suite", "torch"):  # modules of ours: functions on suites, and for PyTorch's networks
        return importlib.import_module(f"roundoff.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'roundoff' has no attribute {name!r}")
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"roundoff.{name}")
    # The package `roundoff.align` would hide a function of that name here.
    there = "align" if name == "pair_tensors" else name
    value = getattr(importlib.import_module(f"roundoff.{_HOMES[name]}"), there)
    if isinstance(value, type) or _HOMES[name].startswith("api."):
        return value
    return importlib.import_module("roundoff.api.parts").part(name, value)


def __dir__() -> list[str]:
    return sorted(__all__)
