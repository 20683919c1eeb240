"""Each cause is found where it was planted, with numbers; clean devices are not accused."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.subject import subject

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices import causes
from roundoff.diagnosis.registry import all_causes
from tests.diagnosis.devices.devices import diagnosed, planted

CASES = {
    "kernel-wrong-tap": "kernel-fault",
    "kernel-wrong-channels": "kernel-fault",
    "swapped-channels": "layout",
    "stale-tensor": "stale-tensor",
    "requantized-wrong": "wrong-dequantization",
    "wrong-gain-in-dump": "wrong-dequantization",
    "wrong-offset-in-dump": "wrong-dequantization",
    "layout-in-dump": "layout",
    "layout-computed": "layout",
    "preprocessing-on-device": "preprocessing",
    "preprocessing-unseen": "preprocessing",
    "truncated-at-one-node": "integer-implementation",
    "truncated-everywhere": "integer-implementation",
    "short-accumulator": "overflow",
    "fp16-saturated": "fp16-range",
    "fp16-flushed": "fp16-range",
}


@pytest.mark.parametrize(("fault", "cause"), CASES.items(), ids=CASES)
def test_a_planted_fault_is_named(fault: str, cause: str) -> None:
    case = planted(fault)
    found = diagnosed(case)
    assert found.kind == "culprits"
    first = found.findings[0]
    assert (first.cause, first.proven) == (cause, True)
    nodes = case.truths[0].nodes
    assert not nodes or {*first.nodes, *first.tensors} & nodes
    assert first.measures[0].improved
    assert first.remedy is not None
    assert len(found.findings) == 1


def test_sums_inside_of_a_normalization() -> None:
    found = diagnosed(planted("fp16-inside", "transformer"))
    assert [each.cause for each in found.findings] == ["fp16-range"]


@pytest.mark.parametrize("family", ["plain", "detector"])
def test_clean_devices_are_not_accused(family: str) -> None:
    for make in clean_cases(subject(family, 0)):
        case = make()
        if case.dumps is None:
            continue
        found = diagnosed(case, with_quantized=case.dumps.with_quantized)
        assert (case.fault, found.accused) == (case.fault, ())
        assert found.kind == "healthy"
        assert found.verdict.startswith("nothing is wrong on the device")


def test_every_cause_says_what_it_is() -> None:
    kinds = list(all_causes("device"))
    assert {kind.name.replace("-", "_") for kind in kinds} == set(causes.__all__)
    assert all(kind.summary.endswith(".") for kind in kinds)


def test_a_wrong_dump_does_not_accuse_those_who_read_it() -> None:
    case = planted("wrong-gain-in-dump")
    found = diagnosed(case)
    assert "in the dump only" in found.findings[0].summary
    assert found.verdict.startswith("the device computes what it should")
    assert found.victims == ()


def test_victims_are_listed_apart() -> None:
    case = planted("kernel-wrong-tap")
    found = diagnosed(case)
    blamed = set(found.findings[0].tensors)
    assert found.victims
    assert not blamed & set(found.victims)


def test_a_fault_behind_another_is_found_too() -> None:
    case = planted("two-kernels")
    found = diagnosed(case)
    assert len(found.findings) == 2
    for truth in case.truths:
        assert any({*each.nodes, *each.tensors} & truth.nodes for each in found.findings)


def test_without_the_quantized_model() -> None:
    found = diagnosed(planted("kernel-wrong-tap"), with_quantized=False)
    assert [each.cause for each in found.findings] == ["kernel-fault"]


def test_integer_codes_are_read_with_the_scales_of_the_model() -> None:
    case = planted("kernel-wrong-channels")
    assert case.quantized is not None
    assert case.dumps is not None
    coded = {q.tensor: q for q in case.quantized.quantizers if q.kind == "activation" and not q.after}

    def codes(name: str, values: Array) -> Array:
        if name not in coded:
            return values
        params = coded[name].params
        return np.rint(values / params.scale + params.zero_point).astype(np.uint8)

    rows = tuple({name: codes(name, array) for name, array in each.items()} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert [each.cause for each in found.findings] == ["kernel-fault"]


def test_names_and_layouts_of_a_board_are_found_by_value_even_behind_the_fault() -> None:
    case = planted("kernel-wrong-channels")
    assert case.dumps is not None
    names = {name: f"L{index:02d}.ofm" for index, name in enumerate(case.dumps.samples[0])}

    def stored(array: Array) -> Array:
        return np.moveaxis(array, 1, -1) if array.ndim == 4 else array

    rows = tuple({names[name]: stored(array) for name, array in each.items()} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert {*found.findings[0].nodes, *found.findings[0].tensors} & case.truths[0].nodes
    assert len(found.accused) == 1


def test_dumps_of_something_else_accuse_nobody() -> None:
    case = planted("kernel-wrong-tap")
    assert case.dumps is not None
    rng = np.random.default_rng(0)

    def shuffled(name: str, array: Array) -> Array:
        return array if name == "image" else rng.permutation(array.ravel()).reshape(array.shape)

    rows = tuple({name: shuffled(name, array) for name, array in each.items()} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert found.kind == "not_enough_evidence"
    assert found.accused == ()
    assert "is this the dump of this model" in found.verdict


def test_too_few_dumps_to_tell_which_node_it_is() -> None:
    case = planted("kernel-wrong-tap")
    assert case.dumps is not None
    rows = tuple({name: each[name] for name in ("image", "classifier_out")} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert "one of the 14 nodes between 'image' and 'classifier_out'" in found.findings[0].summary
    assert found.findings[0].remedy is not None
    assert found.findings[0].remedy.title.startswith("dump tensors between")
