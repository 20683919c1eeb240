"""The first screen of a diagnosis: the score, a card for each cause with its picture, the error by layer."""

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import Literal

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.diagnosis.result import (
    Diagnosis,
    Finding,
    LayerErrors,
    Measure,
    NetworkScore,
    Repair,
    ValuePairs,
    ValueProfile,
)
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    cost_name,
    current_language,
    in_all_languages,
    named,
    plain,
)
from roundoff.messages.message import Message, phrase_of, short_name
from roundoff.messages.numbers import EXACT_DB, decibels_with_unit, number, percent_digits, share_text
from roundoff.pages.cards import (
    USUAL_LIMIT_DB,
    Card,
    ChannelDrawing,
    CulpritCard,
    Drawing,
    ErrorChart,
    ErrorPoint,
    HeroCard,
    HistogramDrawing,
    Mark,
    NetworkRole,
    Rung,
    ScatterDrawing,
    ScoreFigure,
    coverage_facts,
    decibels_shown,
    input_names,
    ran,
)

# Channels with fewer steps of the shared scale are as good as lost.
_FEW_STEPS = 4
# What is wrong before the first node is at none.
_OF_INPUTS = frozenset({"calibration-coverage", "preprocessing"})
# Codes of so many bits are drawn one by one.
_DRAWN_BITS = 6
# Ends and scales are told with six digits: an end so near to a code is that code.
_SLACK = 1e-3
# Causes whose evidence is the size of channels; that of others is the distribution of values.
_OF_CHANNELS = frozenset({"outlier-channel", "residual-outliers"})
# A line that explains so much of what a device wrote is drawn; an offset of a smaller part of the values is none.
_STRAIGHT, _NO_OFFSET = 0.99, 0.005
# Less of the values that become zero is usual.
_MANY_ZEROS = 0.02
_MOST_FINDINGS = 12
_MARKS: Mapping[str, Mark] = {"healthy": "good", "culprits": "bad", "distributed": "bad"}


def diagnosis_cards(
    document: RunDocument, found: Diagnosis, repaired: tuple[Mark, Phrase] | None
) -> Iterator[Card]:
    """All cards of a diagnosis in their order.

    Args:
        document: The run.
        found: The diagnosis.
        repaired: Word and mark of the repair; None without one.
    """
    yield _hero(document, found, repaired)
    rows = {} if document.network is None or found.layers is None else found.layers.rows_of(document.network)
    for finding in found.accused[:_MOST_FINDINGS]:
        yield _culprit(finding, found)
    if found.layers is not None and found.layers.judged:
        yield _error_chart(found, found.layers, rows)


# The score.


def _hero(document: RunDocument, found: Diagnosis, repaired: tuple[Mark, Phrase] | None) -> HeroCard:
    side = "_device" if found.kind == "elsewhere" and found.side == "device" else ""
    pills: list[tuple[Mark, Phrase]] = [
        (_MARKS.get(found.kind, "open"), bilingual(f"diagnosis.word_{found.kind}{side}"))
    ]
    if repaired is not None:
        pills.append(repaired)
    tensors = None if found.judgement is None else found.judgement.coverage.tensors
    return HeroCard(
        _title(found, side),
        tuple(pills),
        _sentence(phrase_of(found.verdict), _names(found)),
        scores=tuple(_scores(found)),
        axis=_axis(found),
        notice=_notice(found),
        facts=tuple(_facts(document, found)),
        coverage=None if tensors is None else (tensors.judged, tensors.there),
    )


def _title(found: Diagnosis, side: str) -> Phrase:
    accused = found.accused
    if found.kind != "culprits":
        return bilingual(f"card.hero_{found.kind}{side}")
    if not accused:  # a document that names nobody
        return _sentence(phrase_of(found.verdict), _names(found))
    title = _cause_title(accused[0])
    if len(accused) > 1:
        return bilingual("card.hero_several", title=title, count=len(accused) - 1)
    if accused[0].cause in _OF_INPUTS:
        return _sentence(title, ())
    if accused[0].places == 1 and accused[0].nodes:
        return bilingual("card.hero_place", title=title, name=short_name(accused[0].nodes[0]))
    return bilingual("card.hero_culprits", title=title, count=accused[0].places)


