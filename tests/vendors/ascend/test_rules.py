"""From an offline operator to the originals it stands for."""

import json
from pathlib import Path
from typing import Any

import pytest

from roundoff.vendors.ascend.counterparts import mark_pairs
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.rules import FusionRule, read_rule, relation_of
from roundoff.vendors.ascend.scenarios import through_quantization, without_fusion
from tests.ascend_dumps import vectors
from tests.vendors.ascend.models import attr, op, output, write_model


def ignore(text: str) -> None:
    """Nobody is warned."""


def marked(path: Path) -> FusionRule:
    rule = read_rule(path)
    mark_pairs(rule, warn=ignore)
    return rule


def described(rule: FusionRule) -> list[dict[str, Any]]:
    return [
        {
            "index": found.index, "op_name": found.name, "op_type": found.type, "sequence": found.sequence,
            "group_size": len(group), "relation": relation_of(group).value,
            "original_op_names": list(found.originals), "quant_filter": found.in_quant_pair,
            "inner_node": found.inner, "inputs": list(found.inputs),
            "outputs": [
                {
                    "origin_name": origin.name, "origin_output_index": origin.index,
                    "origin_format": origin.format, "origin_shape": list(origin.shape), "dtype": origin.dtype,
                }
                for origin in found.outputs
            ],
        }
        for group in rule.groups.values()
        for found in group
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["om_fused", "om_quant_on", "om_relations", "quant"])
def test_samples_of_the_vendor(name: str) -> None:
    expected = json.loads((vectors("mapping") / f"{name}.mapping.json").read_text())
    rule = marked(vectors("net") / f"{name}.json")
    assert described(rule) == expected["ops"]
    assert rule.input_nodes == expected["input_nodes"]


def test_a_sample_of_the_vendor_through_quantization() -> None:
    expected = json.loads((vectors("mapping") / "merge_om_quant_on+quant.json").read_text())
    net = vectors("net")
    merged = through_quantization(marked(net / "om_quant_on.json"), marked(net / "quant.json"), warn=ignore)
    assert described(merged) == expected["ops"]


@pytest.mark.parametrize(
    ("file", "count"), [("msit_ut/test.om.json", 132), ("msprobe_infer_ut/model.json", 19)], ids=["large", "small"]
)
def test_real_models_are_read(file: str, count: int) -> None:
    assert len(marked(vectors("upstream") / file).in_order) == count


def test_relations(tmp_path: Path) -> None:
    l1 = [attr("_L1_fusion_sub_graph_no", "s", "7")]
    many = [attr("_datadump_is_multiop", "b", True)]
    rule = read_rule(write_model(
        tmp_path / "m.json",
        op("own"), op("made", originals=[]), op("fused", originals=["a", "b"]),
        op("part1", originals=["c"]), op("part2", originals=["c"]),
        op("m1", originals=["d", "e"], more=many, outputs=[output()]),
        op("m2", originals=["d", "e"], more=many, outputs=[output(origin="e")]),
        op("l1", originals=["f"], more=l1), op("l2", originals=["g"], more=l1),
    ))  # fmt: skip
    found = [(relation_of(group).value, [one.name for one in group]) for group in rule.groups.values()]
    assert found == [
        ("OneToOne", ["own"]), ("OneToOne", ["made"]), ("MultiToOne", ["fused"]),
        ("OneToMulti", ["part1", "part2"]), ("MultiToMulti", ["m1", "m2"]), ("L1Fusion", ["l1", "l2"]),
    ]  # fmt: skip
    assert [one.inner for one in rule.in_order if one.name in ("m1", "m2")] == [True, False]


def test_outputs_are_the_operators_own_unless_it_was_fused(tmp_path: Path) -> None:
    rule = read_rule(write_model(
        tmp_path / "m.json", op("own", outputs=[output()]), op("new", originals=["old"], outputs=[output()]),
        op("made", originals=[], outputs=[output()]), op("bare"),
    ))  # fmt: skip
    origins = {one.name: [origin.name for origin in one.outputs] for one in rule.in_order}
    assert origins == {"own": ["own"], "new": ["old"], "made": [""], "bare": ["bare"]}


