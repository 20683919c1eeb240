"""The table of causes. A cause is one class: what hints at it, what proves it, what helps.

For a suspect, the causes of its kind are asked in their order, specific before general. The first whose
intervention takes away most of what the suspect costs is the cause; a hint alone never is.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Generic, Literal, Protocol, TypeVar

from roundoff.diagnosis import causes
from roundoff.diagnosis.result import Control, Finding, Measure, Remedy, RemedyChange
from roundoff.messages.message import Argument, Message

CauseOf = Literal["quantization", "file", "device"]
"""Where causes are looked for: in the quantizers of a network, in the file that holds them, on a device."""

_PREFIXED: tuple[CauseOf, ...] = ("device", "file")

ENOUGH = 0.8
"""An intervention proves a cause when it takes away this part of what putting the suspect right altogether does.

Less would let a general intervention, which always takes some of the loss away, pass for a specific cause; more
would deny causes because of the rounding error that every repaired quantizer keeps.
"""

ProofControl = Callable[["Intervention"], Control | None]
"""Tells what stands beside an intervention that seems to be a proof; None where that is not known."""

CaseT_contra = TypeVar("CaseT_contra", contravariant=True)
SuspectT_contra = TypeVar("SuspectT_contra", contravariant=True)
SoughtT = TypeVar("SoughtT", bound="Sought[Any, Any]")


@dataclass(frozen=True, slots=True)
class Signal:
    """A hint that a cause may be at work.

    Attributes:
        strength: From 0, none at all, to 1.
        numbers: What it rests on.
    """

    strength: float
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Intervention:
    """What was changed to prove a cause, and what came of it.

    Attributes:
        changed: What, exactly.
        measures: Numbers before and after; the first decides.
        recovered: Part of what the suspect costs that went away, 0 to 1.
        summary: The finding in one plain sentence with numbers, without its full stop.
        changes: What was changed, as data.
        nodes: Further nodes that have to do with it.
        tensors: Further tensors.
        detail: What the remedy goes on to say; None when it has nothing to add.
        fixes: Quantizers by name that were put in the place of others, for the control.
    """

    changed: Message
    measures: tuple[Measure, ...]
    recovered: float
    summary: Message
    changes: tuple[RemedyChange, ...] = ()
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    detail: Argument = None
    fixes: Mapping[str, Any] = field(default_factory=dict)


class Sought(Protocol[CaseT_contra, SuspectT_contra]):
    """A cause: how it shows, how it is proven, what helps."""

    def signal(self, case: CaseT_contra, suspect: SuspectT_contra) -> Signal | None:
        """Whether a suspect looks like it, from numbers that are there already; None when it does not."""
        ...

    def intervene(self, case: CaseT_contra, suspect: SuspectT_contra) -> Intervention | None:
        """Take away what this cause would do, and measure; None when that cannot be done."""
        ...

    def remedy(self, case: CaseT_contra, suspect: SuspectT_contra, proof: Intervention) -> Remedy | None:
        """What to do about it."""
        ...


@dataclass(frozen=True, slots=True)
class CauseKind(Generic[SoughtT]):
    """A registered cause.

    Attributes:
        name: As findings name it.
        of: Where it is looked for.
        order: Causes with smaller numbers are tried first.
        summary: What it is, in one sentence.
        sought: How it is looked for.
        enough: Part of what the suspect costs that its intervention must take away.
    """

    name: str
    of: CauseOf
    order: int
    summary: str
    sought: SoughtT
    enough: float = ENOUGH


_CAUSES: dict[tuple[CauseOf, str], CauseKind[Any]] = {}


def cause(
    name: str, *, of: CauseOf, order: int, enough: float = ENOUGH
) -> Callable[[type[SoughtT]], type[SoughtT]]:
    """Register a class as a cause; its docstring's first line is the summary.

    Args:
        name: As users read it; the same word may name a cause of quantizations and one of devices.
        of: Where it is looked for.
        order: Causes with smaller numbers are tried first.
        enough: Part of what the suspect costs that its intervention must take away.
    """

    def registered(sought: type[SoughtT]) -> type[SoughtT]:
        if (of, name) in _CAUSES:
            raise ValueError(f"the cause {name!r} of {of} is registered twice")
        summary = (sought.__doc__ or "").strip().splitlines()[0]
        _CAUSES[of, name] = CauseKind(name, of, order, summary, sought(), enough)
        return sought

    return registered


def all_causes(of: CauseOf) -> Iterator[CauseKind[Any]]:
    """Every cause of a kind, in the order they are tried."""
    _load(of)
    yield from sorted((each for each in _CAUSES.values() if each.of == of), key=lambda each: each.order)


def find_cause(name: str, of: CauseOf) -> CauseKind[Any]:
    """The cause of this name."""
    _load(of)
    return _CAUSES[of, name]


@cache
def _load(of: CauseOf) -> None:
    """Import the modules of a kind of causes, and no others: those of devices bring much with them."""
    for module in pkgutil.iter_modules(causes.__path__):
        kind = next((each for each in _PREFIXED if module.name.startswith(f"{each}_")), "quantization")
        if kind == of:
            import_module(f"{causes.__name__}.{module.name}")


def _never() -> bool:
    """There is time."""
    return False


def _uncontrolled(proof: Intervention) -> Control | None:
    """Nothing stands beside a proof."""
    del proof
    return None


def explain(  # noqa: PLR0913 - what is diagnosed, who is suspected of what, and who is told
    case: Any,
    suspect: Any,
    *,
    of: CauseOf,
    nodes: tuple[str, ...],
    tensors: tuple[str, ...],
    out_of_time: Callable[[], bool] = _never,
    control: ProofControl = _uncontrolled,
) -> Finding | None:
    """Find the cause of what a suspect costs.

    Args:
        case: What is diagnosed; whatever these causes take.
        suspect: Who is suspected; likewise.
        of: Which causes to try.
        nodes: Nodes to blame, for the finding.
        tensors: Tensors to blame.
        out_of_time: Whether to ask no more causes.
        control: Whether a proof stands.

    Returns:
        A finding, with its number and share still open: proven by the first cause whose intervention is enough,
        unless that leaves much and a later one far less; else suspected, by the one that came closest. None when
        no cause has anything to say.
    """
    best: Finding | None = None
    most = -1.0
    for kind in all_causes(of):
        if out_of_time():
            break
        asked = ask(kind, case, suspect, nodes=nodes, tensors=tensors, control=control)
        if asked is None or (best is not None and best.proven and not _far_better(asked[0], best)):
            continue
        if asked[1] > most or asked[0].proven:
            best, most = asked
        if best is not None and best.proven and most >= _WHOLE:
            break
    return best


# What takes away so much of a cost leaves nothing for another cause to explain.
_WHOLE = 0.95
# One that takes away less is not the cause where another one leaves outputs that are better by so many decibels.
_FAR_DB = 6.0


def _far_better(found: Finding, than: Finding) -> bool:
    ours, theirs = (each.measures[0] for each in (found, than))
    return found.proven and ours.unit == theirs.unit == "dB" and ours.after >= theirs.after + _FAR_DB


def ask(
    kind: CauseKind[Any],
    case: Any,
    suspect: Any,
    *,
    nodes: tuple[str, ...],
    tensors: tuple[str, ...],
    control: ProofControl = _uncontrolled,
) -> tuple[Finding, float] | None:
    """Whether one cause is at work: a finding, proven or suspected, and how much its intervention took away."""
    signal = kind.sought.signal(case, suspect)
    if signal is None or signal.strength <= 0:
        return None
    proof = kind.sought.intervene(case, suspect)
    if proof is None:
        return None
    proven = proof.recovered >= kind.enough
    beside = control(proof) if proven else None
    proven = proven and (beside is None or beside.holds)
    finding = Finding(
        number=0,
        cause=kind.name,
        nodes=tuple(dict.fromkeys((*nodes, *proof.nodes))),
        tensors=tuple(dict.fromkeys((*tensors, *proof.tensors))),
        summary=proof.summary,
        evidence=signal.numbers,
        intervention=proof.changed,
        measures=proof.measures,
        remedy=kind.sought.remedy(case, suspect, proof) if proven else None,
        proven=proven,
        control=beside,
    )
    return finding, proof.recovered
