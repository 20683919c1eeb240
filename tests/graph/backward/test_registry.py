from pathlib import Path

from roundoff.graph.backward.registry import BLIND, CODING, STEPWISE, rules


def test_every_rule_is_tested() -> None:
    folder = Path(__file__).parent / "rules"
    tested = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    assert [op_type for op_type in rules() if f'"{op_type}"' not in tested] == []


def test_an_operation_with_a_rule_is_in_no_other_class() -> None:
    assert set(rules()).isdisjoint(BLIND | CODING | STEPWISE)
