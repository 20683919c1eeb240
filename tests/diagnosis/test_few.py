"""How many places are few is searched for, and grows with the network."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.subject import subject
from onnx import helper

from roundoff.core.tensors import Array
from roundoff.diagnosis.culprits import explained, find_outstanding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.session import open_session
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import changed, coded, for_target, narrower, numpy_tensor, scaled
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
    assert len(named) >= 5
    assert named <= {f"in{at}" for at in culprits}
    assert sum(each.share for each in found.accused) == pytest.approx(1.0)


def chain(layers: int, seed: int) -> tuple[Model, dict[str, Array]]:
    """Rotations with a bent line behind each: what one of them loses is passed on by all others."""
    rng = np.random.default_rng(seed)
    nodes, constants, name = [], [], "x"
    for at in range(layers):
        weight = (1.12 * np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]).astype(np.float32)
        constants.append(numpy_tensor(f"w{at}", weight))
        last = "y" if at == layers - 1 else f"r{at}"
        nodes.append(helper.make_node("MatMul", [name, f"w{at}"], [f"h{at}"], name=f"mix{at}"))
        nodes.append(helper.make_node("LeakyRelu", [f"h{at}"], [last], name=f"bend{at}", alpha=0.75))
        name = last
    proto = wrapped(nodes, [value("x", (1, WIDTH))], [value("y", (1, WIDTH))], constants)
    data = rng.normal(size=(24, WIDTH)).astype(np.float32)
    return model_from_proto(proto, path=Path("chain.onnx")), {"x": data}


def broken_chain() -> tuple[QuantizedModel, ArraySamples, dict[str, str]]:
    """A chain of 100 nodes with six faults of five kinds, and what the cause of each is."""
    quantized, samples = for_target(*chain(50, seed=5))
    for tensor, factor in (("r3", 0.25), ("r11", 18.0), ("r40", 0.2), ("r46", 18.0)):
        quantized = changed(quantized, tensor, scaled(factor))
    quantized = changed(quantized, "w20", narrower(3))
    quantized = coded(quantized, "w33", lambda codes: np.roll(codes, 1, axis=0))
    causes = {"bend3": "clipping", "bend40": "clipping", "bend11": "resolution", "bend46": "resolution"}
    return quantized, samples, causes | {"mix20": "resolution", "mix33": "corrupted-weights"}


def test_faults_of_several_kinds_in_a_chain_are_all_named() -> None:
    quantized, samples, causes = broken_chain()
    found = diagnose_quantization(quantized, samples)
    named = {name: each.cause for each in found.accused for name in each.accused_nodes}
    assert len(named) >= 5
    assert named.items() <= causes.items()


def test_what_is_alone_is_measured_alone() -> None:
    """The figures of a place that drowns in others are those of the network with nothing else quantized."""
    quantized, samples, causes = broken_chain()
    case = open_case(quantized, samples)
    accused = find_outstanding(case, case.facts.suspects, beside=True, out_of_time=lambda: False)
    assert {each.suspect.node for each in accused} == set(causes)
    model = quantized.float_model
    feeds = [dict(samples.feed(index)) for index in range(len(samples.names))]
    exact = [open_session(model).run(each)[0].astype(np.float64) for each in feeds]
    for finding in explained(case, accused, out_of_time=lambda: False)[0]:
        only = [each for each in quantized.quantizers if each.tensor in finding.tensors[:1]]
        session = open_session(switch_on(model, only))
        noise = sum(
            np.square(a - session.run(b)[0].astype(np.float64)).sum() for a, b in zip(exact, feeds, strict=True)
        )
        signal = sum(np.square(each).sum() for each in exact)
        assert finding.proven
        assert finding.cause == causes[finding.nodes[0]]
        assert finding.measures[0].before == pytest.approx(10 * np.log10(signal / noise), abs=0.05)


def test_nobody_stands_out_where_all_are_alike() -> None:
    for bits in (8, 5):
        quantized, samples = for_target(*chain(50, seed=6))
        for each in [each for each in quantized.quantizers if each.kind == "activation"]:
            quantized = changed(quantized, each.tensor, narrower(bits))
        case = open_case(quantized, samples)
        assert not find_outstanding(case, case.facts.suspects, beside=False, out_of_time=lambda: False)


@pytest.mark.parametrize(("family", "seed"), [("residual", 160), ("gru", 160), ("paddle-depthwise", 161)])
def test_what_is_coarse_everywhere_has_no_culprits(family: str, seed: int) -> None:
    """Places that make most of the loss of eight samples do not make most of that of all."""
    planted = subject(family, seed)
    case = FAULTS["coarse-everywhere"](planted, planted.rng("coarse-everywhere"))
    assert case is not None
    assert case.quantized is not None
    found = diagnose_quantization(case.quantized, ArraySamples(case.samples))
    assert found.kind == "distributed"
