"""Scales that the reference implementation of one vendor gives for the same data, where a checkout has them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.quantizers import QuantParams, QuantSpec, fake_quantize, parameters_from_range, quantize
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import observed_range, weight_range
from tests.quantize.calibration.observing import observed

PATH = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "amct" / "algo_golden_vectors.json"

pytestmark = pytest.mark.skipif(not PATH.exists(), reason="no golden vectors beside this checkout")


@cache
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return content


def cases(kind: str) -> list[Any]:
    names = ("data", "num_bits", "with_offset", "channel_wise", "asymmetric", "max", "min")
    return [
        pytest.param(case, id="-".join(str(case[name]) for name in names if name in case))
        for case in golden().get(kind, [{}])
    ]


def data(name: str) -> Array:
    return np.array(golden()["data"][name], np.float32)


def spec_of(bits: int, *, symmetric: bool) -> QuantSpec:
    smallest = float(np.finfo(np.float32).eps)
    return QuantSpec(bits, True, symmetric, symmetric_scale="larger_side", smallest_scale=smallest)


def assert_matches(params: QuantParams, case: Any, *, tolerance: float) -> None:
    assert float(params.scale) == pytest.approx(case["scale"], rel=tolerance)
    assert int(params.zero_point) == case["offset"]


@pytest.mark.parametrize("case", cases("ifmr"))
def test_ifmr(case: Any) -> None:
    spec = spec_of(case["num_bits"], symmetric=not case["with_offset"])
    start, end = case["search_range"]
    options = {name: case[name] for name in ("max_percentile", "min_percentile", "search_step")}
    options |= {"search_range_start": start, "search_range_end": end}
    found = observed_range(observed(data(case["data"])), spec, "ifmr", options)
    assert_matches(parameters_from_range(*found, spec), case, tolerance=1e-5)


@pytest.mark.parametrize("case", cases("hfmg"))
def test_hfmg(case: Any) -> None:
    spec = spec_of(case["num_bits"], symmetric=not case["with_offset"])
    found = observed_range(observed(data(case["data"])), spec, "hfmg", {"num_of_bins": case["num_of_bins"]})
    assert_matches(parameters_from_range(*found, spec), case, tolerance=1e-4)


def test_hfmg_of_two_batches() -> None:
    case = golden()["hfmg_two_batches"]
    assert (case["batch1"], case["batch2"]) == ("normal_256", "relu_256*2")
    seen = observed(data("normal_256"), data("relu_256") * 2)
    assert seen.count == case["merged_total"]
    spec = spec_of(8, symmetric=False)
    found = observed_range(seen, spec, "hfmg", {"num_of_bins": case["num_of_bins"]})
    assert_matches(parameters_from_range(*found, spec), case, tolerance=1e-4)


@pytest.mark.parametrize("case", cases("arq"))
def test_weights(case: Any) -> None:
    weight = np.array(golden()["arq_weight"]["values"], np.float32).reshape(golden()["arq_weight"]["shape"])
    spec = spec_of(case["num_bits"], symmetric=True).along(0 if case["channel_wise"] else None)
    params = parameters_from_range(*weight_range(weight, spec, "minmax"), spec)
    np.testing.assert_allclose(np.atleast_1d(params.scale), case["scale_w"], rtol=1e-6)
    assert np.atleast_1d(params.zero_point).tolist() == case["offset_w"]
    assert quantize(weight, params, spec).ravel().tolist() == case["int_weights"]
    assert float(fake_quantize(weight, params, spec).sum(dtype=np.float64)) == pytest.approx(
        case["fake_quant_sum"]
    )


@pytest.mark.parametrize("case", cases("calculate_scale_offset"))
def test_ranges_to_scales(case: Any) -> None:
    spec = spec_of({"INT8": 8, "INT16": 16}[case["type"]], symmetric=not case["asymmetric"])
    assert_matches(parameters_from_range(case["min"], case["max"], spec), case, tolerance=1e-6)