def _cause_title(finding: Finding) -> Phrase:
    return named(f"card.title_{finding.cause}") or plain(finding.cause)


def _scores(found: Diagnosis) -> Iterator[ScoreFigure]:
    """The user's metric of up to three networks on the same samples; without one the worst output in decibels."""
    told = _told_scores(found)
    if told:
        yield from map(_score, told)
        return
    first = next((each for each in found.measures if each.unit == "dB"), None)
    if first is None:
        return
    role: NetworkRole = "quantized"
    label = "device" if found.side == "device" else "quantized"
    name = next((str(each) for gap, each in first.what.arguments if gap == "name"), "")
    detail = bilingual("card.db_of", name=name, samples=first.samples or found.samples)
    yield ScoreFigure(bilingual(f"card.{label}"), role, decibels_shown(first.before), _unit(first.before), detail)
    if first.after > first.before:
        value = decibels_shown(first.after)
        yield ScoreFigure(
            bilingual("card.expected"), "expected", value, _unit(first.after), bilingual("card.db_expected")
        )
    done = found.repair
    if done is not None and done.measures and done.measures[0].unit == "dB" and done.measures[0].improved:
        last = done.measures[0]
        on = bilingual("card.held_out" if done.held_out else "card.same", count=last.samples)
        yield ScoreFigure(
            bilingual("card.repaired"), "repaired", decibels_shown(last.after), _unit(last.after), on
        )


def _unit(value: float) -> str:
    return "" if value >= EXACT_DB else "dB"


def _told_scores(found: Diagnosis) -> tuple[NetworkScore, ...]:
    """Of the repair, where all three networks saw the same samples; else of the diagnosis."""
    done = found.repair
    if done is not None and done.scores and any(step.kept for step in done.steps):
        return done.scores
    return found.scores


def _score(each: NetworkScore) -> ScoreFigure:
    share = each.right is not None or (0 <= each.value <= 1 and each.interval is not None)
    if not share:
        detail = bilingual("card.on_samples", samples=each.samples)
        return ScoreFigure(bilingual(f"card.{each.of}"), each.of, plain(number(each.value)), "", detail)
    low, high = each.interval or (each.value, each.value)
    ends = {"low": percent_digits(max(low, 0.0), 0), "high": percent_digits(min(high, 1.0), 0)}
    if each.right is None:
        detail = bilingual("card.with_interval", samples=each.samples, **ends)
    else:
        detail = bilingual("card.right_of", right=each.right, samples=each.samples, **ends)
    value = plain(percent_digits(each.value, 1))
    label = bilingual(f"card.{each.of}")
    return ScoreFigure(label, each.of, value, "%", detail, each.value, (max(low, 0.0), min(high, 1.0)))


def _axis(found: Diagnosis) -> Phrase | None:
    told = _told_scores(found)
    if not told or any(each.right is None for each in told):
        return None
    metric = next((each.what for each in found.measures if each.of_task), None)
    on = bilingual("card.held_out" if told[0].held_out else "card.same", count=told[0].samples)
    said = [bilingual("card.axis", metric="top-1" if metric is None else phrase_of(metric), samples=on)]
    by_name = {each.of: each for each in told}
    if "repaired" in by_name and _overlap(by_name["repaired"], by_name["float"]):
        said.append(bilingual("card.same_interval"))
    whole = {each.of: each for each in found.scores}
    if told is not found.scores and {"float", "quantized"} <= set(whole):
        exact, other = whole["float"], whole["quantized"]
        ends = {"exact": percent_digits(exact.value, 1), "found": percent_digits(other.value, 1)}
        said.append(bilingual("card.all_samples", samples=exact.samples, **ends))
    return Phrase(" ".join(each.en for each in said), "".join(each.zh for each in said))


def _overlap(left: NetworkScore, right: NetworkScore) -> bool:
    if left.interval is None or right.interval is None:
        return False
    return left.interval[0] <= right.value <= left.interval[1]


