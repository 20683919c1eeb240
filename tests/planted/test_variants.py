"""Dumps under other names, in other layouts and in part; boards that are right; samples that nobody had."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.case import PlantedCase
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.io_pairs import pair_cases
from benchmarks.planted.naming import STYLES, named
from benchmarks.planted.repairs import RepairCase, repair_cases
from benchmarks.planted.subject import computed, run, subject
from benchmarks.planted.suite import Choice, cases
from benchmarks.planted.variants import WAYS, channels_last, only_outputs, output_db, varied

from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs


def broken(family: str = "squeeze", fault: str = "operation-add-one-input") -> PlantedCase:
    network = subject(family, 0)
    case = FAULTS[fault](network, network.rng(fault))
    assert case is not None
    assert case.dumps is not None
    return case


@pytest.mark.parametrize("style", STYLES)
def test_a_style_renames_every_tensor_and_changes_no_value(style: str, tmp_path: Path) -> None:
    case = named(broken(), style, np.random.default_rng(0))
    assert case.dumps is not None
    case.write(tmp_path)
    if not case.dumps.names:
        return
    assert set(case.dumps.names) == set(case.dumps.samples[0])
    files = sorted(path.stem for path in (tmp_path / "dumps" / "0").iterdir())
    assert files == sorted(case.dumps.names.values())
    for tensor, name in case.dumps.names.items():
        assert np.array_equal(np.load(tmp_path / "dumps" / "2" / f"{name}.npy"), case.dumps.samples[2][tensor])
    if style in ("t_0017", "numbered", "counting down", "hashed", "kind and number"):
        assert not any("block" in name for name in files)
    if style == "kind and time stamp":
        assert all(re.fullmatch(r"[A-Za-z]+_\w+\.0\.\d{16}", name) for name in files)


def test_numbers_rise_with_the_execution_or_fall() -> None:
    for style, ordered in (("t_0017", True), ("numbered", True), ("counting down", False)):
        case = named(broken(), style, np.random.default_rng(0))
        assert case.dumps is not None
        names = list(case.dumps.names.values())
        assert names == sorted(names, reverse=not ordered)


def test_channels_last_of_a_cube_keeps_its_shape_and_not_its_values() -> None:
    case = broken()
    moved = channels_last(case)
    assert case.dumps is not None
    assert moved.dumps is not None
    before, after = case.dumps.samples[0], moved.dumps.samples[0]
    cubes = [name for name, values in before.items() if values.shape == (1, 20, 20, 20)]
    assert cubes
    for name in cubes:
        assert after[name].shape == before[name].shape
        assert np.array_equal(np.moveaxis(after[name], -1, 1), before[name])
        assert not np.array_equal(after[name], before[name])


def test_outputs_that_lie_channels_last_are_read_so() -> None:
    case = broken("unet", "operation-sign-flipped")
    assert output_db(channels_last(case)) == output_db(case)


def test_outputs_only_keeps_the_harm_and_says_that_it_is_somewhere() -> None:
    case = broken("unet", "operation-sign-flipped")
    less = only_outputs(case)
    assert less.dumps is not None
    assert list(less.dumps.samples[0]) == list(outputs(case.model))
    assert len(less.dumps.samples[0]) == 2
    assert output_db(less) == output_db(case) < 25
    assert [each.kind for each in less.truths] == ["somewhere"]


def test_every_way_and_style_comes_up() -> None:
    case = broken()
    seen = [
        varied(replace(case, seed=seed), np.random.default_rng(seed), number).dumps
        for seed in range(2)
        for number in range(20)
    ]
    assert {each.way for each in seen if each} == set(WAYS)
    assert {each.style for each in seen if each} == set(STYLES)


@pytest.mark.parametrize("family", ["unet", "gru"])
@pytest.mark.parametrize("name", ["w8a16", "half", "outputs-only", "float"])
def test_clean_boards_are_near_the_float_network(family: str, name: str) -> None:
    network = subject(family, 0)
    case = dict(clean_cases(family, 0))[f"clean-dump-{name}"]()
    assert case.is_clean
    least = {"w8a16": network.healthy_db, "half": 45.0, "outputs-only": 20.0, "float": 100.0}[name]
    assert output_db(case) > least


@pytest.mark.parametrize("family", ["pytorch-squeeze", "pytorch-vit", "paddle-depthwise"])
def test_exports_compute_what_the_network_does(family: str) -> None:
    network = subject(family, 0)
    plain = FAMILIES[family.split("-")[1]]
    rng = np.random.default_rng([0, list(FAMILIES).index(family)])
    own = plain(rng)
    values = run(own.model, own.samples, outputs(own.model))
    for name, mine in zip(outputs(network.model), values.values(), strict=True):
        assert np.allclose(network.values[name], mine, atol=1e-4)


def test_exports_have_what_converters_write() -> None:
    torch, paddle = subject("pytorch-vit", 0).model.proto.graph, subject("paddle-depthwise", 0).model.proto.graph
    kinds = [node.op_type for node in torch.node]
    assert {"Shape", "Gather", "Unsqueeze", "Concat", "Constant"} <= set(kinds)
    scalars = {
        node.output[0] for node in torch.node if node.op_type == "Constant" and not node.attribute[0].t.dims
    }
    assert any(node.op_type == "Gather" and node.input[1] in scalars for node in torch.node)
    assert not paddle.initializer
    assert [axis.dim_param for axis in paddle.input[0].type.tensor_type.shape.dim[2:]] == ["?", "?"]


def test_what_is_computed_excludes_constants_and_shapes() -> None:
    model = subject("pytorch-vit", 0).model
    kinds = {node.op_type for node in model.proto.graph.node if set(node.output) & set(computed(model))}
    assert "Constant" not in kinds
    assert "Shape" not in kinds
    assert set(outputs(model)) <= set(computed(model))


@pytest.mark.parametrize("family", ["two-sided", "vit", "gru"])
def test_other_samples_are_of_the_same_kind_and_not_the_same(family: str) -> None:
    built = subject(family, 0).built
    others, again = built.others(64), built.others(64)
    for name, values in built.samples.items():
        assert others[name].shape[1:] == values.shape[1:]
        assert np.array_equal(others[name], again[name])
        assert abs(float(others[name].std()) / float(values.std()) - 1) < 0.3
    first = next(iter(built.samples))
    known: list[Array] = list(built.samples[first])
    assert not any(np.array_equal(mine, theirs) for mine in others[first] for theirs in known)


def test_a_claim_is_read_and_measured_on_others(tmp_path: Path) -> None:
    repair = dict(repair_cases("plain", 0))["fix-clipped-activation/plain/0"]()
    assert isinstance(repair, RepairCase)
    assert repair.write(tmp_path)[0] == "diagnose"
    what = {"key": "diagnosis.measure_sqnr", "arguments": {"name": "logits"}}
    measure = {"after": 31.4, "unit": "dB", "what": what}
    claim = repair.claim({"diagnosis": {"repair": {"measures": [measure], "interval": None}}})
    assert claim is not None
    assert (claim.value, claim.unit, claim.slack, claim.part) == (31.4, "dB", 1.0, "logits")
    claim = repair.claim({"diagnosis": {"repair": {"measures": [measure], "interval": [28.4, 32.0]}}})
    assert claim is not None
    # Others have at least the lower end.
    assert (claim.value, claim.slack) == (28.4, 0.0)
    assert repair.claim({"diagnosis": {"repair": None}}) is None
    held = {"score": 0.97, "float_score": 1.0, "interval": [0.0, 0.08], "samples": 9}
    share = repair.__class__(repair.case, "tune", repair.others).claim(
        {"tuning": {"metric": "t", "holdout": held}}
    )
    assert share is not None
    assert share.slack == pytest.approx(0.05)


def test_pairs_that_are_clean_differ_by_little() -> None:
    for name, make in pair_cases(0):
        pair = make()
        one, other = pair.sides
        assert one.shape != other.shape or not np.array_equal(one, other), name
        if pair.is_clean and "strong" not in name and "others" not in name:
            # Sharpening changes pictures made of noise, which stand in where there are no photographs, by 0.37.
            assert float(np.abs(one - other).mean()) < 0.4 * float(one.std()), name


def test_a_part_of_the_suite_is_chosen_by_name() -> None:
    names = [case.name for case in cases(Choice([0], "clean-io-*"))]
    parts = [[case.name for case in cases(Choice([0], "clean-io-*", (part, 3)))] for part in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert len(names) == 29
