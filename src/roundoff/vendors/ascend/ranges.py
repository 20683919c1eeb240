"""Parts of a network: operators from, to and in steps of their numbers (-r), or a list of numbers (-s)."""

import re

from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.rules import Rule, Warn

__all__ = ["chosen_groups"]

_LAST = -1


def chosen_groups(rule: Rule, *, span: str | None, picked: str | None, warn: Warn) -> list[str]:
    """Keys of the groups to compare, all of them when nothing is chosen.

    Args:
        rule: The rule.
        span: ``start,end,step`` over numbers of operators, from 1; an end of -1 is the last.
        picked: Numbers of operators with commas.
        warn: Told of numbers that there are not.
    """
    if span is None and picked is None:
        return list(rule.groups)
    last = rule.in_order[-1].sequence if rule.in_order else 0
    if span is not None:
        start, end, step = _parse_span(span, last)
        wanted = {
            number for number in range(start, end + 1) if number in (start, end) or (number - start) % step == 0
        }
    else:
        wanted = _parse_picked(picked or "", last, warn=warn)
    chosen = (
        rule.group_of[found.name]
        for found in rule.in_order
        if found.sequence in wanted and found.name in rule.group_of
    )
    return list(dict.fromkeys(chosen))


def _parse_span(text: str, last: int) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    numbers = [1, _LAST, 1]
    valid = len(parts) == 3 and all(
        re.fullmatch(r"[0-9]*", part) or (place == 1 and part == "-1") for place, part in enumerate(parts)
    )
    if not valid:
        what = f'The range ({text}) is invalid, just supports "start,end,step".'
        raise Refused(what, code=Code.PARAMETER, fix="write for example -r 1,-1,1")
    for place, part in enumerate(parts):
        if part not in ("", "-1"):
            numbers[place] = int(part)
    start, end, step = numbers
    end = last if end == _LAST else end
    _check("start", start, 1 <= start <= last, f"[1, {last}]")
    _check("end", end, start <= end <= last, f"[1, {last}]")
    _check("step", step, 1 <= step < max(last, 1), f"[1, {last})")
    return start, end, step


def _parse_picked(text: str, last: int, *, warn: Warn) -> set[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        what = f'The index ({text}) is invalid, just supports "index_1, index_2, ...".'
        raise Refused(what, code=Code.PARAMETER, fix="write for example -s 1,4,7")
    numbers = {int(part) for part in parts}
    beyond = sorted(number for number in numbers if number > last)
    if beyond:
        message = f"Index {beyond} out of range [1,{last}]."
        if len(beyond) == len(numbers):
            raise Refused(message, code=Code.PARAMETER, fix=f"choose numbers up to {last}")
        warn(message)
    return numbers - set(beyond)


def _check(what: str, value: int, valid: bool, allowed: str) -> None:
    if not valid:
        message = f"The {what} index ({value}) is out of range {allowed}. Please check the index."
        raise Refused(message, code=Code.INDEX, fix=f"choose it from {allowed}")