def _notice(found: Diagnosis) -> tuple[Mark, Phrase] | None:
    """Whether samples that nothing was chosen on confirm the repair; without labels that none were given."""
    done = found.repair
    if done is not None and done.measures and any(step.kept for step in done.steps):
        told = done.measures[0]
        if done.reached or (done.held_out and done.proven and not done.doubts):
            ends = {"before": amount_text(told.before, told), "after": amount_text(told.after, told)}
            # Crossed, every sample was held out once.
            return "good", bilingual("card.confirmed", count=max(done.held_out, told.samples), **ends)
        why = phrase_of(done.doubts[0]) if done.doubts else bilingual("card.fitted")
        return "open", bilingual("card.unconfirmed", why=why)
    if not found.scores and found.side == "quantization" and found.samples:
        return "open", bilingual("card.no_accuracy", count=found.samples)
    return None


def amount_text(value: float, measure: Measure) -> Phrase:
    """A value of a measure with its unit; shares in per cent."""
    if measure.unit == "dB":
        text = decibels_shown(value)
        return text if value >= EXACT_DB else Phrase(f"{text.en} dB", f"{text.zh} dB")
    if (measure.of_task or measure.of_top1) and 0 <= min(measure.before, measure.after, value) <= 1 >= value:
        return plain(share_text(value, 1))
    return plain(f"{number(value)} {measure.unit}".rstrip())


# What was asked.


def _facts(document: RunDocument, found: Diagnosis) -> Iterator[tuple[Phrase, tuple[Phrase, ...]]]:
    files = input_names(document)
    model = [files[role] for role in ("model", "quantized") if role in files] or [PurePath(found.reference).name]
    lines = [plain(name) for name in model]
    if document.network is not None:
        nodes = len(document.network.nodes)
        # Of a device the layers are the tensors that it wrote.
        units = None if found.layers is None or found.side == "device" else len(found.layers.nodes)
        key = "card.nodes" if units is None else "card.nodes_units"
        lines.append(bilingual(key, count=nodes, **({} if units is None else {"units": units})))
    yield bilingual("card.model"), tuple(lines)
    chip = [plain(found.target)] if found.target else []
    chip += list(map(_precision, found.precisions.items()))
    if chip:
        yield bilingual("card.chip"), tuple(chip)
    yield bilingual("card.data"), tuple(_data(files, found))
    if found.judgement is not None and (
        coverage := tuple(coverage_facts(found.judgement.coverage, samples=False))
    ):
        yield bilingual("card.coverage"), coverage
    if found.repair is not None and any(step.kept for step in found.repair.steps):
        yield bilingual("card.cost"), tuple(_cost(found.repair, found))
    yield ran(document)


def _precision(each: tuple[str, int]) -> Phrase:
    kind, dtype, _, along = each[0].split()
    key = "weight" if kind == "weight" else "activation"
    return bilingual(f"card.precision_{key}", dtype=dtype, along=bilingual(f"card.along_{along}"), count=each[1])


def _data(files: Mapping[str, str], found: Diagnosis) -> Iterator[Phrase]:
    names = [files[role] for role in ("data", "dumps") if role in files]
    yield from map(plain, names or [PurePath(found.data).name] if found.data or names else [])
    scored = next((each for each in found.measures if each.of_task), None)
    if scored is None:
        yield bilingual("card.diagnosed", count=found.samples)
    else:
        gaps = {"scored": scored.samples, "metric": phrase_of(scored.what)}
        yield bilingual("card.diagnosed_scored", count=found.samples, **gaps)


def _cost(done: Repair, found: Diagnosis) -> Iterator[Phrase]:
    added = ", ".join(f"{count} {name}" for name, count in done.operators.items())
    yield bilingual("card.adds", names=added) if added else bilingual("card.adds_nothing")
    if done.precisions == found.precisions:
        yield bilingual("card.same_bits")
        return
    for kind, count in done.precisions.items():
        more = count - found.precisions.get(kind, 0)
        if more > 0:
            yield bilingual("card.more_bits", what=_precision((kind, more)))


