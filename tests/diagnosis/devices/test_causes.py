"""Each cause is found where it was planted, with numbers; clean devices are not accused."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted.case import PlantedCase
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.subject import subject, with_weights

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.errors import BadInput
from roundoff.preprocessing.conventions import preparations
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps, diagnosed, planted

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
    for _, make in clean_cases(family, 0):
        case = make()
        if case.dumps is None:
            continue
        found = diagnosed(case, with_quantized=case.dumps.with_quantized)
        assert (case.fault, found.accused) == (case.fault, ())
        assert found.kind == "healthy"
        assert str(found.verdict).startswith("no fault found on the device")


def test_a_wrong_dump_does_not_accuse_those_who_read_it() -> None:
    case = planted("wrong-gain-in-dump")
    found = diagnosed(case)
    assert "in the dump only" in str(found.findings[0].summary)
    assert str(found.verdict).startswith("the device computes what it should")
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
    assert "is this the dump of this model" in str(found.verdict)


def test_too_few_dumps_to_tell_which_node_it_is() -> None:
    case = planted("kernel-wrong-tap")
    assert case.dumps is not None
    rows = tuple({name: each[name] for name in ("image", "classifier_out")} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert found.kind == "not_enough_evidence"
    assert not found.findings[0].proven
    assert str(found.findings[0].summary).endswith("which of the 14 nodes is wrong cannot be told")
    # One tensor in the middle that is right is a control: then it is one of those behind it.
    kept = ("image", "conv1/relu_out", "classifier_out")
    rows = tuple({name: each[name] for name in kept} for each in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)))
    assert "one of the 12 nodes between 'conv1/relu_out' and 'classifier_out'" in str(found.findings[0].summary)
    assert found.findings[0].remedy is not None
    assert str(found.findings[0].remedy.title).startswith("dump tensors between")


def redumped(case: PlantedCase, change: Callable[[str, Array], Array]) -> PlantedCase:
    """The same case with other tensors in its dump."""
    assert case.dumps is not None
    rows = tuple({name: change(name, array) for name, array in each.items()} for each in case.dumps.samples)
    return replace(case, dumps=replace(case.dumps, samples=rows))


def clean(name: str) -> PlantedCase:
    return dict(clean_cases("plain", 0))[f"clean-dump-{name}"]()


def channels_last(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array


ODD = "conv3/relu_out"


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (lambda array: array, channels_last),
        (channels_last, lambda array: channels_last(np.swapaxes(array, -1, -2))),
    ],
    ids=["channels last among others", "rows and columns exchanged among channels last"],
)
def test_one_tensor_in_a_layout_of_its_own(usual: Callable[[Array], Array], odd: Callable[[Array], Array]) -> None:
    case = redumped(clean("integer"), lambda name, array: (odd if name == ODD else usual)(array))
    found = diagnosed(case)
    assert [(each.cause, each.tensors[0]) for each in found.findings] == [("layout", ODD)]
    assert "in the dump only" in str(found.findings[0].summary)


def test_codes_in_half_precision_are_no_half_precision() -> None:
    case = redumped(clean("integer-alone"), lambda _name, array: array.astype(np.float16))
    found = diagnosed(case, with_quantized=False)
    assert (found.kind, found.findings) == ("healthy", ())
    assert str(found.checks[0].result).endswith("codes of integers")


def test_an_input_may_have_a_layout_of_its_own() -> None:
    found = diagnosed(redumped(clean("integer"), lambda n, x: channels_last(x) if n == "image" else x))
    assert (found.kind, found.findings) == ("healthy", ())


def run_with(change: Callable[[Array], Array], *, tensor: str = "", with_quantized: bool = True) -> Diagnosis:
    """What is said of an integer device whose input, or one of whose tensors, is changed."""
    network = subject("plain", 0)
    samples = few_samples(network)
    patches = {tensor: lambda array, _index, _held: change(array)} if tensor else {}
    fed = samples if tensor else {name: change(array).astype(np.float32) for name, array in samples.items()}
    rows = Device(network, network.healthy, patches=patches).run(fed)
    rows = rows if tensor else [{name: array for name, array in each.items() if name != "image"} for each in rows]
    known = network.healthy if with_quantized else network.model
    return diagnose_device(known, ArraySamples(samples), HeldDumps(rows))


@pytest.mark.parametrize("gain", [0.4, 1.7])
def test_the_gain_of_an_input_that_was_not_dumped_is_found(gain: float) -> None:
    (finding,) = run_with(lambda image: image * gain + 0.1).accused
    assert (finding.cause, finding.measures[0].improved) == ("preprocessing", True)
    assert f"{gain} times that" in str(finding.summary)


@pytest.mark.parametrize(
    ("given", "made", "flipped"),
    [
        ("x / 127.5 - 1", "x / 255", False),
        ("(x / 255 - mean) / std of ImageNet", "x / 255", True),
        ("(x / 255 - mean) / std of ImageNet", "(x / 255 - mean) / std of CLIP", False),
        ("(x / 255 - mean) / std of ImageNet", "(x / 255 - mean) / std of CLIP", True),
    ],
)
def test_how_an_input_that_was_not_dumped_was_made_is_named(given: str, made: str, flipped: bool) -> None:
    ways = {str(each.words): each for each in preparations(3)}

    def changed(image: Array) -> Array:
        found = ways[made].made(ways[given].undone(image, 1), 1)
        return np.flip(found, 1) if flipped else found

    (finding,) = run_with(changed).accused
    assert finding.cause == "preprocessing"
    exchanged = ", with red and blue exchanged" if flipped else ""
    assert str(finding.summary).endswith(f"but {made} where that is {given}{exchanged}")


def test_rows_and_columns_of_an_input_that_was_not_dumped() -> None:
    (finding,) = run_with(lambda image: np.swapaxes(image, -1, -2)).accused
    assert finding.cause == "preprocessing"
    assert "rows and columns exchanged" in str(finding.summary)


def test_rows_and_columns_of_an_input_under_a_name_that_says_nothing() -> None:
    """Values find it in another order of axes, but no device stores a picture so: it was fed that."""
    network = subject("plain", 0)
    samples = few_samples(network)
    fed = {name: np.swapaxes(array, -1, -2).copy() for name, array in samples.items()}
    rows = [{f"t{at}": row[name] for at, name in enumerate(row)} for row in Device(network).run(fed)]
    (finding,) = diagnose_device(network.model, ArraySamples(samples), HeldDumps(rows)).accused
    assert finding.cause == "preprocessing"
    assert "height and width are exchanged" in str(finding.summary)


def test_a_gain_behind_an_input_that_was_not_dumped_is_not_the_inputs() -> None:
    case = planted("requantized-wrong")
    assert case.dumps is not None
    network = subject("plain", 0)
    first = network.nodes[network.readers("image")[0]].output[0]
    tensor = first if first in case.dumps.samples[0] else network.nodes[network.readers(first)[0]].output[0]
    rows = Device(network, network.healthy, patches={tensor: lambda x, _i, _h: x * np.float32(0.5)}).run(
        few_samples(network)
    )
    rows = [{name: array for name, array in each.items() if name != "image"} for each in rows]
    found = diagnose_device(network.healthy, ArraySamples(few_samples(network)), HeldDumps(rows))
    assert [each.cause for each in found.accused] == ["wrong-dequantization"]


@pytest.mark.parametrize("with_quantized", [True, False])
def test_a_gain_although_codes_end_early(with_quantized: bool) -> None:
    network = subject("plain", 0)
    tensor = "conv3/relu_out"
    coded = next(each for each in network.healthy.quantizers if each.tensor == tensor)
    end = float(coded.params.scale) * (255 - int(coded.params.zero_point))
    found = run_with(lambda x: np.minimum(x * np.float32(2.0), end), tensor=tensor, with_quantized=with_quantized)
    (finding,) = found.accused
    assert (finding.cause, finding.tensors[0]) == ("wrong-dequantization", tensor)
    assert finding.evidence["gain"] == pytest.approx(2.0, rel=0.05)


def test_large_values_of_integers_are_not_taken_for_half_precision() -> None:
    """Limited to 65504, values a million times as large are next to nothing, which is near a quarter of them."""
    network, tensor = subject("plain", 0), "conv3/relu_out"
    first, second = network.nodes["conv3"], network.nodes[network.readers(tensor)[0]]
    changes = {name: network.weights[name] * 1e8 for name in first.input[1:3]}
    changes[second.input[1]] = network.weights[second.input[1]] * 1e-8
    model = with_weights(network.model, changes)
    large = replace(network, built=replace(network.built, model=model))
    wrong = Device(large, large.healthy, patches={tensor: lambda x, _i, _h: x * np.float32(0.25)})
    samples = few_samples(large)
    found = diagnose_device(large.healthy, ArraySamples(samples), HeldDumps(wrong.run(samples)))
    assert [(each.cause, each.tensors[0]) for each in found.accused] == [("wrong-dequantization", tensor)]


def test_what_a_device_makes_of_nan_that_it_was_fed_is_no_fault_of_it() -> None:
    """That sample is left out, and speaks against a good word; where there are no others nothing can be said."""
    _, make = next(each for each in clean_cases("plain", 0) if each[1]().dumps is not None)
    case = make()
    name = next(iter(case.samples))
    spoilt = np.array(case.samples[name])
    spoilt[0].flat[0] = np.nan
    found = diagnosed(replace(case, samples={**case.samples, name: spoilt}))
    assert (found.kind, found.findings) == ("not_enough_evidence", ())
    assert found.judgement is not None
    assert "nonfinite_inputs" in [each.kind for each in found.judgement.doubts]
    spoilt[:] = np.nan
    with pytest.raises(BadInput, match="All samples to compare hold NaN"):
        diagnosed(replace(case, samples={**case.samples, name: spoilt}))
