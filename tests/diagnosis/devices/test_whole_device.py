"""What a whole device does is no fault; what one place does is, as far as it can be told."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import rounded_to
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.graph.load import Model
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps
from tests.models import value, wrapped

WIDTH, LAYERS, SAMPLES = 16, 5, 6
Change = Callable[[str, Array], Array]


@cache
def constants() -> Mapping[str, Array]:
    rng = np.random.default_rng(5)
    found = {}
    for at in range(LAYERS):
        found[f"w{at}"] = (rng.standard_normal((WIDTH, WIDTH)) * np.sqrt(2 / WIDTH)).astype(np.float32)
        found[f"b{at}"] = (0.3 * rng.standard_normal(WIDTH)).astype(np.float32)
    # What the last layer adds up cancels: roundoff is that of its operands.
    found[f"w{LAYERS - 1}"] += np.float32(1)
    found[f"b{LAYERS - 1}"] -= np.float32(0.6 * WIDTH)
    return found


def network() -> Model:
    nodes = []
    for at in range(LAYERS):
        read = f"relu{at - 1}" if at else "x"
        nodes.append(helper.make_node("MatMul", [read, f"w{at}"], [f"dense{at}"], name=f"dense{at}"))
        nodes.append(helper.make_node("Add", [f"dense{at}", f"b{at}"], [f"sum{at}"], name=f"sum{at}"))
        if at < LAYERS - 1:
            nodes.append(helper.make_node("Relu", [f"sum{at}"], [f"relu{at}"], name=f"relu{at}"))
    weights = [numpy_helper.from_array(each, name) for name, each in constants().items()]
    shape = (1, 8, WIDTH)
    model = wrapped(nodes, [value("x", shape)], [value(f"sum{LAYERS - 1}", shape)], weights)
    return Model(model, Path("net.onnx"), model.ByteSize())


def samples() -> Array:
    return np.random.default_rng(9).standard_normal((SAMPLES, 8, WIDTH)).astype(np.float32)


def plain(values: Array) -> Array:
    return np.asarray(values, np.float32)


def bfloat16(values: Array) -> Array:
    return rounded_to(values, "bfloat16")


def half(values: Array) -> Array:
    return rounded_to(values, "float16")


def as_it_is(_name: str, values: Array) -> Array:
    return values


def board(
    operands: Callable[[str, Array], Array],
    stored: Change,
    *,
    left_out: str = "",
    fed: Callable[[Array], Array] = plain,
) -> list[dict[str, Array]]:
    """What a device writes: operands of products as it has them, results as it stores them."""
    rows = []
    held = constants()
    for sample in samples():
        now, row = stored("x", fed(sample[None])), {}
        for at in range(LAYERS):
            name = f"dense{at}"
            now = stored(name, operands(name, now) @ operands(name, held[f"w{at}"]))
            row[name] = now
            now = now if left_out == f"sum{at}" else stored(f"sum{at}", now + stored(f"b{at}", held[f"b{at}"]))
            row[f"sum{at}"] = now
            if at < LAYERS - 1:
                now = row[f"relu{at}"] = np.maximum(now, 0)
        rows.append(row)
    return rows


def always(how: Callable[[Array], Array]) -> Change:
    return lambda _, values: how(values)


def diagnosis(rows: list[dict[str, Array]]) -> Diagnosis:
    return diagnose_device(network(), ArraySamples({"x": samples()}), HeldDumps(rows))


def accused(found: Diagnosis) -> list[tuple[str, str]]:
    return [(each.cause, each.tensors[0]) for each in found.findings if each.proven]


@pytest.mark.parametrize(
    ("operands", "stored"),
    [(bfloat16, bfloat16), (half, half), (half, plain), (bfloat16, plain)],
    ids=["bfloat16", "float16", "TF32", "bfloat16 products"],
)
def test_the_precision_of_all_layers_is_no_fault(
    operands: Callable[[Array], Array], stored: Callable[[Array], Array]
) -> None:
    rows = board(always(operands), always(stored))
    found = diagnosis(rows)
    assert found.kind == "healthy"
    assert not found.findings
    # One that adds no bias is found beside it, and one layer of another precision than the others.
    assert accused(diagnosis(board(always(operands), always(stored), left_out="sum2"))) == [
        ("kernel-fault", "sum2")
    ]


def test_the_precision_of_one_layer_is_one() -> None:
    found = diagnosis(board(lambda name, each: half(each) if name == "dense2" else each, always(plain)))
    assert accused(found) == [("kernel-fault", "dense2")]


def coded(ends: Mapping[str, float]) -> Change:
    """8 bits for each tensor, over its values in float times some factor."""
    right = board(as_it_is, as_it_is)

    def stored(name: str, values: Array) -> Array:
        if name not in right[0]:
            return values
        low, high = (float(end([end(row[name]) for row in right])) for end in (np.min, np.max))
        low, high = min(low, 0.0) * ends.get(name, 1.0), max(high, 0.0) * ends.get(name, 1.0)
        step = (high - low) / 255
        codes = np.clip(np.rint((values - low) / step), 0, 255)
        return np.asarray(codes * step + np.rint(low / step) * step, np.float32)

    return stored


def test_a_range_that_cuts_off_is_named_with_what_it_costs() -> None:
    assert diagnosis(board(as_it_is, coded({}))).kind == "healthy"
    found = diagnosis(board(as_it_is, coded({"sum2": 0.3})))
    assert accused(found) == [("clipping", "sum2")]
    proof = found.findings[0].measures[0]
    assert proof.after > proof.before + 10


@pytest.mark.parametrize("dumped", [True, False])
def test_an_input_that_is_cut_off_is_no_other_input(dumped: bool) -> None:
    for part, told in ((0.3, [("clipping", "x" if dumped else "sum0")]), (0.9, [])):
        ends = part * float(samples().min()), part * float(samples().max())
        rows = board(as_it_is, coded({}), fed=partial(np.clip, a_min=ends[0], a_max=ends[1]))
        for row, sample in zip(rows, samples(), strict=True):
            row.pop("dense0")
            row.update({"x": np.clip(sample[None], *ends)} if dumped else {})
        assert accused(diagnosis(rows)) == told


def test_what_one_class_loses_is_not_put_down_to_the_quantization() -> None:
    rows = board(as_it_is, coded({}))
    for row in rows:
        last = row[f"sum{LAYERS - 1}"]
        row[f"sum{LAYERS - 1}"] = last - np.float32(4 * last.std()) * (np.arange(WIDTH) == 3)
    assert diagnosis(rows).kind in ("culprits", "not_enough_evidence")


def test_one_old_sample_behind_the_first_is_told() -> None:
    rows = board(as_it_is, coded({}))
    rows[5]["sum4"] = rows[4]["sum4"]
    assert accused(diagnosis(rows)) == [("stale-tensor", "sum4")]


@pytest.mark.parametrize("dumped", [False, True])
def test_samples_in_another_order_are_told_as_that(dumped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a sample belongs to one that is not among those looked at."""
    monkeypatch.setattr(f"{__name__}.SAMPLES", 12)
    rows = [
        {**({"x": fed[None]} if dumped else {}), **row}
        for fed, row in zip(samples(), board(as_it_is, coded({})), strict=True)
    ]
    order = np.random.default_rng(3).permutation(len(rows)).tolist()
    found = diagnosis([rows[at] for at in order])
    assert accused(found) == [("sample-order", "x" if dumped else "dense0")]
    assert f"0 -> {order[0]}" in str(found.findings[0].summary)
    # One sample that stays is another thing than an order.
    stale = [*rows[:-1], rows[0]]
    assert accused(diagnosis(stale))[0][0] == ("sample-order" if dumped else "stale-tensor")


def test_a_bias_that_is_left_out_is_named_where_it_is() -> None:
    """Its tensor holds what the product should: values alone would call it right."""
    kept = [name for name in board(as_it_is, as_it_is)[0] if not name.startswith("dense")]
    rows = board(as_it_is, coded({}), left_out="sum2")
    renamed = [{f"node_{at}": row[name] for at, name in enumerate(kept)} for row in rows]
    found = diagnosis(renamed)
    assert accused(found) == [("kernel-fault", "sum2")]
    assert found.findings[0].nodes[0] == "sum2"
