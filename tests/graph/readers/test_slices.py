"""One scale per slice: which axis, and when it is the same as one scale for all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.graph.readers.reader import read_quantized
from tests.graph.readers.test_pairs import FEED, SCALE, WEIGHT, pair
from tests.graph.readers.tools import node, read_back, reference, small


@pytest.mark.parametrize(("quantized", "dequantized"), [((1,), ()), ((), (1,)), ((1,), (1,))])
def test_one_scale_per_slice_of_a_single_one_is_one_scale(
    tmp_path: Path, quantized: tuple[int, ...], dequantized: tuple[int, ...]
) -> None:
    sizes = {"q": quantized, "d": dequantized}
    axes: dict[str, Any] = {side: {"axis": 1} if size else {} for side, size in sizes.items()}
    nodes = [
        node("QuantizeLinear", ["w", "qs", "qz"], "codes", **axes["q"]),
        node("DequantizeLinear", ["codes", "ds", "dz"], "wq", **axes["d"]),
        node("MatMul", ["x", "wq"], "y"),
    ]
    held: dict[str, Any] = {"w": WEIGHT[:, :1]}
    for side, size in sizes.items():
        held |= {f"{side}s": np.full(size, SCALE, np.float32), f"{side}z": np.full(size, 100, np.uint8)}
    model = small(tmp_path, nodes, held)
    read = read_quantized(model)
    assert (read.oddities, len(read.quantizers)) == ((), 1)
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_an_axis_counted_from_the_end_is_the_same_on_both_sides(tmp_path: Path) -> None:
    held = {"w": WEIGHT, "s": np.array([0.1, 0.2], np.float32), "z": np.zeros(2, np.int8)}
    model = small(tmp_path, [*pair("w", "wq", axis=-1), node("MatMul", ["x", "wq"], "y")], held)
    read = read_quantized(model)
    assert (read.oddities, read.quantizers[0].spec.axis) == ((), 1)
