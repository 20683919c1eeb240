"""Planted cases are what they claim, whatever a diagnosis says of them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.case import PlantedCase
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.faults import FAULTS, arithmetics, dumping, kernels, operations
from benchmarks.planted.subject import Subject, sqnr, subject
from benchmarks.planted.variants import output_db

from roundoff.graph.interface import outputs

# Functions stay the same up to float rounding; a channel that is divided and multiplied again loses some bits.
SAME_DB = 60.0
REWRITTEN = ("outlier-weight-channel", "outlier-activation-channel", "mixed-range-add")
# Networks that have a place for each fault that not all have.
HOMES = {
    "mixed-range-add": "residual",
    "mixed-range-concat": "two-sided",
    "fp16-inside": "transformer",
}
# Where others are planted, the first that has a place.
FAMILIES_IN_TURN = ("plain", "residual", "unet", "transformer", "detector")
HARMLESS = ("near-zero-tensor", "rounds-half-up")
# A device that is right and was read wrongly, or that is off by less than a step.
UNHURT = ("wrong-gain-in-dump", "wrong-offset-in-dump", "layout-in-dump", "truncated-at-one-node")


@cache
def planted(fault: str) -> PlantedCase:
    for family in (HOMES[fault],) if fault in HOMES else FAMILIES_IN_TURN:
        network = subject(family, 0)
        case = FAULTS[fault](network, network.rng(fault))
        if case is not None:
            return case
    pytest.skip(f"no network of these has a place for {fault}")


def own_subject(case: PlantedCase) -> Subject:
    home = subject(case.family, case.seed)
    return Subject(case.family, case.seed, replace(home.built, model=case.model))


DEVICE_FAULTS = (kernels, arithmetics, dumping, operations)
DUMPED = [name for name, plant in FAULTS.items() if plant.__module__ in {each.__name__ for each in DEVICE_FAULTS}]
DUMPED += ["two-kernels", "kernel-and-dump"]
QUANTIZED = [name for name in FAULTS if name not in DUMPED]


def test_there_are_enough_kinds_and_families() -> None:
    assert len(FAULTS) >= 14
    assert len(FAMILIES) >= 6
    assert len(DUMPED) >= 10


@pytest.mark.parametrize("fault", REWRITTEN)
def test_a_rewritten_network_computes_the_same(fault: str) -> None:
    case = planted(fault)
    before, after = subject(case.family, case.seed), own_subject(case)
    for name in outputs(case.model):
        assert sqnr(before.values[name], after.values[name]) > SAME_DB


@pytest.mark.parametrize("fault", [name for name in QUANTIZED if name not in HARMLESS])
def test_a_fault_costs_accuracy(fault: str) -> None:
    case = planted(fault)
    network, home = own_subject(case), subject(case.family, case.seed)
    quantized = case.quantized or network.quantization(case.target)
    assert network.loss_db(quantized) < min(home.healthy_db - 6, 18)


def test_an_artefact_costs_nothing() -> None:
    case = planted("near-zero-tensor")
    network = own_subject(case)
    assert case.quantized is not None
    assert network.loss_db(case.quantized) > network.healthy_db - 1
    assert case.is_clean


def test_scores_next_to_pixels_are_lost() -> None:
    network = subject("detector", 0)
    case = FAULTS["mixed-range-concat"](network, network.rng("x"))
    assert case is not None
    own = own_subject(case)
    joined = own.values["head/concat_out"]
    assert joined[:, :4].max() > 100 * joined[:, 4:].max()


@pytest.mark.parametrize("fault", DUMPED)
def test_dumps_show_at_the_outputs_what_they_should(fault: str) -> None:
    case = planted(fault)
    assert case.dumps is not None
    network = own_subject(case)
    db = output_db(case)
    if fault in (*UNHURT, *HARMLESS):
        assert db > network.healthy_db - 6
    elif fault == "truncated-everywhere":
        assert db < network.healthy_db - 3
    else:
        # Sums of few bits are seen at their node; what they cost at the outputs is little.
        assert db < {"operation-sums-bfloat16": 50, "operation-sums-float16": 70}.get(fault, 25)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_truth_names_what_is_there(fault: str) -> None:
    case = planted(fault)
    graph = case.model.proto.graph
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {node.name for node in graph.node} | {name for node in graph.node for name in node.output}
    for truth in case.truths:
        assert truth.nodes <= known
        assert truth.kind == "clean" or truth.causes


def test_what_is_cut_off_at_one_node_shows_there() -> None:
    case = planted("truncated-at-one-node")
    network = subject(case.family, case.seed)
    assert case.dumps is not None
    healthy = Device(network, network.healthy).run(few_samples(network))
    pairs = list(zip(case.dumps.samples, healthy, strict=True))
    for tensor in case.truths[0].nodes & set(healthy[0]):
        assert np.mean([bad[tensor] != good[tensor] for bad, good in pairs]) > 0.1


def test_two_faults_are_at_two_places() -> None:
    for fault in ("two-quantizers", "two-weights", "two-kernels", "kernel-and-dump"):
        first, second = planted(fault).truths
        assert not first.nodes & second.nodes


def test_files_of_a_user_are_written(tmp_path: Path) -> None:
    arguments = planted("kernel-wrong-tap").write(tmp_path)
    assert arguments[:2] == [str(tmp_path / "model.onnx"), "--data"]
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "quantized.onnx", "data.npy", "dumps"}
    assert arguments[-2:] == ["--dumps", str(tmp_path / "dumps")]


def test_a_case_without_the_quantized_model_does_not_write_it(tmp_path: Path) -> None:
    case = planted("kernel-wrong-tap")
    assert case.dumps is not None
    arguments = replace(case, dumps=replace(case.dumps, with_quantized=False)).write(tmp_path)
    assert "--quantized" not in arguments
    assert not (tmp_path / "quantized.onnx").exists()


def test_a_healthy_device_is_within_a_step_of_its_simulator() -> None:
    network = subject("residual", 0)
    chip = Device(network, network.healthy)
    for tensors in chip.run(few_samples(network)):
        assert set(tensors) >= set(outputs(network.model))
    name = outputs(network.model)[0]
    made = np.concatenate([each[name] for each in chip.run(few_samples(network))])
    assert sqnr(network.values[name][: len(made)], made) > 20
