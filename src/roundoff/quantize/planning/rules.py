"""Requests as people write them: ``SELECTOR=PRECISION`` on the command line, and TOML files of them."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from roundoff.core.plan import FLOAT, PRECISION_PARTS, Precision, Rule, SelectorKind, rule_text
from roundoff.core.untrusted import read_toml
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.quantize.planning.view import GraphView

_DTYPE = re.compile(r"[us][1-9][0-9]?")
# What vendors and people call the same.
_ALIASES = {
    "int4": "s4", "int8": "s8", "int16": "s16", "uint4": "u4", "uint8": "u8", "uint16": "u16",
    "i4": "s4", "i8": "s8", "i16": "s16",
    "fp32": FLOAT, "float32": FLOAT, "f32": FLOAT,
}  # fmt: skip
_PART = f"(?:{'|'.join(PRECISION_PARTS)})=\\w+"
_RULE = re.compile(rf"(?P<selector>.+?)=(?P<precision>\w+|{_PART}(?:,{_PART})*)", re.IGNORECASE | re.DOTALL)
_KIND = re.compile(r"(node|tensor|op|between):", re.IGNORECASE)
_EXAMPLE = english(
    "write SELECTOR=PRECISION, e.g. Conv_3=u16, op:Softmax=float or between:x..y=activation=u16,weight=s8"
)


def parse_rule(text: str) -> Rule:
    """Read ``SELECTOR=PRECISION``.

    Raises:
        BadInput: It is not of that form.
    """
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise BadInput(english("{text!r} is not a precision rule.", text=text), fix=_EXAMPLE)
    precision = parse_precision(match["precision"])
    selector = match["selector"].strip()
    prefix = _KIND.match(selector)
    name = selector[prefix.end() :].strip() if prefix else selector
    kind: Any = prefix[1].lower() if prefix else "any"
    if kind != "between":
        if not name:
            raise BadInput(english("{text!r} names nothing before '='.", text=text), fix=_EXAMPLE)
        return Rule(kind, (name,), precision)
    start, dots, end = name.partition("..")
    starts, ends = (tuple(part.strip() for part in side.split(",")) for side in (start, end))
    if not dots or not all(starts) or not all(ends):
        raise BadInput(
            english("{text!r} does not say between what.", text=text),
            fix=english("write between:a,b..c,d=u16, with tensor names"),
        )
    return Rule("between", starts, precision, ends)


def parse_precision(text: str) -> Precision:
    """Read a dtype for the whole node (``u16``, ``float``) or for parts of it (``activation=u16,weight=s8``).

    A dtype alone is that of activations and output; ``float`` alone is that of the weight as well.

    Raises:
        BadInput: A part or a dtype is unknown, or a part is named twice.
    """
    if "=" not in text:
        dtype = _dtype(text)
        return Precision(dtype, FLOAT if dtype == FLOAT else "", dtype)
    parts: dict[str, str] = {}
    for piece in text.split(","):
        name, equals, value = (word.strip() for word in piece.partition("="))
        if not equals or name.lower() not in PRECISION_PARTS:
            raise BadInput(
                english("{piece!r} in {text!r} is no part of a node.", piece=piece.strip(), text=text),
                fix=nearest(name, PRECISION_PARTS),
            )
        if name.lower() in parts:
            raise BadInput(
                english("{text!r} names {name} twice.", text=text, name=name), fix=english("give each part once")
            )
        parts[name.lower()] = _dtype(value)
    return Precision(**parts)


def _dtype(text: str) -> str:
    word = text.strip().lower()
    dtype = _ALIASES.get(word, word)
    if dtype != FLOAT and not _DTYPE.fullmatch(dtype):
        raise BadInput(
            english("{text!r} is no precision.", text=text),
            fix=nearest(word, ["u8", "s8", "u16", "s16", "s4", FLOAT]),
        )
    return dtype


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Read a TOML file of ``[[rule]]`` tables; all its errors are named at once.

    Raises:
        BadInput: The file cannot be read, or is not of that form.
    """
    return check_rules(read_toml(path, what=english("The file of rules")), path)


# The layout of a file of rules.

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


