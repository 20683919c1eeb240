"""Interventions on quantizers: other ones are put in the place of a suspect's, and the outputs are measured."""

from collections.abc import Sequence

from roundoff.diagnosis.ideal import OptionKind, options
from roundoff.diagnosis.registry import ENOUGH, Intervention
from roundoff.diagnosis.result import Change
from roundoff.diagnosis.subject import Case, Fixes
from roundoff.diagnosis.suspects import Suspect
from roundoff.messages.message import Message, joined, message

__all__ = ["alternatives", "called", "numbers_would_do", "option_fixes", "tried"]


def tried(
    case: Case,
    suspect: Suspect,
    fixes: Fixes,
    *,
    changed: Message,
    summary: Message,
    changes: Sequence[Change] = (),
) -> Intervention:
    """Put quantizers in the place of a suspect's, and see how much of what it costs is gone.

    Args:
        case: With everything else mended.
        suspect: The suspect.
        fixes: The quantizers.
        changed: What is changed.
        summary: The finding.
        changes: What is changed, as data.
    """
    return Intervention(changed, case.measures(fixes), case.recovered(suspect, fixes), summary, tuple(changes))


def option_fixes(case: Case, suspect: Suspect, kind: OptionKind) -> Fixes | None:
    """The quantizers of a better way of this kind; None where there is none."""
    return next((each.fixes for each in options(case.facts, suspect)[1] if each.kind == kind), None)


def numbers_would_do(case: Case, suspect: Suspect) -> bool:
    """Whether one range that fits, or the bits that others have, would do: then nothing else is to blame."""
    found = (option_fixes(case, suspect, "range"), option_fixes(case, suspect, "bits"))
    return any(fixes is not None and case.recovered(suspect, fixes) >= ENOUGH for fixes in found)


def alternatives(ways: Sequence[Message]) -> Message:
    """Ways that cannot be told apart, side by side."""
    return joined(ways, key="terminal.alternatives")


def called(suspect: Suspect) -> Message:
    """What a suspect is called: ``the weight of 'conv1' (Conv)``, ``'relu1' (Relu)``."""
    if suspect.kind != "activation":
        return message(f"diagnosis.called_{suspect.kind}", node=suspect.node, op=suspect.op_type)
    if suspect.tensor not in {suspect.node, *suspect.nodes} and not suspect.node:
        return message("diagnosis.called_input", tensor=suspect.tensor)
    return message("diagnosis.called_tensor", tensor=suspect.tensor, op=suspect.op_type)