# A card for each cause.


def _culprit(finding: Finding, found: Diagnosis) -> CulpritCard:
    text = [_sentence(phrase_of(finding.summary), _names(found))]
    if finding.share:
        text.append(bilingual("card.share", share=share_text(finding.share, 0)))
    if finding.number == 1 and found.victims:
        text.append(bilingual("card.inherited", count=len(found.victims)))
    drawings: list[Drawing] = [
        drawn for each in finding.profiles if (drawn := _drawing(each, finding.cause)) is not None
    ]
    drawings += map(scatter_drawing, finding.pairs)
    first = finding.measures[0] if finding.measures else None
    caption = None
    if first is not None:
        what = phrase_of(first.what)
        caption = bilingual("card.ladder", measure=what, samples=first.samples or found.samples)
    remedy = finding.remedy
    return CulpritCard(
        finding.number,
        _cause_title(finding),
        tuple(text),
        bilingual("card.where", count=finding.places),
        finding.accused_nodes,
        drawings=tuple(drawings),
        ladder=tuple(_ladder(finding, found)),
        ladder_caption=caption,
        remedy=None if remedy is None else bilingual("card.todo", text=phrase_of(remedy.title)),
        cost=None if remedy is None else in_all_languages(lambda: cost_name(remedy.cost)),
        settings=tuple(_settings(finding)),
        commands=() if found.repair is not None else tuple(each for each in found.next_steps if " --fix" in each),
        chip=found.target,
    )


def _names(found: Diagnosis) -> frozenset[str]:
    return frozenset(short_name(name) for each in found.findings for name in (*each.nodes, *each.tensors))


def _sentence(text: Phrase, names: Collection[str]) -> Phrase:
    """A sentence with its capital letter and full stop; a name at its beginning stays what it is."""
    first = text.en.partition(" ")[0]
    start = text.en[:1].upper() if first.isalpha() and first not in names else text.en[:1]
    return Phrase(f"{start}{text.en[1:]}.", f"{text.zh}。")


def _settings(finding: Finding) -> Iterator[str]:
    """What to type for the same in roundoff: an option for each node, where the remedy is another precision."""
    changes = () if finding.remedy is None else finding.remedy.changes
    if not changes or changes[0].kind not in ("bits", "float"):
        return
    wide = changes[0]
    value = wide.value or "float"
    if finding.profiles and finding.profiles[0].weight and wide.kind == "bits":
        value = f"weight={value}"  # a precision alone is that of what a node gives
    for name in finding.accused_nodes:
        yield f"--set {shlex.quote(f'{name}={value}')}"


def mentions(text: object, key: str) -> bool:
    """Whether a message is of a key, or has one in its gaps that is."""
    if isinstance(text, tuple):
        return any(mentions(each, key) for each in text)
    if not isinstance(text, Message):
        return False
    return text.key == key or any(mentions(each, key) for _, each in text.arguments)


def _start(finding: Finding, found: Diagnosis) -> Phrase:
    """What the network is called that only this is changed in: without its other errors it is not as quantized."""
    if mentions(finding.intervention, "diagnosis.beside_cured"):
        return bilingual("card.rung_cured")
    if mentions(finding.intervention, "diagnosis.in_silence"):
        return bilingual("card.rung_silence")
    return bilingual("card.rung_device" if found.side == "device" else "card.rung_quantized")


