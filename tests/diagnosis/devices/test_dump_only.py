"""What is wrong in the dump alone accuses no kernel; what is wrong in single channels is named with them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted.case import PlantedCase
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.naming import named
from benchmarks.planted.subject import subject
from benchmarks.planted.variants import some_tensors
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.diagnosis.causes.device_tensors import robust_line
from roundoff.diagnosis.devices.expectation import Expected
from roundoff.diagnosis.devices.proof import ChannelLine, channel_lines, lines_text, with_lines
from roundoff.diagnosis.devices.replay import Pair
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps, diagnosed
from tests.diagnosis.devices.test_causes import ODD, clean, redumped, run_with

RIGHT = "the device computes what it should"


def in_channel(channel: int, change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def changed(values: Array) -> Array:
        made = values.copy()
        made[:, channel] = change(made[:, channel])
        return made

    return changed


def dumped(change: Callable[[Array], Array], kind: str = "float") -> Diagnosis:
    case = redumped(clean(kind), lambda name, array: change(array) if name == ODD else array)
    return diagnosed(case, with_quantized=kind == "integer")


def noisy(values: Array) -> Array:
    rng = np.random.default_rng(0)
    return (values + rng.normal(0, 0.3 * values.std(), values.shape)).astype(np.float32)


def one_nan(values: Array) -> Array:
    made = values.copy()
    made.reshape(-1)[7] = np.nan
    return made


@pytest.mark.parametrize("kind", ["float", "integer"])
@pytest.mark.parametrize(
    ("change", "cause", "told"),
    [
        (in_channel(3, lambda x: x * np.float32(0.5)), "wrong-dequantization", "is 0.5 times what it should be"),
        (in_channel(3, lambda x: x + np.float32(2)), "wrong-dequantization", "is what it should be +2"),
        (in_channel(3, np.zeros_like), "wrong-dump", "channel 3"),
        (noisy, "wrong-dump", "of its values are off"),
        (one_nan, "not-finite", "are NaN"),
    ],
    ids=["gain", "offset", "lost channel", "noise", "nan"],
)
def test_headline_and_finding_agree_that_the_dump_is_wrong(
    change: Callable[[Array], Array], cause: str, told: str, kind: str
) -> None:
    found = dumped(change, kind)
    (finding,) = found.findings
    assert str(found.verdict).startswith(RIGHT)
    assert (finding.cause, finding.tensors[0], finding.proven) == (cause, ODD, True)
    assert told in str(finding.summary)
    assert "in the dump only" in str(finding.summary)
    assert finding.remedy is not None
    assert str(finding.remedy.title).endswith("the device itself is right")
    assert finding.measures[0].improved
    assert not found.notes


def test_values_that_are_not_finite_are_counted_in_all_samples() -> None:
    found = dumped(one_nan)
    size = found.samples * clean("float").dumps.samples[0][ODD].size  # type: ignore[union-attr]
    assert f"{found.samples} of {size} values" in str(found.findings[0].summary)


def test_a_gain_of_one_channel_that_flows_on_is_named_with_it() -> None:
    found = run_with(in_channel(3, lambda x: x * np.float32(0.5)), tensor=ODD)
    (finding,) = found.accused
    assert (finding.cause, finding.evidence["channel"]) == ("wrong-dequantization", 3)
    assert f"channel 3 of '{ODD}' is" in str(finding.summary)
    assert "what reads it goes on with that" in str(finding.summary)
    assert not str(found.verdict).startswith(RIGHT)


def test_channels_that_are_exchanged_but_for_a_summand_are_no_layout() -> None:
    """Weights of two channels are exchanged, and their biases are not."""

    def exchanged(values: Array) -> Array:
        made = values.copy()
        made[:, [2, 7]] = values[:, [7, 2]] + np.float32(0.2 * values.std())
        return made

    (finding,) = run_with(exchanged, tensor=ODD).accused
    assert finding.cause == "kernel-fault"
    assert "almost all in channels 2, 7 of" in str(finding.summary)


def test_all_channels_that_are_exchanged_are_named_without_dots() -> None:
    def exchanged(values: Array) -> Array:
        made = values.copy()
        made[:, [2, 7]] = values[:, [7, 2]]
        return made

    (finding,) = run_with(exchanged, tensor=ODD).accused
    assert finding.cause == "layout"
    assert "(2 holds 7, 7 holds 2)" in str(finding.summary)


def test_a_dump_that_is_one_sample_late_is_stale_and_the_device_right() -> None:
    case = clean("float")
    assert case.dumps is not None
    rows = case.dumps.samples
    late = tuple({**own, ODD: other[ODD]} for own, other in zip(rows, (*rows[1:], rows[0]), strict=True))
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=late)), with_quantized=False)
    (finding,) = found.findings
    assert finding.cause == "stale-tensor"
    assert "in the dump only" in str(finding.summary)
    assert str(found.verdict).startswith(RIGHT)


def pair(exact: Array, found: Array) -> Pair:
    return Pair(found, exact, Expected(np.asarray(1e-4), 1e-10))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 11),
    st.floats(0.2, 5),
    st.floats(-3, 3).filter(lambda offset: abs(offset) > 0.1),
)
def test_gain_and_offset_of_a_channel_are_found_again(seed: int, channel: int, gain: float, offset: float) -> None:
    exact = np.random.default_rng(seed).standard_normal((1, 12, 6, 6))
    planted = ChannelLine(channel, gain, offset)
    (line,) = channel_lines([pair(exact, with_lines(exact, [planted]))], robust_line)
    assert line.channel == channel
    assert line.gain == pytest.approx(gain, rel=1e-3, abs=1e-3)
    assert line.offset == pytest.approx(offset, abs=1e-2)


def test_no_lines_where_nothing_or_much_or_something_else_is_wrong() -> None:
    exact = np.random.default_rng(0).standard_normal((1, 12, 6, 6))
    assert channel_lines([pair(exact, exact)], robust_line) == ()
    assert channel_lines([pair(exact, exact * 2)], robust_line) == ()
    other = in_channel(3, lambda x: x[..., ::-1])(exact)
    assert channel_lines([pair(exact, other)], robust_line) == ()
    assert channel_lines([pair(exact[0, 0], exact[0, 0])], robust_line) == ()


def test_lines_in_words() -> None:
    half, twice = ChannelLine(3, 0.5, 0.0), ChannelLine(9, 2.0, 0.0)
    assert str(lines_text([half], "x")) == "channel 3 of 'x' is 0.5 times what it should be"
    assert str(lines_text([ChannelLine(3, 1.0, 0.25)], "x")) == "channel 3 of 'x' is what it should be +0.25"
    alike = [half, ChannelLine(4, 0.5, 0.0)]
    assert str(lines_text(alike, "x")) == "channels 3, 4 of 'x' are 0.5 times what they should be"
    assert "(3: 0.5 times, 9: 2 times)" in str(lines_text([half, twice], "x"))
    many = [ChannelLine(channel, 0.5, 0.0) for channel in range(7)]
    assert str(lines_text(many, "x")).startswith("channels 0, 1, 2, 3, 4 and 2 more of 'x' are")


def hashed(
    fault: str, family: str, seed: int, *, some: bool = False, exchanged: tuple[str, str] | None = None
) -> tuple[PlantedCase, Diagnosis]:
    """A planted case whose tensors have names that say nothing, in no order, but two have those of each other."""
    network = subject(family, seed)
    case = FAULTS[fault](network, network.rng(fault))
    assert case is not None
    if some:
        case = some_tensors(case, np.random.default_rng(0))
    case = named(case, "hashed", np.random.default_rng(0))
    assert case.dumps is not None
    names = dict(case.dumps.names)
    if exchanged is not None:
        names |= {exchanged[0]: exchanged[1], exchanged[1]: exchanged[0]}
    rows = tuple(
        {names[name]: row[name] for name in sorted(row, key=names.__getitem__)} for row in case.dumps.samples
    )
    known = case.quantized or case.model
    return case, diagnose_device(known, ArraySamples(case.samples), HeldDumps(rows, ordered=False))


@pytest.mark.parametrize(
    ("family", "seed", "some"),
    [("dense", 108, True), ("squeeze", 410, False)],  # one tensor; two, as an activation reads it
)
def test_a_layout_that_flows_on_is_not_undone_by_pairing(family: str, seed: int, some: bool) -> None:
    """Under names that say nothing a tensor follows in another order; a device that goes on with it is wrong."""
    case, found = hashed("layout-computed", family, seed, some=some)
    (finding,) = found.accused
    assert finding.cause == "layout"
    assert {*finding.nodes, *finding.tensors} & case.truths[0].nodes
    assert "goes on with that" in str(finding.summary)


@pytest.mark.parametrize(
    ("fault", "family", "seed"),
    [
        ("swapped-channels", "inverted", 108),
        ("fp16-inside", "pytorch-vit", 105),
        ("fp16-flushed", "two-sided", 103),
        ("operation-weights-misread", "paddle-depthwise", 102),
    ],
)
def test_a_wrong_tensor_between_known_ones_finds_its_partner_by_what_follows(
    fault: str, family: str, seed: int
) -> None:
    """Behind it something has its partner already: what lies between does not follow, and is looked at."""
    case, found = hashed(fault, family, seed)
    (finding,) = found.accused
    assert {*finding.nodes, *finding.tensors} & case.truths[0].nodes
    assert finding.cause in case.truths[0].causes
    files = None if found.judgement is None else found.judgement.coverage.files
    assert files is not None
    assert files.judged == files.there


def test_one_mislabelled_picture_among_few_is_told() -> None:
    case, found = hashed("layout-in-dump", "two-sided", 103)
    (finding,) = found.accused
    assert finding.cause == "layout"
    assert {*finding.nodes, *finding.tensors} & case.truths[0].nodes
    assert "in the dump only" in str(finding.summary)


def test_a_name_by_coincidence_does_not_outweigh_what_follows() -> None:
    """A compiler that counts for itself has names that the model gives to other tensors; behind a fault no value
    of the float model tells, but what the device's own tensors predict does."""
    exchanged = ("stage3/conv1/relu_out", "stage3/add/relu_out")
    case, found = hashed("operation-kernel-flipped", "residual", 0, exchanged=exchanged)
    (finding,) = found.accused
    assert {*finding.nodes, *finding.tensors} & case.truths[0].nodes
    assert not {*finding.tensors} & {*exchanged}
    files = None if found.judgement is None else found.judgement.coverage.files
    assert files is not None
    assert files.judged == files.there
