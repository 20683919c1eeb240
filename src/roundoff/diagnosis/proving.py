"""Interventions on quantizers: other ones are put in the place of a suspect's, and the outputs are measured."""

from collections.abc import Sequence

from roundoff.diagnosis.ideal import OptionKind, options
from roundoff.diagnosis.registry import ENOUGH, Intervention
from roundoff.diagnosis.result import Change
from roundoff.diagnosis.subject import Case, Fixes
from roundoff.diagnosis.suspects import Suspect

__all__ = ["called", "numbers_would_do", "option_fixes", "spoken", "tried"]


def tried(
    case: Case, suspect: Suspect, fixes: Fixes, *, changed: str, summary: str, changes: Sequence[Change] = ()
) -> Intervention:
    """Put quantizers in the place of a suspect's, and see how much of what it costs is gone.

    Args:
        case: With everything else mended.
        suspect: The suspect.
        fixes: The quantizers.
        changed: What is changed, in words.
        summary: The finding, in a sentence.
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


def called(suspect: Suspect) -> str:
    """A suspect in words: ``weight 'w' of 'conv1'``, ``'relu1' (Relu)``."""
    if suspect.kind != "activation":
        return f"the {suspect.kind} of {suspect.node!r} ({suspect.op_type})"
    if suspect.tensor not in {suspect.node, *suspect.nodes} and not suspect.node:
        return f"the input {suspect.tensor!r}"
    return f"{suspect.tensor!r} ({suspect.op_type})"


def spoken(number: float) -> str:
    """A number with three significant digits."""
    return f"{number:.3g}"