def _ladder(finding: Finding, found: Diagnosis) -> Iterator[Rung]:
    if not finding.measures:
        return
    first, control = finding.measures[0], finding.control
    yield _rung(_start(finding, found), first.before, first, role="quantized", strong=True)
    task = [
        bilingual(
            "card.rung_task",
            metric=phrase_of(each.what),
            before=amount_text(each.before, each),
            after=amount_text(each.after, each),
        )
        for each in finding.of_task[:1]
    ]
    changed = bilingual("card.rung_changed", count=finding.places)
    yield _rung(changed, first.after, first, note=task[0] if task else plain(""), strong=True)
    if control is not None and control.elsewhere is not None:
        label = bilingual("card.rung_elsewhere", count=control.others)
        yield _rung(label, control.elsewhere.after, control.elsewhere, note=_from(control.elsewhere))
    if control is not None and control.other_half is not None:
        label = bilingual("card.rung_half")
        yield _rung(label, control.other_half.after, control.other_half, note=_from(control.other_half))
    again = repaired_output(first, found)
    if again is not None:
        yield _rung(bilingual("card.rung_repaired"), again, first, role="repaired", strong=True)
    expected = next((each.after for each in found.measures if each.what == first.what), None)
    if expected is not None and first.unit == "dB":
        yield _rung(bilingual("card.rung_expected"), expected, first, role="expected")


def _rung(
    label: Phrase,
    value: float,
    measure: Measure,
    *,
    note: Phrase | None = None,
    role: NetworkRole | None = None,
    strong: bool = False,
) -> Rung:
    text = decibels_shown(value) if measure.unit == "dB" else amount_text(value, measure)
    return Rung(label, value, text, note or plain(""), role or "changed", strong)


def _from(measure: Measure) -> Phrase:
    before = decibels_shown(measure.before) if measure.unit == "dB" else amount_text(measure.before, measure)
    return bilingual("card.rung_from", before=before, samples=measure.samples)


def repaired_output(measure: Measure, found: Diagnosis) -> float | None:
    """What the same output of the repaired network keeps, on the same samples; None where it was not measured."""
    layers, done = found.layers, found.repair
    name = next((each for gap, each in measure.what.arguments if gap == "name"), None)
    if layers is None or done is None or measure.unit != "dB" or not done.accumulated_db:
        return None
    known = dict(zip(layers.tensors, done.accumulated_db, strict=True))
    return known.get(str(name)) if len(layers.samples) == measure.samples else None


# Pictures of evidence.


def _drawing(profile: ValueProfile, cause: str) -> Drawing | None:
    if profile.dtype == "s32" and profile.reaches:
        return overflow_drawing(profile)
    shared = profile.scales == 1 and profile.channels > 1
    if shared and (cause in _OF_CHANNELS or not any(profile.counts)):
        return channel_drawing(profile)
    return histogram_drawing(profile) if any(profile.counts) else None


def channel_drawing(profile: ValueProfile) -> ChannelDrawing:
    """How many steps of the one scale each channel can use."""
    all_told = len(profile.reaches) == profile.channels
    steps = [each / profile.scale for each in profile.reaches]
    order = sorted(range(len(steps)), key=lambda at: -steps[at])
    lost = sum(each < _FEW_STEPS for each in steps)
    if not all_told:
        lost = round(lost * profile.channels / len(steps))
    reach = number(profile.reaches[order[0]], 3)
    leader = bilingual("card.channel_leads", channel=order[0], reach=reach)
    if not all_told:
        leader = bilingual("card.channel_widest", reach=reach)
    bits = int(profile.dtype[1:])
    return ChannelDrawing(
        bilingual("card.channels_read" if profile.inner else "card.channels", name=profile.tensor),
        tuple((at if all_told else None, steps[at]) for at in order),
        most=float(2 ** (bits - 1) - 1 if profile.dtype.startswith("s") else 2**bits - 1),
        few=_FEW_STEPS,
        leader=leader,
        conclusion=(
            bilingual("card.channels_few", few=lost, all=profile.channels, limit=_FEW_STEPS)
            if lost
            else bilingual("card.channel_narrowest", steps=f"{min(steps):.1f}")
        ),
        median=bilingual("card.channel_median", steps=f"{median(steps):.1f}"),
        node=profile.node,
    )


