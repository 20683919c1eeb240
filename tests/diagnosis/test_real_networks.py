"""Faults planted in trained networks, whose channels and ranges are not those of networks made in code."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.families.kit import Built
from benchmarks.planted.faults.ranges import scaled
from benchmarks.planted.subject import Subject, replaced

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.load import load_model
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps
from tests.real_models import real_data, real_model

VWW_RELU = "model/activation_20/Relu_20_relu"
SUM = "model/activation_4/Relu_7_relu"


@cache
def network(path: str) -> Subject:
    """A trained network with pictures of its kind, evenly grey or not; none of them need be of its classes."""
    model = load_model(real_model(path))
    pictures = np.load(real_data("cifar10_test_part.npz"))["x"][:24].astype(np.float32).transpose(0, 3, 1, 2)
    if "vww" in path:
        pictures = pictures.repeat(3, axis=2).repeat(3, axis=3) / 255
    samples = {"data": np.ascontiguousarray(pictures)}
    return Subject(path, 0, Built(model, samples, None, {}, lambda _count: samples))


def resnet() -> Subject:
    return network("mlperf_tiny/pretrainedResnet.onnx")


def vww() -> Subject:
    return network("mlperf_tiny/vww_96_float.onnx")


def on_file(subject: Subject, tensor: str, factor: float) -> Diagnosis:
    """What is said of a file in which the scale of one tensor is wrong by a factor."""
    changes = {each.name: scaled(each, factor) for each in subject.healthy.quantizers if each.tensor == tensor}
    assert changes
    return diagnose_quantization(replaced(subject.healthy, changes), ArraySamples(subject.built.samples))


def on_device(subject: Subject, rows: list[dict[str, Array]], *, known: bool = True) -> Diagnosis:
    given = subject.healthy if known else subject.model
    return diagnose_device(given, ArraySamples(few_samples(subject)), HeldDumps(rows))


@pytest.mark.parametrize("make", [resnet, vww])
def test_a_healthy_network_is_not_accused(make: Callable[[], Subject]) -> None:
    subject = make()
    found = diagnose_quantization(subject.healthy, ArraySamples(subject.built.samples))
    assert (found.kind, found.accused) == ("healthy", ())


def test_a_pool_that_has_the_range_of_what_it_reads_is_not_accused() -> None:
    """As onnxruntime's tools do it, for speed."""
    subject = resnet()
    found = diagnose_quantization(subject.quantization("onnxruntime"), ArraySamples(subject.built.samples))
    assert (found.kind, found.accused) == ("healthy", ())


def test_a_range_that_is_too_small_where_channels_differ() -> None:
    found = on_file(vww(), VWW_RELU, 0.15)
    assert [(each.cause, each.tensors[0]) for each in found.accused] == [("clipping", VWW_RELU)]


@pytest.mark.parametrize(("factor", "cause"), [(0.2, "clipping"), (25.0, "resolution")])
def test_a_wrong_range_behind_a_sum(factor: float, cause: str) -> None:
    found = on_file(resnet(), SUM, factor)
    assert [(each.cause, each.tensors[0]) for each in found.accused] == [(cause, SUM)]


@pytest.mark.parametrize("known", [True, False], ids=["with quantizers", "without"])
def test_a_healthy_device_whose_dump_is_in_half_precision(known: bool) -> None:
    subject = resnet()
    rows = [
        {name: array.astype(np.float16) for name, array in each.items()}
        for each in Device(subject, subject.healthy).run(few_samples(subject))
    ]
    assert on_device(subject, rows, known=known).accused == ()


def test_a_sum_without_one_of_its_operands() -> None:
    subject = resnet()
    other = next(node for node in subject.nodes.values() if SUM[: -len("_relu")] in node.output).input[1]
    patches = {SUM: lambda _array, _index, held: np.maximum(held[other], 0)}
    rows = Device(subject, subject.healthy, patches=patches).run(few_samples(subject))
    (finding,) = on_device(subject, rows).accused
    assert (finding.cause, finding.tensors[0]) == ("kernel-fault", SUM)


def test_an_input_that_was_not_dumped_and_is_too_dark() -> None:
    subject = vww()
    fed = {name: array * np.float32(0.4) for name, array in few_samples(subject).items()}
    rows = [
        {name: array for name, array in each.items() if name != "data"}
        for each in Device(subject, subject.healthy).run(fed)
    ]
    (finding,) = on_device(subject, rows).accused
    assert finding.cause == "preprocessing"
    assert "0.4 times" in str(finding.summary)
