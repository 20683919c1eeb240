"""Causes that hide each other, those that only together are more than chance, and who inherits an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.diagnosis.culprits import Accused, Record, _jointly_proven
from roundoff.diagnosis.result import Finding, Remedy
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import Suspect, open_case
from roundoff.messages.message import verbatim
from tests.diagnosis.planting import changed, demo, scaled


@dataclass(frozen=True)
class Decibels:
    """A loss in decibels, and on the scale on which losses add up."""

    value: float

    def excess_db(self, other: "Decibels") -> float:
        return max(0.0, self.value - other.value)


@dataclass(frozen=True)
class Adding:
    """A network in which every place costs some decibels."""

    costs: Mapping[str, float]
    mended: Mapping[str, Any] = field(default_factory=dict)

    def mend(self, fixes: Mapping[str, Any]) -> "Adding":
        return replace(self, mended={**self.mended, **fixes})

    def put_back(self, fixes: Mapping[str, Any]) -> "Adding":
        return replace(self, mended={name: each for name, each in self.mended.items() if name not in fixes})

    def loss(self, fixes: Mapping[str, Any] | None = None, *, more: bool = False) -> Decibels:
        del more
        right = {*self.mended, *(fixes or {})}
        return Decibels(sum(cost for name, cost in self.costs.items() if name not in right))


def accused_of(names: Sequence[str]) -> list[Accused]:
    places = [Suspect(name, "weight", (name,), name, (name,), name, (name,)) for name in names]
    return [Accused(each, {each.name: None}, 1.0) for each in places]


def finding(name: str, cause: str, *, proven: bool) -> Finding:
    remedy = Remedy(verbatim("put it right"), "free") if proven else None
    return Finding(0, cause, (name,), (name,), verbatim(name), proven=proven, remedy=remedy)


QUARTERS = st.integers(0, 8).map(lambda count: count / 4)  # sums of these are exact
PLACES = st.lists(st.tuples(QUARTERS, st.sampled_from(["a", "b"]), st.booleans()), min_size=1, max_size=9)


@given(PLACES)
def test_what_is_proven_stays_so_and_others_only_where_all_of_a_cause_take_more_away(
    places: list[tuple[float, str, bool]],
) -> None:
    names = [f"p{at}" for at in range(len(places))]
    case = Adding({name: cost for name, (cost, _, _) in zip(names, places, strict=True)})
    before = [finding(name, cause, proven=proven) for name, (_, cause, proven) in zip(names, places, strict=True)]
    after = _jointly_proven(case, before, accused_of(names))  # type: ignore[arg-type]
    known = {each.nodes[0] for each in before if each.proven}
    assert {each.nodes[0] for each in after[: len(known)]} == known  # the example of a group is one of these
    by_name = {each.nodes[0]: each for each in after}
    assert by_name.keys() == set(names)
    for each in before:
        alike = [other for other in before if other.cause == each.cause]
        rest = sum(case.costs[other.nodes[0]] for other in alike if not other.proven)
        joins = len(alike) > 3 and any(other.proven for other in alike) and rest >= 0.5
        assert by_name[each.nodes[0]].proven == (each.proven or joins)
        assert (by_name[each.nodes[0]].remedy is not None) == by_name[each.nodes[0]].proven


@given(st.lists(st.floats(0, 5), min_size=1, max_size=6))
def test_shares_are_what_each_costs_when_it_alone_is_put_back(costs: list[float]) -> None:
    names = [f"p{at}" for at in range(len(costs))]
    cured: Any = Adding(dict(zip(names, costs, strict=True)), dict.fromkeys(names))
    record = Record()
    for name in names:
        record.add(finding(name, "a", proven=True), {name: None})
    shares = [each.share for each in record.shared(cured, out_of_time=lambda: False)]
    total = sum(costs)
    assert shares == pytest.approx([cost / total if total else 0.0 for cost in costs])


def test_what_is_suspected_is_told_once() -> None:
    record = Record()
    for name, proven in (("p", False), ("q", False), ("p", False), ("p", True)):
        record.add(finding(name, "a", proven=proven), {})
    assert [(each.nodes[0], each.proven) for each in record.findings] == [("p", False), ("q", False), ("p", True)]


def hiding() -> tuple[Any, Any, list[str]]:
    """Two tensors in a row, each cut to next to nothing: what one of them costs is nothing beside the other."""
    quantized, samples = demo()
    tensors = list(dict.fromkeys(each.tensor for each in quantized.quantizers if each.kind == "activation"))
    chosen = [tensors[2], tensors[-3]]
    for tensor in chosen:
        quantized = changed(quantized, tensor, scaled(0.004))
    return quantized, samples, chosen


def test_causes_that_hide_each_other_are_both_proven() -> None:
    quantized, samples, chosen = hiding()
    case = open_case(quantized, samples)
    first = next(each for each in case.facts.suspects if chosen[0] in each.tensors)
    alone = case.loss(case.in_float(first), more=True)
    assert alone.sqnr_db - case.loss(more=True).sqnr_db < 1  # in the network as it is nothing comes of it

    found = diagnose_quantization(quantized, samples)
    named = {name for each in found.accused for name in each.tensors}
    assert set(chosen) <= named
    assert all(each.share > 0.2 for each in found.accused[:2])
    assert sum(each.share for each in found.accused) == pytest.approx(1.0)


def test_victims_lie_behind_the_culprit_and_have_no_fault_of_their_own() -> None:
    quantized, samples = demo()
    tensors = list(dict.fromkeys(each.tensor for each in quantized.quantizers if each.kind == "activation"))
    order = {name: at for at, node in enumerate(quantized.float_model.proto.graph.node) for name in node.output}
    for culprit in tensors[1:-2:2]:
        found = diagnose_quantization(changed(quantized, culprit, scaled(0.02)), samples)
        blamed = {name for each in found.accused for name in each.tensors}
        assert culprit in blamed
        assert not blamed & set(found.victims)
        assert all(order[name] > order[culprit] for name in found.victims)
