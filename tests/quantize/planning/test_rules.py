"""Rules as people write them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.plan import Precision, Rule, rule_text
from roundoff.errors import BadInput
from roundoff.quantize.planning.rules import load_rules, parse_precision, parse_rule

WIDE = Precision("u16", "", "u16")
FLOAT = Precision("float", "float", "float")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Conv_3=u16", Rule("any", ("Conv_3",), WIDE)),
        (" Conv_3 = u16 ".replace(" = ", "="), Rule("any", ("Conv_3",), WIDE)),
        ("node:/model/conv 1=u16", Rule("node", ("/model/conv 1",), WIDE)),
        ("tensor:input:0=float", Rule("tensor", ("input:0",), FLOAT)),
        ("op:Softmax=FP32", Rule("op", ("Softmax",), FLOAT)),
        ("OP:Softmax=uint16", Rule("op", ("Softmax",), WIDE)),
        ("blocks.*.attn=int16", Rule("any", ("blocks.*.attn",), Precision("s16", "", "s16"))),
        ("between:a,b..c,d=u16", Rule("between", ("a", "b"), WIDE, ("c", "d"))),
        ("between:DEFAULT..DEFAULT=u16", Rule("between", ("DEFAULT",), WIDE, ("DEFAULT",))),
        ("x=activation=u16,weight=s8", Rule("any", ("x",), Precision("u16", "s8"))),
        ("x=weight=int4", Rule("any", ("x",), Precision(weight="s4"))),
        ("a=b=u16", Rule("any", ("a=b",), WIDE)),
        ("op:Conv=output=float", Rule("op", ("Conv",), Precision(output="float"))),
    ],
)
def test_rules_are_read(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Conv_3", "is not a precision rule.\nfix: write SELECTOR=PRECISION"),
        ("=u16", "is not a precision rule"),
        ("op:=u16", "names nothing before '='"),
        ("Conv=q8", "'q8' is no precision.\nfix: choose one of: u8, s8, u16"),
        ("Conv=", "is not a precision rule"),
        ("Conv=weight=s8,weight=s4", "names weight twice"),
        ("between:a=u16", "does not say between what"),
        ("between:a..=u16", "does not say between what"),
        ("between:a,..b=u16", "does not say between what"),
    ],
)
def test_what_is_no_rule_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_rule(text)


_NAMES = st.text("abAB/_.:*[]?0123", min_size=1).filter(
    lambda name: not name.startswith(("node:", "op:", "tensor:"))
)
_DTYPES = st.sampled_from(["u8", "s8", "u16", "s16", "s4", "float"])
_PRECISIONS = st.builds(Precision, *(st.one_of(st.just(""), _DTYPES) for _ in range(3))).filter(
    lambda precision: precision != Precision()
)


@given(kind=st.sampled_from(["node", "tensor", "op", "any"]), name=_NAMES, precision=_PRECISIONS)
def test_what_is_written_can_be_read_again(kind: str, name: str, precision: Precision) -> None:
    rule = Rule(kind, (name,), precision)  # type: ignore[arg-type]
    assert parse_rule(rule_text(rule)) == rule


def test_a_dtype_alone_leaves_the_weight_as_it_is() -> None:
    assert parse_precision("u16").weight == ""
    assert parse_precision("float").weight == "float"


def written(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_rules(tmp_path: Path) -> None:
    text = """
        [[rule]]
        node = "a=b, c"
        precision = "u16"
        [[rule]]
        op = ["Softmax", "Sigmoid"]
        precision = { activation = "float", output = "u16" }
        [[rule]]
        between = { start = "x", end = ["y", "z"] }
        precision = "float"
    """
    assert load_rules(written(tmp_path, text)) == (
        Rule("node", ("a=b, c",), WIDE),
        Rule("op", ("Softmax", "Sigmoid"), Precision("float", "", "u16")),
        Rule("between", ("x",), FLOAT, ("y", "z")),
    )


def test_all_errors_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    text = """
        rules = 1
        [[rule]]
        nodes = "a"
        precision = "q3"
        [[rule]]
        node = "a"
        op = "Conv"
        precision = "u8"
        [[rule]]
        tensor = []
        [[rule]]
        between = { start = "x", ends = "y" }
        precision = { weights = "s8" }
    """
    with pytest.raises(BadInput) as caught:
        load_rules(written(tmp_path, text))
    message = caught.value.what
    assert "has 9 errors" in message
    assert "rules: unknown key; did you mean 'rule'?" in message
    assert "rule 1 nodes: unknown key; did you mean 'node'?" in message
    assert "rule 1 precision: 'q3' is no precision." in message
    assert "rule 2: give exactly one of node, tensor, op, between, any; got node, op" in message
    assert "rule 3 precision: missing" in message
    assert "rule 3 tensor: List should have at least 1 item" in message
    assert "rule 4 between end: missing" in message
    assert "rule 4 between ends: unknown key; did you mean 'end'?" in message
    assert "rule 4 precision: 'weights=s8' in 'weights=s8' is no part of a node. did you mean 'weight'?" in message


@pytest.mark.parametrize(("text", "message"), [("= 1", "is not valid TOML"), ("", "rule: missing")])
def test_files_that_hold_no_rules_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_rules(written(tmp_path, text))
