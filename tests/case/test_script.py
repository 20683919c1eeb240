"""The script of a case computes what roundoff computes, and judges by it."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.case.archive import SCRIPT
from roundoff.core.tensors import Array
from roundoff.measure.metrics import score
from roundoff.measure.pairs import measure_pair


def scores(*pairs: tuple[Array, Array]) -> tuple[float, float, int]:
    names: dict[str, Any] = {"__file__": "test_case.py", "__name__": "script"}
    exec(compile(SCRIPT, "test_case.py", "exec"), names)  # noqa: S102 - our own script
    found: tuple[float, float, int] = names["scores"](list(pairs))
    return found


VALUES = st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
PAIRS = hnp.array_shapes(max_dims=3, max_side=5).flatmap(
    lambda shape: st.tuples(*[hnp.arrays(np.float32, shape, elements=VALUES) for _ in range(2)])
)


@given(PAIRS)
def test_its_numbers_are_those_of_the_metrics(pair: tuple[Array, Array]) -> None:
    values = score(measure_pair(*pair)).values
    db, cosine, lost = scores(pair)
    assert lost == int((np.isfinite(pair[0]) & ~np.isfinite(pair[1])).sum())
    if "sqnr_db" in values:
        assert db == pytest.approx(values["sqnr_db"], abs=1e-6)
    if "cosine" in values:
        assert cosine == pytest.approx(values["cosine"], abs=1e-6)


def test_samples_are_taken_as_one_tensor() -> None:
    random = np.random.default_rng(0)
    pairs = [(each, each + random.normal(0, 0.1, 50)) for each in random.normal(size=(3, 50))]
    whole = tuple(np.concatenate(side) for side in zip(*pairs, strict=True))
    assert scores(*pairs)[:2] == pytest.approx(scores((whole[0], whole[1]))[:2])


def test_another_shape_and_a_lost_signal_are_as_bad_as_can_be() -> None:
    assert scores((np.ones(3), np.ones((3, 1))))[0] == -math.inf
    assert scores((np.zeros(3), np.ones(3)))[0] == -math.inf
    # The ratio of the energies is too small for a number.
    assert scores((np.full(3, 1e-160), np.full(3, 1e150)))[0] == pytest.approx(-6200, abs=1)


def dump_case(folder: Path, observed: Array) -> None:
    """A reproducer whose model is left out by giving what it computes as an input of an identity."""
    from onnx import TensorProto, helper, save

    from roundoff.graph.nodes import make_model

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    save(make_model(graph, opset=17), folder / "float.onnx")
    np.savez(folder / "inputs.npz", in0=np.arange(4, dtype=np.float32))
    np.savez(folder / "observed.npz", out0=observed)
    sample = {"name": "one", "inputs": {"x": "in0"}, "outputs": {"y": "out0"}}
    where = {"tensor": "y", "axis": None, "index": 0, "threshold_db": 10.0}
    case = {**where, "dump": True, "reference": "float.onnx", "samples": [sample]}
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    (folder / "run.py").write_text(SCRIPT, encoding="utf-8")


@pytest.mark.parametrize(
    ("observed", "code"),
    [([0, 1, 2, 3], 0), ([0, 1, 2, 2.9], 0), ([3, 2, 1, 0], 1), ([0, 1, 2, math.nan], 1)],
    ids=["exact", "near", "wrong", "not finite"],
)
def test_a_fault_is_there_where_values_are_wrong_or_lost(tmp_path: Path, observed: list[float], code: int) -> None:
    dump_case(tmp_path, np.array(observed, np.float32))
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == ("FAULT" if code else "no fault")
    assert ("1 values are not finite" in done.stdout) == (not np.isfinite(observed).all())


def test_a_bundle_has_no_other_results_to_judge(tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "case.json").write_text('{"samples": [], "expected_sqnr_db": 1.0}', encoding="utf-8")
    words = [sys.executable, "test_case.py", "--observed", "x.npz"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "a bundle has no observed.npz" in done.stderr) == (2, True)