def overflow_drawing(profile: ValueProfile) -> ChannelDrawing:
    """How many steps of its own scale the bias of each channel needs, of those that its integers have."""
    order = sorted(range(len(profile.reaches)), key=lambda at: -profile.reaches[at])
    bits = int(profile.dtype[1:])
    most = float(2 ** (bits - 1) - 1)
    lost = sum(each > most for each in profile.reaches)
    told = profile.channels == len(profile.reaches)
    times = number(profile.reaches[order[0]] / most, 3)
    return ChannelDrawing(
        bilingual("card.bias_steps", name=profile.tensor),
        tuple((at if told else None, profile.reaches[at]) for at in order),
        most=max(most, *profile.reaches),
        few=most,
        leader=plain(""),
        conclusion=bilingual("card.bias_over", few=lost, all=profile.channels, bits=bits, times=times),
        median=plain(""),
        node=profile.node,
        over=True,
    )


def histogram_drawing(profile: ValueProfile) -> HistogramDrawing:
    """What values a tensor holds, with the ends of its range, and its codes where they are few."""
    codes: tuple[float, ...] = ()
    low, high = max(profile.low, profile.start), min(profile.high, profile.end)
    if profile.scales == 1 and 0 < high - low < profile.scale * 2**_DRAWN_BITS:
        first, last = math.ceil(low / profile.scale - _SLACK), math.floor(high / profile.scale + _SLACK)
        codes = tuple(code * profile.scale for code in range(first, last + 1))
    zeros = profile.scales == 1 and profile.zeros >= _MANY_ZEROS
    clipped = share_text(profile.clipped, 1)
    ends = [(each, bilingual("card.clip", value=_value(each))) for each in (profile.low, profile.high)]
    if profile.clipped:
        # The share is told at the end beyond which more lies.
        at = 0 if profile.low - profile.start > profile.end - profile.high else 1
        ends[at] = ends[at][0], bilingual("card.clip_share", value=_value(ends[at][0]), share=clipped)
    half = profile.scale / 2
    caption = bilingual("card.histogram", name=profile.tensor, dtype=profile.dtype)
    if profile.shared:
        caption = bilingual("card.histogram_shared", name=profile.tensor, other=profile.shared)
    elif codes:
        caption = bilingual("card.histogram_codes", name=profile.tensor, dtype=profile.dtype, count=len(codes))
    return HistogramDrawing(
        caption,
        profile.counts,
        profile.start,
        profile.end,
        codes=codes,
        zero=(-half, half) if zeros else None,
        zero_text=bilingual("card.rounds_to_zero", share=share_text(profile.zeros, 1)) if zeros else None,
        # An end at zero, as behind a Relu, is told where something lies beyond it.
        limits=tuple(
            each
            for each, beyond in zip(ends, (profile.start < profile.low, profile.end > profile.high), strict=True)
            if beyond or (each[0] and profile.start <= each[0] <= profile.end)
        ),
        node=profile.node,
    )


def scatter_drawing(pairs: ValuePairs) -> ScatterDrawing:
    """What a device wrote against what its own inputs give, and the line through it where there is one."""
    straight = pairs.correlation**2 >= _STRAIGHT
    if straight:
        offset = "" if abs(pairs.offset) <= _NO_OFFSET * max(map(abs, pairs.found)) else f"{pairs.offset:+.3g}"
        signed = f" {offset[0]} {offset[1:]}".replace("-", "\u2212") if offset else ""
        conclusion = bilingual("card.scatter_line", gain=_value(pairs.gain), offset=signed)
    else:
        conclusion = bilingual("card.scatter_cloud", correlation=f"{pairs.correlation:.2f}".replace("-", "\u2212"))
    return ScatterDrawing(
        bilingual("card.scatter", name=pairs.tensor),
        tuple(zip(pairs.expected, pairs.found, strict=True)),
        (pairs.gain, pairs.offset) if straight else None,
        conclusion,
        pairs.node,
    )


def _value(value: float) -> str:
    return number(value, 3).replace("-", "\u2212")


# The error along the network.


