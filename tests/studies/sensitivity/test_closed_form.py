"""Linear networks, whose sensitivities can be written down."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.quantizers import SubjectKind
from roundoff.core.tensors import Array
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.sensitivity.ranking import SensitivitySettings
from roundoff.studies.sensitivity.result import Sensitivity
from roundoff.studies.sensitivity.study import analyze_sensitivity
from tests.graph.quantized_nets import S8, make_quantizer
from tests.models import loaded, value, wrapped
from tests.run.samples import MemorySamples

STEP = 0.25
RNG = np.random.default_rng(3)
# Small numbers of few bits: every product and sum is exact in float32.
FIRST = RNG.integers(-24, 25, (4, 6)) / 8.0
SECOND = RNG.integers(-24, 25, (6, 3)) / 8.0
INPUTS = RNG.integers(-48, 49, (9, 1, 4)) / 16.0


def rounded(values: Array, step: float = STEP) -> Array:
    return np.round(values / step) * step


def two_layers(folder: Path, inputs: Array) -> tuple[QuantizedModel, MemorySamples]:
    """y = (x A) B with one step for everything that is quantized."""
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "B"], ["y"], name="second"),
    ]
    held = [
        numpy_helper.from_array(array.astype(np.float32), name) for array, name in ((FIRST, "A"), (SECOND, "B"))
    ]
    model = loaded(wrapped(nodes, [value("x", ("N", 4))], [value("y")], held), folder)
    assert np.abs(inputs).max() < S8.code_max * STEP, "what is clipped is not only rounded"
    quantizers = (
        make_quantizer("x", S8, STEP, ("first", 0)),
        make_quantizer("A", S8, STEP, ("first", 1), kind="weight"),
        make_quantizer("h", S8, 4 * STEP, ("second", 0)),
        make_quantizer("B", S8, STEP, ("second", 1), kind="weight"),
    )
    return QuantizedModel(model, quantizers), MemorySamples([{"x": row.astype(np.float32)} for row in inputs])


def values_of(found: Sensitivity, kind: SubjectKind) -> dict[str, Array]:
    return {row.score.subject.name: row.score.values for row in found.rankings[kind]}


@pytest.mark.parametrize("arithmetic", ["plain", "fast"])
def test_scores_equal_the_closed_form(arithmetic: str, tmp_path: Path) -> None:
    quantized, samples = two_layers(tmp_path, INPUTS)
    settings = SensitivitySettings(metrics=("mse", "sqnr_db", "chebyshev"), blocks=2, arithmetic=arithmetic)  # type: ignore[arg-type]
    found = analyze_sensitivity(quantized, samples, settings)
    x, y = INPUTS[:, 0], INPUTS[:, 0] @ FIRST @ SECOND
    h = x @ FIRST
    errors = {
        "x_q": (rounded(x) - x) @ FIRST @ SECOND,
        "h_q": (rounded(h, 4 * STEP) - h) @ SECOND,
        "A_q": x @ (rounded(FIRST) - FIRST) @ SECOND,
        "B_q": h @ (rounded(SECOND) - SECOND),
        "first": rounded(x) @ rounded(FIRST) @ SECOND - y,
        "second": rounded(h, 4 * STEP) @ rounded(SECOND) - y,
    }
    measured = {name: values for kind in found.rankings for name, values in values_of(found, kind).items()}
    assert measured.keys() == errors.keys()
    for name, error in errors.items():
        power = (error**2).mean(axis=1)
        with np.errstate(divide="ignore"):
            sqnr = 10 * np.log10((y**2).mean(axis=1) / power)
        expected = np.stack([power, sqnr, np.abs(error).max(axis=1)], axis=1)
        np.testing.assert_allclose(measured[name][:, 0], expected, rtol=1e-12, err_msg=name)


def test_worst_first_means_over_samples(tmp_path: Path) -> None:
    quantized, samples = two_layers(tmp_path, INPUTS)
    found = analyze_sensitivity(quantized, samples, SensitivitySettings(metrics=("mse",), kinds=("activation",)))
    means = {name: float(values.mean()) for name, values in values_of(found, "activation").items()}
    assert [row.score.subject.name for row in found.rankings["activation"]] == sorted(
        means, key=lambda n: -means[n]
    )
    for row in found.rankings["activation"]:
        assert row.score.mean["mse"] == pytest.approx(means[row.score.subject.name], rel=1e-12)


def test_rounding_errors_spread_as_theory_says(tmp_path: Path) -> None:
    # Errors of a fine grid are even over one step, so their variance is its square over 12.
    inputs = np.random.default_rng(5).uniform(-20, 20, (900, 1, 4))
    quantized, samples = two_layers(tmp_path, inputs)
    settings = SensitivitySettings(metrics=("mse",), kinds=("activation",), exact=True, nodes=("x",))
    score = analyze_sensitivity(quantized, samples, settings).rankings["activation"][0].score
    expected = STEP**2 / 12 * ((FIRST @ SECOND) ** 2).sum() / 3
    assert score.mean["mse"] == pytest.approx(expected, rel=0.05)


def test_leaving_one_out_leaves_the_error_of_the_others(tmp_path: Path) -> None:
    quantized, samples = two_layers(tmp_path, INPUTS)
    settings = SensitivitySettings(metrics=("mse",), mode="left_out", kinds=("activation",), blocks=2)
    found = analyze_sensitivity(quantized, samples, settings)
    x, y = INPUTS[:, 0], INPUTS[:, 0] @ FIRST @ SECOND
    a, b = rounded(FIRST), rounded(SECOND)
    outputs = {"x_q": rounded(x @ a, 4 * STEP) @ b, "h_q": rounded(x) @ a @ b}
    for name, values in values_of(found, "activation").items():
        np.testing.assert_allclose(values[:, 0, 0], ((outputs[name] - y) ** 2).mean(axis=1), rtol=1e-12)
    everything = rounded(rounded(x) @ a, 4 * STEP) @ b
    assert found.quantized is not None
    assert found.quantized.mean["mse"] == pytest.approx(((everything - y) ** 2).mean(), rel=1e-12)
    # Without the one that hurts most the outputs are best.
    means = [row.score.mean["mse"] for row in found.rankings["activation"]]
    assert means == sorted(means)
