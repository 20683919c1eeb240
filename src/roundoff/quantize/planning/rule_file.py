"""The layout of a file of rules."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from roundoff.core.quant_plan import Precision, Rule, SelectorKind
from roundoff.errors import BadInput, nearest
from roundoff.quantize.planning.rules import parse_precision

__all__ = ["check_rules"]

_SELECTORS: tuple[SelectorKind, ...] = ("node", "tensor", "op", "between", "any")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _precise(value: Any) -> Any:
    try:
        if isinstance(value, dict):
            return parse_precision(",".join(f"{part}={dtype}" for part, dtype in value.items()))
        return parse_precision(value) if isinstance(value, str) else value
    except BadInput as error:
        raise ValueError(f"{error.what} {error.fix}") from error


_Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), BeforeValidator(_listed)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Between(_Table):
    start: _Names
    end: _Names


class _RuleTable(_Table):
    precision: Annotated[Precision, BeforeValidator(_precise)]
    node: _Names | None = None
    tensor: _Names | None = None
    op: _Names | None = None
    any: _Names | None = None
    between: _Between | None = None

    @model_validator(mode="after")
    def _one_selector(self) -> "_RuleTable":
        given = self.given()
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(_SELECTORS)}; got {', '.join(given) or 'none'}")
        return self

    def given(self) -> dict[SelectorKind, Any]:
        """What selects the nodes."""
        return {kind: getattr(self, kind) for kind in _SELECTORS if getattr(self, kind) is not None}

    def rule(self) -> Rule:
        """As the planner takes it."""
        kind, value = next(iter(self.given().items()))
        if isinstance(value, _Between):
            return Rule(kind, tuple(value.start), self.precision, tuple(value.end))
        return Rule(kind, tuple(value), self.precision)


class _RulesFile(_Table):
    rule: list[_RuleTable]


def check_rules(content: dict[str, Any], path: Path) -> tuple[Rule, ...]:
    """The rules of a file that was read.

    Raises:
        BadInput: It is not of that form; all errors are named.
    """
    try:
        return tuple(table.rule() for table in _RulesFile.model_validate(content).rule)
    except ValidationError as error:
        problems = [_explain(item) for item in error.errors()]
    count = "an error" if len(problems) == 1 else f"{len(problems)} errors"
    lines = "\n".join(f"  {problem}" for problem in problems)
    raise BadInput(f"The file of rules {path} has {count}:\n{lines}", fix="correct it; see docs/reference/plan.md")


def _explain(error: Any) -> str:
    # Rules are counted from 1, as people do.
    where = [str(part + 1) if isinstance(part, int) else part for part in error["loc"]]
    place = " ".join(where) or "the file"
    if error["type"] == "extra_forbidden":
        table = _RulesFile if len(where) == 1 else _Between if "between" in where else _RuleTable
        return f"{place}: unknown key; {nearest(where[-1], table.model_fields)}"
    if error["type"] == "missing":
        return f"{place}: missing"
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"
