"""How many places are few is searched for, and grows with the network."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.core.tensors import Array
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.load import Model, model_from_proto
from tests.diagnosis.planting import for_target, numpy_tensor
from tests.models import value, wrapped

WIDTH = 16


def residual(layers: int, culprits: tuple[int, ...], seed: int) -> tuple[Model, dict[str, Array]]:
    """Layers that each add a little to what passes by; some write one value far larger than all others.

    The next layer does not read it, but one scale for the whole tensor leaves the others a handful of codes.
    """
    rng = np.random.default_rng(seed)
    nodes, constants, name = [], [], "x"
    for at in range(layers):
        first = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0].astype(np.float32)
        second = (0.3 * np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]).astype(np.float32)
        if at in culprits:
            first[:, 0] *= 60
            second[0] = 0
        constants += [numpy_tensor(f"a{at}", first), numpy_tensor(f"b{at}", second)]
        nodes += [
            helper.make_node("MatMul", [name, f"a{at}"], [f"h{at}"], name=f"in{at}"),
            helper.make_node("MatMul", [f"h{at}", f"b{at}"], [f"d{at}"], name=f"out{at}"),
            helper.make_node("Add", [name, f"d{at}"], [f"s{at}" if at < layers - 1 else "y"], name=f"add{at}"),
        ]
        name = f"s{at}"
    proto = wrapped(nodes, [value("x", (1, WIDTH))], [value("y", (1, WIDTH))], constants)
    data = rng.normal(size=(24, WIDTH)).astype(np.float32)
    return model_from_proto(proto, path=Path("residual.onnx")), {"x": data}


@pytest.mark.parametrize(("layers", "seed"), [(12, 1), (30, 2), (30, 3)])
def test_six_culprits_in_a_deep_network_are_found(layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    culprits = tuple(sorted(int(each) for each in rng.choice(np.arange(1, layers - 1), 6, replace=False)))
    quantized, samples = for_target(*residual(layers, culprits, seed))
    found = diagnose_quantization(quantized, samples)
    assert found.kind == "culprits"
    named = {name for each in found.accused for name in each.accused_nodes}
    assert len(named) > 3
    assert named <= {f"in{at}" for at in culprits}
