"""Public names are functions, whatever was imported before; and importing them costs nothing."""

import importlib
import subprocess
import sys

import pytest

SHARED = ("quantize", "report", "samples")
BEFORE = (
    "import roundoff; f = roundoff.{name}; import roundoff.{name}; assert roundoff.{name} is f and callable(f)"
)
AFTER = "import roundoff.{name}.{part}; assert callable(roundoff.{name}); assert roundoff.{name}.{part}"
PARTS = {"quantize": "pipeline", "report": "pages", "samples": "labels"}
CALL = """
import roundoff
from roundoff.demo import model_path
import numpy as np
data = np.load(model_path().parent / "samples.npy")[:2]
made = roundoff.quantize(model_path(), data=data, target="generic-int8")
found = roundoff.samples(quantized=made.quantized, data=data)
assert len(found.result.samples) == 2
assert roundoff.report(found, "page.md")
from roundoff.samples import open_samples
from roundoff.quantize.pipeline import quantize_model
import inspect
assert inspect.unwrap(roundoff.open_samples) is open_samples
assert inspect.unwrap(roundoff.quantize_model) is quantize_model
"""
HEAVY = ("numpy", "onnx", "onnxruntime", "rich", "pydantic", "jinja2", "roundoff.api")


def python(code: str, **options: object) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", SHARED)
def test_packages_of_the_same_name_are_called_in_any_order(name: str) -> None:
    python(BEFORE.format(name=name))
    python(AFTER.format(name=name, part=PARTS[name]))


def test_they_are_called_as_functions(tmp_path: object) -> None:
    python(CALL, cwd=tmp_path)


def test_importing_loads_nothing_heavy() -> None:
    python(f"import roundoff, sys; assert not [name for name in {HEAVY} if name in sys.modules]")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("amct.caffe", "init quantize_model save_model"),
        ("amct.common.auto_calibration", "AutoCalibrationEvaluatorBase"),
        ("amct.onnx", "create_quant_config quantize_model save_model"),
        ("ascend", "Request RuleFiles compare_network"),
        ("dialects", "Made decisions_of find_dialect"),
        ("horizon", "get_sensitivity_of_nodes runall"),
        ("horizon.gen1", "get_sensitivity_of_nodes plot_acc_error"),
        ("pulsar2.building.build", "build"),
        ("pulsar2.building.log", "Log"),
        ("pulsar2.config.files", "load_config"),
        ("pulsar2.config.loading", "load_config"),
    ],
)
def test_paths_that_were_ever_documented_for_vendors_stay(module: str, names: str) -> None:
    found = importlib.import_module(f"roundoff.vendors.{module}")
    assert [name for name in names.split() if not hasattr(found, name)] == []
