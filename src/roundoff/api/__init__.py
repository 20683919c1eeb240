"""The public functions: one for each command, of the same name and with the same words.

Each takes what the command takes, and gives an `Outcome` that prints its verdict, shows itself in a notebook,
gives its rows and writes the files that the command writes. The command line parses, calls them, and prints.
"""

import importlib
from typing import Any

__all__ = ["FUNCTIONS"]

FUNCTIONS = {
    "accumulate": "studies",
    "audit": "quantization",
    "channels": "studies",
    "check_calibration": "checks",
    "check_io": "checks",
    "compare": "comparison",
    "convert": "tensors",
    "diagnose": "diagnosis",
    "diff": "runs",
    "distribution": "studies",
    "dump": "tensors",
    "explain": "runs",
    "export_settings": "quantization",
    "gate": "runs",
    "layers": "studies",
    "outliers": "studies",
    "partial": "studies",
    "quantize": "quantization",
    "report": "runs",
    "samples": "studies",
    "sensitivity": "studies",
    "targets": "quantization",
    "transform": "quantization",
    "tune": "search",
}
"""The module of each function."""


def __getattr__(name: str) -> Any:
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'roundoff.api' has no attribute {name!r}")
    return getattr(importlib.import_module(f"roundoff.api.{FUNCTIONS[name]}"), name)
