"""What code of users answers, looked at before anything is done with it: evaluators, strategies, sensitivities.

Whoever asks such code hands the answer through here, whether its form is ours or a vendor's. What means nothing is
a sentence with a fix; a strategy that proposes what it has proposed before would go on for ever.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.run.evaluators import brief


def finite_number(value: Any, *, of: str, infinite: bool = False, error: type[BadInput] = BadInput) -> float:
    """A number that a function of the user's gave.

    Args:
        value: What it gave.
        of: Which function, as the start of a sentence ("compare() of 'Mine'").
        infinite: Take infinite ones, too, such as the SQNR of equal outputs.
        error: What to raise.

    Raises:
        BadInput: It is no single number, or not a finite one.
    """
    try:
        found = np.asarray(value)
    except Exception:  # noqa: BLE001 - lists of different length, tensors with gradients: whatever objects answer
        found = np.zeros(0)
    usable = found.size == 1 and found.dtype.kind in "fiub"
    if not usable or not (np.isfinite(found).all() or (infinite and not np.isnan(found).any())):
        what = english("{of} gave {brief}, which is not a finite number.", of=of, brief=brief(value))
        raise error(what, fix=english("let it return one finite number"))
    return float(found.reshape(-1)[0])


def verdict(value: Any, *, of: str, error: type[BadInput] = BadInput) -> tuple[bool, float]:
    """Whether a measure is good enough and what was lost; a loss that is no number is the worst.

    Raises:
        BadInput: It is no such pair, or a loss that is no number is called good enough.
    """
    try:
        satisfied, loss = (np.asarray(each).item() for each in value)
        lost = float(loss)
        if isinstance(satisfied, str | bytes) or satisfied is None or (satisfied and math.isnan(lost)):
            raise ValueError
        return bool(satisfied), math.inf if math.isnan(lost) else lost
    except Exception as problem:
        what = english(
            "{of} returned {answer}, not whether it is good enough and what was lost.", of=of, answer=brief(value)
        )
        raise error(what, fix=english("return a pair such as (True, 0.002)")) from problem


_ROLL_BACK_KEYS = ("roll_back_config", "stop_flag")
_ROLL_BACK_FIX = english(
    "return {{'stop_flag': False, 'roll_back_config': {{layer: stays_quantized, ...}}}}, with initialize()'s names"
)


def roll_back_answer(
    answer: Any, layers: Sequence[str], *, tried: Collection[frozenset[str]], of: str
) -> tuple[dict[str, bool], bool]:
    """Which layers stay quantized next, and whether that is the last word.

    Args:
        answer: What a strategy gave, in AMCT's form. Layers that it does not name stay quantized: it says which go
            back.
        layers: All layers there are.
        tried: Layers in float of the models that it proposed before.
        of: Which function, as the start of a sentence.

    Raises:
        BadInput: It means nothing, names layers that there are not, or was given before without being the last.
    """
    if not isinstance(answer, Mapping):
        raise BadInput(
            english("{of} gave {brief}, not a dictionary.", of=of, brief=brief(answer)), fix=_ROLL_BACK_FIX
        )
    for key in _ROLL_BACK_KEYS:
        if key not in answer:
            raise BadInput(english("{of} gave an answer without {key!r}.", of=of, key=key), fix=_ROLL_BACK_FIX)
    config = answer["roll_back_config"]
    if not isinstance(config, Mapping):
        what = english("{of} gave {brief} as roll_back_config, not a dictionary.", of=of, brief=brief(config))
        raise BadInput(what, fix=_ROLL_BACK_FIX)
    known = set(layers)
    for name, stays in config.items():
        if name not in known:
            what = english("{of} names a layer {name!r}, which is not quantized.", of=of, name=str(name))
            near = nearest(str(name), layers)
            fix = english("did you mean {near!r}?", near=near) if near else _ROLL_BACK_FIX
            raise BadInput(what, fix=fix)
        if not isinstance(stays, bool | np.bool_ | int | np.integer) or stays not in (0, 1):
            what = english("{of} gave {brief} for layer {name!r}.", of=of, brief=brief(stays), name=name)
            raise BadInput(what, fix=english("True where it stays quantized, False where it goes back to float"))
    # In the order of the answer, as the vendor writes it down; then what it says nothing of.
    named = {str(name): bool(stays) for name, stays in config.items()}
    proposed = named | {name: True for name in layers if name not in named}
    stop = bool(answer["stop_flag"])
    floats = frozenset(name for name, stays in proposed.items() if not stays)
    if floats in tried and not stop:
        raise proposed_before(of, fix=english("propose others, or set stop_flag to True"))
    return proposed, stop


def proposed_before(of: str, *, fix: str) -> BadInput:
    """A strategy that would try for ever what it has tried."""
    return BadInput(english("{of} proposes what it has proposed before: it would never end.", of=of), fix=fix)
