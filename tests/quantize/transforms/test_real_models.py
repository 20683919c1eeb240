"""Real networks compute what they did, whatever takes part."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation.steps import prepare
from roundoff.quantize.steps import StepContext, apply_transform
from roundoff.quantize.targets.files import load_target
from roundoff.quantize.transforms.factors import rescaled
from roundoff.quantize.transforms.rules import map_scaling
from tests.graph.quantized_nets import run_model
from tests.quantize.transforms.nets import step
from tests.real_models import real_models
from tests.run.samples import MemorySamples


def prepared(path: Path) -> tuple[Model, MemorySamples]:
    try:
        model = prepare(load_model(path)).model
    except BadInput as error:
        pytest.skip(error.what)
    rng = np.random.default_rng(0)
    shapes = {
        spec.name: [size if isinstance(size, int) else 1 for size in spec.shape or ()] for spec in inputs(model)
    }
    return model, MemorySamples(
        [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(2)]
    )


@pytest.mark.parametrize("path", real_models())
def test_any_factors_are_taken_up(path: Path) -> None:
    model, samples = prepared(path)
    found = map_scaling(model, samples)
    roots = {int(root) for channels in found.channels.values() for root in found.roots(channels).ravel()} - {0}
    rng = np.random.default_rng(1)
    changed = rescaled(model, found, {root: float(2.0 ** rng.integers(-3, 4)) for root in sorted(roots)})
    for got, expected in zip(
        run_model(changed, samples.feeds[0]), run_model(model, samples.feeds[0]), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("path", real_models())
@pytest.mark.parametrize("name", ["smooth", "equalize", "explicit_bias"])
def test_no_transform_has_to_be_undone(path: Path, name: str) -> None:
    model, samples = prepared(path)
    context = StepContext(load_target("generic-int8-per-tensor"), samples)
    known: dict[str, dict[str, float]] = {"smooth": {"threshold": 1.0}, "equalize": {"iterations": 20}}
    options = known.get(name, {})
    done = apply_transform(step(name, **options), model, context)
    assert not any("undone" in str(note) for note in done.notes), done.notes