class _StrictTable(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Between(_StrictTable):
    start: _Names
    end: _Names


class _RuleTable(_StrictTable):
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


class _RulesFile(_StrictTable):
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
    count = english("an error") if len(problems) == 1 else english("{count} errors", count=len(problems))
    lines = "\n".join(f"  {problem}" for problem in problems)
    raise BadInput(
        english("The file of rules {path} has {count}:\n{lines}", path=path, count=count, lines=lines),
        fix=english("correct it; see 'roundoff explain plan.md'"),
    )


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


# Which nodes and tensors a rule names.

# How strongly a selector counts; the more it says, the more.
BY_GRAPH, BY_OPERATION, BY_PATTERN, BY_NAME = 1, 2, 3, 4

_EVERYTHING = "DEFAULT"
"""As start or end of a sub-graph: all inputs, all outputs of the network."""

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class RuleSelection:
    """What a rule names.

    Attributes:
        rule: The rule.
        text: The rule as it is written.
        order: Its place among the rules.
        nodes: Nodes by their names in the user's model, in execution order, each with its name in the graph; empty
            for those that are not in it any more.
        ranks: How strongly each node of the graph is named, by its name there.
        tensors: Tensors that are named themselves, with how strongly.
    """

    rule: Rule
    text: str
    order: int
    nodes: Mapping[str, str]
    ranks: Mapping[str, int]
    tensors: Mapping[str, int]


class Names:
    """Names of nodes in the user's model and in the graph that is planned.

    Args:
        view: The graph.
        origins: The user's names of nodes, each with the name in the graph of the node that took it over.
    """

    def __init__(self, view: GraphView, origins: Mapping[str, str]) -> None:
        self._view = view
        self._current = {name: name for name in view.by_name} | dict(origins)
        self._original: dict[str, str] = {}
        for original, current in origins.items():
            if current not in self._original or original == current:
                self._original[current] = original

    def original(self, node: str) -> str:
        """The user's name of a node of the graph."""
        return self._original.get(node, node)

    def current(self, name: str) -> str:
        """The name in the graph of a node, by any of its names; empty when it is not there any more."""
        node = self._current[name]
        return node if node in self._view.by_name else ""

    @cached_property
    def known(self) -> tuple[str, ...]:
        """All names by which nodes can be called, in execution order."""
        last = len(self._view.nodes)

        def place(name: str) -> int:
            node = self._view.by_name.get(self._current[name])
            return node.place if node is not None else last

        return tuple(sorted(self._current, key=place))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """All these names, each with its place among them."""
        return {name: place for place, name in enumerate(self.known)}


def select(rules: Sequence[Rule], view: GraphView, names: Names) -> tuple[RuleSelection, ...]:
    """Find out what every rule names.

    Raises:
        BadInput: A selector names nothing.
    """
    selector = _Selector(view, names)
    return tuple(selector.select(rule, order) for order, rule in enumerate(rules))


class _Selector:
    def __init__(self, view: GraphView, names: Names) -> None:
        self._view = view
        self._names = names
        self._tensors = tuple(dict.fromkeys([*view.inputs, *view.producers, *view.weights.protos]))
        self._operations = tuple(dict.fromkeys(node.operation for node in view.nodes))

    def select(self, rule: Rule, order: int) -> RuleSelection:
        found: dict[str, int] = {}
        tensors: dict[str, int] = {}
        if rule.kind == "between":
            found = dict.fromkeys(map(self._names.original, self._between(rule)), BY_GRAPH)
        else:
            for selector in rule.selector:
                self._add(rule, selector, found, tensors)
        for tensor in tensors:
            for node in self._touching(tensor):
                found.setdefault(self._names.original(node), 0)
        nodes = {name: self._names.current(name) for name in sorted(found, key=self._names.places.__getitem__)}
        ranks: dict[str, int] = {}
        for name, node in nodes.items():
            if node:
                ranks[node] = max(found[name], ranks.get(node, 0))
        return RuleSelection(rule, rule_text(rule), order, nodes, ranks, tensors)

    def _add(self, rule: Rule, selector: str, nodes: dict[str, int], tensors: dict[str, int]) -> None:
        """Add what one selector names."""
        if rule.kind == "any" and selector == "*":
            nodes.update(dict.fromkeys((self._names.original(node.name) for node in self._view.nodes), BY_GRAPH))
            return
        for by_name in (True, False):
            matches = self._exact(selector) if by_name else self._glob(selector)
            rank = BY_NAME if by_name else BY_PATTERN
            for kind, names in matches.items():
                if rule.kind not in (kind, "any") or not names:
                    continue
                if kind == "op":
                    nodes.update({name: max(BY_OPERATION, nodes.get(name, 0)) for name in self._nodes_of(names)})
                else:
                    known = nodes if kind == "node" else tensors
                    known.update({name: max(rank, known.get(name, 0)) for name in names})
                return
        raise self._nothing(rule, selector)

    def _exact(self, selector: str) -> dict[str, list[str]]:
        """What is called so; operations in any case of their letters, since people type ``softmax``."""
        known = {"node": self._names.known, "tensor": self._tensors}
        found = {kind: [selector] if selector in names else [] for kind, names in known.items()}
        same = [name for name in self._operations if name.casefold() == selector.casefold()]
        return {**found, "op": [selector] if selector in same else same}

    def _glob(self, selector: str) -> dict[str, list[str]]:
        if not _GLOB.search(selector):
            return {}
        matches = re.compile(fnmatch.translate(selector)).match
        known = {"node": self._names.known, "tensor": self._tensors, "op": self._operations}
        return {kind: [name for name in names if matches(name)] for kind, names in known.items()}

    def _nodes_of(self, operations: Iterable[str]) -> list[str]:
        wanted = set(operations)
        return [self._names.original(node.name) for node in self._view.nodes if node.operation in wanted]

    def _touching(self, tensor: str) -> list[str]:
        """The node that computes a tensor; for inputs and constants those that read it."""
        producer = self._view.producers.get(tensor)
        if producer is not None:
            return [producer.name]
        return list(dict.fromkeys(reader.node for reader in self._view.readers[tensor]))

    def _nothing(self, rule: Rule, selector: str) -> BadInput:
        sets: dict[str, tuple[tuple[str, ...], str]] = {
            "node": (self._names.known, "node"),
            "tensor": (self._tensors, "tensor"),
            "op": (self._operations, "operation"),
            "any": ((*self._names.known, *self._tensors, *self._operations), "node, tensor or operation"),
        }
        known, what = sets[rule.kind]
        path = self._view.model.path
        text = english(
            "The rule {rule_text!r} names no {what} of {path}: {selector!r} matches nothing.",
            rule_text=rule_text(rule),
            what=what,
            path=path,
            selector=selector,
        )
        return BadInput(text, fix=nearest(selector, dict.fromkeys(known)))

    def _between(self, rule: Rule) -> list[str]:
        """Nodes that lie on a way from a start tensor to an end tensor."""
        starts = self._named_tensors(rule, rule.selector, self._view.inputs)
        ends = self._named_tensors(rule, rule.end, tuple(self._view.outputs))
        if rule.selector == rule.end == (_EVERYTHING,):
            return [node.name for node in self._view.nodes]
        after: set[str] = set(starts)
        forward = set()
        for node in self._view.nodes:
            if any(name in after for name in node.inputs):
                forward.add(node.name)
                after.update(node.outputs)
        before: set[str] = set(ends)
        nodes = []
        for node in reversed(self._view.nodes):
            if any(name in before for name in node.outputs):
                before.update(node.inputs)
                if node.name in forward:
                    nodes.append(node.name)
        if not nodes:
            what = english(
                "The rule {rule_text!r} names nothing: no node lies between these tensors.",
                rule_text=rule_text(rule),
            )
            raise BadInput(
                what, fix=english("check the order; the start tensors must come before the end tensors")
            )
        return nodes[::-1]

    def _named_tensors(self, rule: Rule, names: tuple[str, ...], everything: tuple[str, ...]) -> tuple[str, ...]:
        if names == (_EVERYTHING,):
            return everything
        for name in names:
            if name not in self._tensors:
                node = self._view.by_name.get(self._names.current(name) if name in self._names.known else "")
                hint = (
                    english("{name!r} is a node; its output is {outputs!r}", name=name, outputs=node.outputs[0])
                    if node is not None
                    else ""
                )
                path = self._view.model.path
                what = english(
                    "The rule {rule_text!r} names {name!r}, which is no tensor of {path}.",
                    rule_text=rule_text(rule),
                    name=name,
                    path=path,
                )
                raise BadInput(what, fix=hint or nearest(name, self._tensors))
        return names
