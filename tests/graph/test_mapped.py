"""Large models keep their weights in their file; what they compute and how they are written stays the same."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Consumer, Quantizer, QuantSpec, parameters_from_range
from roundoff.errors import BadInput
from roundoff.graph import insertion, load
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import load_model
from roundoff.graph.nodes import make_model
from roundoff.graph.save import save_model
from roundoff.graph.weights import Weights, constant_value
from roundoff.run import session
from roundoff.run.budget import PROGRAM_BYTES, RunBudget
from roundoff.run.session import open_session

SIDE = 160  # a matrix of this side is above what is left in the file


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MAPPED_BYTES", 1)
    monkeypatch.setattr(session, "HEAVY_BYTES", 1)


def save_net(path: Path, *, odd: str = "") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    arrays = {f"w{index}": rng.standard_normal((SIDE, SIDE)).astype(np.float32) for index in range(3)}
    weights = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    weights.append(numpy_helper.from_array(np.arange(SIDE, dtype=np.float32), "bias"))
    nodes, x = [], "x"
    for name in arrays:
        nodes.append(helper.make_node("MatMul", [x, name], [f"y{name}"], name=f"mul{name}"))
        x = f"y{name}"
    nodes.append(helper.make_node("Add", [x, "bias"], ["y"], name="add"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE]) for name in ("x", "y")]
    # A name of odd length moves the values to an odd place.
    proto = make_model(helper.make_graph(nodes, "net" + odd, ends[:1], ends[1:], weights))
    onnx.save(proto, path)
    return arrays


@pytest.mark.parametrize("odd", ["", "a", "ab", "abc"])
def test_weights_are_where_they_were_and_mean_the_same(tmp_path: Path, odd: str) -> None:
    arrays = save_net(tmp_path / "net.onnx", odd=odd)
    model = load_model(tmp_path / "net.onnx")
    assert model.proto.ByteSize() < 4000 < model.weight_bytes
    assert model.weight_bytes >= sum(values.nbytes for values in arrays.values())
    weights = Weights(model)
    for name, values in arrays.items():
        np.testing.assert_array_equal(weights[name], values)
    np.testing.assert_array_equal(weights["bias"], np.arange(SIDE))
    assert [node.name for node in model.proto.graph.node] == ["mulw0", "mulw1", "mulw2", "add"]


def test_whoever_maps_values_shares_them(tmp_path: Path) -> None:
    save_net(tmp_path / "net.onnx")
    model = load_model(tmp_path / "net.onnx")
    tensor = model.proto.graph.initializer[0]
    held = constant_value(tensor, model)
    assert constant_value(tensor, model) is held


@pytest.mark.parametrize("link", [False, True])
def test_it_computes_the_same_also_through_a_link(tmp_path: Path, link: bool) -> None:
    (tmp_path / "store").mkdir()
    arrays = save_net(tmp_path / "store" / "blob")
    (tmp_path / "net.onnx").symlink_to(tmp_path / "store" / "blob")
    path = tmp_path / "net.onnx" if link else tmp_path / "store" / "blob"
    x = np.linspace(-1, 1, SIDE, dtype=np.float32)[None]
    wanted = x.astype(np.float64)
    for values in arrays.values():
        wanted = wanted @ values
    for how in ({}, {"optimize": True}, {"fused": True}):
        (got,) = open_session(load_model(path), **how).run({"x": x})  # type: ignore[arg-type]
        np.testing.assert_allclose(got, wanted + np.arange(SIDE), rtol=1e-4, atol=1e-2)


def test_it_is_written_whole(tmp_path: Path) -> None:
    arrays = save_net(tmp_path / "net.onnx")
    save_model(load_model(tmp_path / "net.onnx"), tmp_path / "copy.onnx")
    written = onnx.load(tmp_path / "copy.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.onnx", "net.onnx"]
    for tensor in written.graph.initializer[:3]:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), arrays[tensor.name])


@pytest.mark.parametrize("cut", [1, 1000, SIDE * SIDE * 4 + 7])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    save_net(tmp_path / "net.onnx")
    data = (tmp_path / "net.onnx").read_bytes()
    (tmp_path / "net.onnx").write_bytes(data[:-cut])
    with pytest.raises(BadInput, match="cut short or damaged"):
        load_model(tmp_path / "net.onnx")


def test_values_that_do_not_fill_their_shape_are_refused(tmp_path: Path) -> None:
    save_net(tmp_path / "net.onnx")
    proto = onnx.load(tmp_path / "net.onnx")
    proto.graph.initializer[1].dims[0] += 1
    onnx.save(proto, tmp_path / "net.onnx")
    with pytest.raises(BadInput, match="'w1' holds 102400 bytes, its shape needs 103040"):
        load_model(tmp_path / "net.onnx")


def test_what_does_not_fit_is_refused_with_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.run import budget

    monkeypatch.setattr(budget, "MAPPED_BYTES", 1)
    save_net(tmp_path / "net.onnx")
    model = load_model(tmp_path / "net.onnx")
    needed = PROGRAM_BYTES + 2 * model.weight_bytes
    RunBudget(max_memory=needed).check_weights(model, doing="Quantizing", times=2)
    with pytest.raises(BadInput, match=r"Quantizing .* takes about .* of memory; the budget is") as found:
        RunBudget(max_memory=needed - 1).check_weights(model, doing="Quantizing", times=2)
    assert "--max-memory" in found.value.fix


def test_codes_of_a_large_network_stand_beside_it_and_are_used_and_written_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_net(tmp_path / "net.onnx")
    model = load_model(tmp_path / "net.onnx")
    spec = QuantSpec(8, signed=True, symmetric=True)
    quantizers = []
    for at in range(3):
        most = float(np.abs(Weights(model)[f"w{at}"]).max())
        params = parameters_from_range(-most, most, spec)
        consumer = Consumer(f"mulw{at}", 1)
        quantizers.append(Quantizer(f"q{at}", f"w{at}", "weight", spec, params, (consumer,)))
    plain = switch_on(model, quantizers)
    assert not plain.beside
    monkeypatch.setattr(insertion, "MAPPED_BYTES", 1)
    held = switch_on(model, quantizers)
    assert sorted(held.beside) == ["w0_codes", "w1_codes", "w2_codes"]
    assert held.proto.ByteSize() < 8000 < plain.proto.ByteSize()
    for name, codes in held.beside.items():
        assert codes.dtype == np.int8
        np.testing.assert_array_equal(Weights(held)[name], Weights(plain)[name])
    x = np.linspace(-1, 1, SIDE, dtype=np.float32)[None]
    wanted = open_session(plain).run({"x": x})
    for most in (1, 1 << 40):  # a graph that is not rewritten, and one that is
        monkeypatch.setattr(session, "_MOST_REWRITTEN_BYTES", most)
        for how in ({}, {"optimize": True}, {"fused": True}):
            got = open_session(held, **how).run({"x": x})  # type: ignore[arg-type]
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5)
    save_model(held, tmp_path / "held.onnx")
    save_model(plain, tmp_path / "plain.onnx")
    assert (tmp_path / "held.onnx").read_bytes() == (tmp_path / "plain.onnx").read_bytes()