def test_an_output_past_the_end_is_the_first_and_one_of_nothing_is_refused(tmp_path: Path) -> None:
    rule = read_rule(write_model(
        tmp_path / "m.json", op("a", outputs=[output(index=3)]), op("made", originals=[], outputs=[output()]),
    ))  # fmt: skip
    told: list[str] = []
    assert rule.find("a", warn=ignore).origin(7, warn=ignore).index == 3
    with pytest.raises(NotCompared):
        rule.find("made", warn=ignore).origin(0, warn=told.append)
    with pytest.raises(NotCompared, match='There is no "nowhere"'):
        rule.find("nowhere", warn=told.append)
    assert told == ["The origin name of the made:0 is empty.", 'There is no "nowhere" in the fusion rule file.']


def test_control_edges_and_slices_are_left_out(tmp_path: Path) -> None:
    rule = read_rule(write_model(
        tmp_path / "m.json", op("a_lxslice0"), op("a_lxslice1"), op("b", inputs=["a_lxslice0:0", "a:-1", ""]),
    ))  # fmt: skip
    assert [one.name for one in rule.in_order] == ["a", "b"]
    assert rule.in_order[1].inputs == ("a:0",)


def test_operators_between_quantizers_are_marked(tmp_path: Path) -> None:
    codes = output(dtype="DT_INT8")
    rule = marked(write_model(
        tmp_path / "m.json", op("x", "Data", outputs=[output()]),
        op("x.quant", inputs=["x:0"], outputs=[codes]), op("conv", inputs=["x.quant:0"], outputs=[codes]),
        op("conv.dequant", inputs=["conv:0"], outputs=[output()]), op("relu", inputs=["conv.dequant:0"]),
    ))  # fmt: skip
    assert [one.name for one in rule.in_order if one.in_quant_pair] == ["conv"]


def test_a_quantizer_of_a_wrong_type_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    rule = read_rule(write_model(tmp_path / "m.json", op("x_quant_layer", outputs=[output(dtype="DT_FLOAT")])))
    mark_pairs(rule, warn=told.append)
    assert told == [
        "[x_quant_layer] this op looks like a quantization op, but it does not have proper output type"
    ]


def test_fusion_is_undone_by_the_model_without_it(tmp_path: Path) -> None:
    fused = read_rule(write_model(
        tmp_path / "on.json", op("t1", "TransData", originals=[]),
        op("ab", originals=["a", "b"], inputs=["t1:0"], outputs=[output(origin="b", index=0)]),
        op("t2", "TransData", originals=[], inputs=["ab:0"]),
    ))  # fmt: skip
    unfused = read_rule(write_model(
        tmp_path / "off.json", op("A", originals=["a"], outputs=[output(origin="a")]),
        op("B", originals=["b"], outputs=[output(origin="c"), output(origin="b", index=0)]),
    ))  # fmt: skip
    for strict in (False, True):
        merged = without_fusion(fused, unfused, warn=ignore, strict=strict)
        found = merged.find("ab", warn=ignore)
        assert found.originals == ("A", "B")
        assert (found.outputs[0].name, found.outputs[0].index) == ("B", 1)
        # The vendor loses all but one of the operators that the compiler made.
        names = [one.name for one in merged.in_order]
        assert names == (["ab", "t2"] if strict else ["t1", "ab", "t2"])


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"graph": 3}', '{"graph": [{"op": [{"name": 3}]}]}', '{"graph": [{"op": [{"name": "a"}]}]}',
     '{"graph": [{"op": [{"name": "a", "type": "b", "input": 3}]}]}', '{"graph": [3]}', "[" * 100_000,
     '{"graph": [{"op": [{"name": "a", "type": "b", "attr": [{"key": "_datadump_is_multiop", "value": 1}]}]}]}',
     ('{"graph": [{"op": [{"name": "a", "type": "b", "attr": [{"key": "_datadump_original_op_names", '
     '"value": {"list": {"s": 5}}}]}]}]}'),
     ('{"graph": [{"op": [{"name": "a", "type": "b", "output_desc": [{"attr": [{"key": "origin_shape", '
     '"value": {"list": {"i": ["x"]}}}]}]}]}]}')],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(Refused) as caught:
        read_rule(path)
    assert caught.value.exit_code == Code.JSON
    assert caught.value.fix


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        read_rule(tmp_path / "none.json")