def _error_chart(found: Diagnosis, layers: LayerErrors, rows: Mapping[str, int]) -> ErrorChart:
    accused = accused_rows(found.accused, rows)
    after: Sequence[float | None] = () if found.repair is None else found.repair.accumulated_db
    points = tuple(
        ErrorPoint(
            layers.units[at],
            layers.local_db[at],
            layers.accumulated_db[at],
            after[at] if after else None,
            accused.get(at, 0),
            layers.outputs[at],
        )
        for at in range(len(layers.nodes))
    )
    key = "card.error_text_device" if found.side == "device" else "card.error_text"
    text = bilingual(key, samples=len(layers.samples))
    limit = USUAL_LIMIT_DB, bilingual("card.limit", value=f"{USUAL_LIMIT_DB:.1f}")
    others = tuple(histogram_drawing(each) for each in layers.profiles if any(each.counts))
    return ErrorChart("errors", bilingual("card.error_title"), text, points, limit, others)


def accused_rows(findings: Sequence[Finding], rows: Mapping[str, int]) -> dict[int, int]:
    """The number of the finding that accuses each row."""
    found: dict[int, int] = {}
    for each in findings:
        for name in each.accused_nodes:
            if name in rows:
                found.setdefault(rows[name], each.number)
    return found


# What networks get right, as a table for a terminal.


def score_table(found: Diagnosis, hero: HeroCard, *, expected: bool) -> pages.TableBlock:
    """What the networks get right, with its interval, beside what is left of the outputs."""
    noise = next((each for each in found.measures if each.unit == "dB"), None)
    top = next((each for each in found.measures if each.of_top1), None)
    metric = next((each.what for each in found.measures if each.of_task), None)
    name = bilingual("diagnosis.measure_accuracy") if metric is None else phrase_of(metric)
    # Names of outputs would take the room.
    single = found.judgement is not None and found.judgement.coverage.outputs.total == 1
    columns: list[tuple[str, Phrase, Literal["text", "number"]]] = [
        ("network", plain(" " * 9), "text"), ("score", name, "number"), ("interval", plain("  95 %"), "number"),
    ]  # fmt: skip
    rows: dict[str, list[pages.Cell]] = {
        each.role: [_apart(each.label), _with_unit(each.value, each.unit), _range(each.interval)]
        for each in hero.scores
    }
    if noise is not None:
        name = bilingual("diagnosis.output_sqnr") if single else phrase_of(noise.what)
        columns.append(("sqnr", _apart(_counted(name, noise, found) if single else name), "number"))
        after = repaired_output(noise, found)
        rows["quantized"].append(db_text(noise.before))
        if "repaired" in rows and after is not None:
            rows["repaired"].append(db_text(after))
        if expected:
            rows["expected"] = [_apart(bilingual("card.expected")), None, None, db_text(noise.after)]
    if top is not None:
        name = phrase_of(top.what)
        columns.append(("agreement", _apart(_counted(name, top, found) if single else name), "number"))
        rows["quantized"] += [None] * (len(columns) - 1 - len(rows["quantized"]))
        rows["quantized"].append(plain(share_text(top.before, 1)))
    cells = tuple((*row, *[None] * (len(columns) - len(row))) for row in rows.values())
    shown_columns = tuple(pages.Column(*each, on=("terminal",)) for each in columns)
    return pages.TableBlock("scores", bilingual("diagnosis.loss"), shown_columns, cells)


def _counted(name: Phrase, measure: Measure, found: Diagnosis) -> Phrase:
    """What a column is, with its samples where the scores beside it are of others."""
    samples = measure.samples or found.samples
    others = any(each.samples != samples for each in _told_scores(found))
    return bilingual("diagnosis.of_count", name=name, count=samples) if others else name


def _apart(text: Phrase) -> Phrase:
    """Two columns away from what stands before it."""
    return Phrase(f"  {text.en}", f"  {text.zh}")


def _with_unit(value: Phrase, unit: str) -> Phrase:
    return in_all_languages(lambda: f"{value.within(current_language())} {unit}".rstrip().replace("\u2212", "-"))


def _range(interval: tuple[float, float] | None) -> Phrase:
    if interval is None:
        return plain("")
    low, high = (percent_digits(min(max(end, 0.0), 1.0), 0) for end in interval)
    return plain(f"{low}..{high} %")


def db_text(value: float) -> Phrase:
    """Decibels with their unit; ``exact`` without noise."""
    return in_all_languages(lambda: decibels_with_unit(value))
