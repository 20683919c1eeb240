"""The diagnosis: verdict, causes with their proofs, victims, what was looked at, what was repaired."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from rich.cells import cell_len

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.core.tensors import Topology
from roundoff.diagnosis.cards import (
    db_text,
    diagnosis_cards,
    mentions,
    score_table,
)
from roundoff.diagnosis.result import COSTS, Check, Control, Diagnosis, Finding, Measure, Repair
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    cause_name,
    commas,
    cost_name,
    count_of,
    current_language,
    few,
    in_all_languages,
    named,
    plain,
    semicolons,
    translate,
    use_language,
)
from roundoff.messages.message import Message, message, phrase_of, short_name, shown, verbatim
from roundoff.messages.numbers import EXACT_DB, TOP1, decibels, score_text, share_text
from roundoff.pages.cards import Card, CulpritCard, ErrorChart, HeroCard, ladder_lines
from roundoff.pages.coverage import coverage_lines, coverage_phrase, judgement_lines

_TONES: dict[str, pages.Tone] = {"healthy": "good", "culprits": "bad", "distributed": "bad"}
# Findings are told in full while lines are left on a screen of 30, less those of loss, victims and what is next.
_LINES, _COLUMNS, _IN_SHORT = 16, 68, 6
_SUSPECTED, _PLACES, _REPAIRED_STEPS = 2, 3, 2
# Names in sentences are cut to this many characters, with both ends kept.
_LONGEST, _START = 40, 16
# A gain of less is not told of.
_LEAST_DB = 0.5
# Less is not told apart: NaN, infinite, or beyond all measure.
_FEWEST_DB = -60.0
_TERMINAL: tuple[pages.Place, ...] = ("terminal",)
_BROWSER: tuple[pages.Place, ...] = ("html",)
_KEPT: tuple[pages.Place, ...] = ("html", "csv")
_FILES: tuple[pages.Place, ...] = ("csv",)
_LIKEWISE = "diagnosis.likewise"
_Line = tuple[str, str]

_MEASURES = (
    pages.Column("measure", bilingual("diagnosis.measure"), "text", on=_BROWSER),
    pages.Column("before", bilingual("diagnosis.before"), "number", on=_BROWSER),
    pages.Column("after", bilingual("diagnosis.after"), "number", on=_BROWSER),
)
_FINDINGS = (
    pages.Column("number", plain("#"), "count", on=_BROWSER),
    pages.Column("node", bilingual("common.node"), "node", on=_BROWSER),
    pages.Column("cause", bilingual("diagnosis.cause"), "text", on=_BROWSER),
    pages.Column("share", bilingual("diagnosis.share"), "share", on=_BROWSER),
    pages.Column("summary", bilingual("diagnosis.summary"), "text", on=_BROWSER),
    pages.Column("remedy", bilingual("diagnosis.remedy"), "text", on=_BROWSER),
    pages.Column("cost", bilingual("diagnosis.cost"), "text", on=_BROWSER),
    *_MEASURES,
    pages.Column("intervention", bilingual("diagnosis.intervention"), "text", on=_BROWSER),
    pages.Column("control", bilingual("diagnosis.control"), "text", on=_BROWSER),
)
_OTHERS = pages.Column("others", bilingual("diagnosis.others"), "text", on=_BROWSER)
_FILE = (
    "number", "proven", "cause", "node", "tensor", "share", "measure", "unit", "before", "after", "samples",
    "intervention", "remedy", "cost", "summary", "elsewhere", "other_half", "probability",
)  # fmt: skip
_LOSS = (
    pages.Column("measure", bilingual("diagnosis.measure"), "text", on=_KEPT),
    pages.Column("met_text", bilingual("diagnosis.met"), "text", on=_BROWSER),
    pages.Column("expected_text", bilingual("diagnosis.expected"), "text", on=_BROWSER),
    pages.Column("in_float_text", bilingual("diagnosis.in_float"), "text", on=_BROWSER),
    pages.Column("met", bilingual("diagnosis.met"), "number", on=_FILES),
    pages.Column("expected", bilingual("diagnosis.expected"), "number", on=_FILES),
    pages.Column("in_float", bilingual("diagnosis.in_float"), "number", on=_FILES),
    pages.Column("samples", bilingual("diagnosis.samples"), "count", on=_KEPT),
)
_CHECKS = (
    pages.Column("check", bilingual("diagnosis.check"), "text", on=_KEPT),
    pages.Column("result", bilingual("diagnosis.result"), "text", on=_KEPT),
    pages.Column("passed", bilingual("compare.passed"), "truth", on=_KEPT),
    pages.Column("seconds", bilingual("about.elapsed"), "seconds", on=_KEPT),
)


def diagnosis_page(document: RunDocument) -> pages.Page | None:
    """The page on a diagnosis; None when none was made."""
    found = document.diagnosis
    if found is None:
        return None
    word = _repair_word(found)
    cards = list(diagnosis_cards(document, found, word))
    charts = [each for each in cards if isinstance(each, ErrorChart)]
    said = pages.notes(found.notes)
    blocks = (
        *cards[: len(cards) - len(charts)],
        *_verdict(found, cards),
        *(each for each in said if each.first),
        *_steps(found.repair),
        *_next(found),
        *(each for each in said if not each.first),
        *charts,
    )
    return pages.Page("diagnosis", bilingual("diagnosis.title"), blocks)


def verdict_line(found: Diagnosis) -> str:
    """The verdict in one sentence, as it is told while a repair is under way."""
    return translate("diagnosis.said", name=translate(word_key(found)), text=shown(found.verdict))


def diagnosis_details(document: RunDocument) -> pages.Page | None:
    """What stands behind the first screen: all layers, all numbers, what was looked at."""
    found = document.diagnosis
    if found is None:
        return None
    layers = () if found.layers is None or not found.layers.judged else tuple(_layers(found, document.network))
    return pages.Page("details", bilingual("diagnosis.details"), (*layers, *_details(found)))


def check_line(check: Check) -> str:
    """One check, as it is told while others are under way."""
    name, result = shown(check.name), shown(check.result)
    return translate("diagnosis.check_line", name=name, result=result, seconds=f"{check.seconds:.1f}")


def measure_text(measure: Measure, *, bound: bool = False) -> str:
    """A number before and after, with its unit: ``SQNR of 'logits' 2.2 -> 24.1 dB``, or at least that."""
    before, after = _number(measure.before, measure), _number(measure.after, measure)
    if bound:
        after = translate("diagnosis.at_least", value=after)
    if measure.unit == "dB" and measure.after >= EXACT_DB:
        return f"{shown(measure.what)} {before} {measure.unit} -> {after}"
    unit = f" {measure.unit}" if measure.unit else ""
    return f"{shown(measure.what)} {before} -> {after}{unit}"


def _number(value: float, measure: Measure) -> str:
    if measure.unit == "dB" and (math.isfinite(value) or value >= EXACT_DB):
        low = value <= _FEWEST_DB
        return translate("diagnosis.under", limit=f"{_FEWEST_DB:.0f}") if low else decibels(value)
    if not math.isfinite(value):
        return str(value)
    return share_text(value, 1) if measure.of_top1 else score_text(str(measure.what), value)


# The verdict: a sentence, and in a terminal what a busy person reads on one screen.


def _verdict(found: Diagnosis, cards: Sequence[Card]) -> Iterator[pages.Block]:
    hero = next(each for each in cards if isinstance(each, HeroCard))
    culprits = {each.number: each for each in cards if isinstance(each, CulpritCard)}
    laddered = _with_ladder(found, culprits)
    yield pages.Headline(
        _TONES.get(found.kind, "open"),
        bilingual("diagnosis.titled", text=phrase_of(found.verdict)),
        f"diagnosis_{found.kind}",
        bilingual(word_key(found)),
        brief=_in_brief(found, hero) if laddered else None,
    )
    # Shares of right answers stand in a table, as far as networks were scored.
    scored = hero.axis is not None
    yield from _repair_headline(found, scored=scored)
    if scored:
        yield score_table(found, hero, expected=not laddered)
    if found.outputs is not None and not found.outputs.complete:
        yield pages.Paragraph(coverage_phrase(found.outputs, other="dump"), on=_BROWSER)
    # Also where the score says what was judged: Markdown has no score.
    if found.judgement is not None:
        yield replace(pages.bilingual_facts(lambda: judgement_lines(found.judgement, other="dump")), on=_BROWSER)

    def lines() -> Iterator[_Line]:
        if not scored:
            yield from _loss(found)
        # What was tried of the remedies is told with what came of it.
        yield from _findings(found, laddered, scored=scored)
        yield from _step_lines(found.repair)
        yield from _suspected(found)
        yield from _victims(found)
        if found.judgement is None:
            yield from coverage_lines(found.outputs, other="dump")
        yield from judgement_lines(found.judgement, other="dump")
        yield from _limits(found)
        yield from _doubt_lines(found.repair, scored=scored)
        yield from _next_lines(found)

    yield _in_terminal(lines)


def word_key(found: Diagnosis) -> str:
    """The verdict in one word."""
    side = "_device" if found.kind == "elsewhere" and found.side == "device" else ""
    return f"diagnosis.word_{found.kind}{side}"


def _with_ladder(found: Diagnosis, culprits: Mapping[int, CulpritCard]) -> CulpritCard | None:
    """The card of the first finding, whose proof is drawn; None where it has no control to be drawn beside it."""
    first = next((each for each in found.findings if each.proven), None)
    return culprits.get(first.number) if first is not None and first.measures and first.control else None


def _in_brief(found: Diagnosis, hero: HeroCard) -> Phrase | None:
    """The cause and at how many places, where the numbers stand below; None where the sentence says more."""
    if found.kind != "culprits" or found.side == "device":
        return None
    parts = [Phrase(hero.title.en.rstrip("."), hero.title.zh.rstrip("。"))]
    noise = next((each for each in found.measures if each.unit == "dB"), None)
    if noise is not None:
        parts.append(bilingual("diagnosis.outputs_keep", kept=db_text(noise.before)))
    if mentions(found.verdict, "diagnosis.verdict_rest_adds_up"):
        parts.append(bilingual("diagnosis.verdict_rest_adds_up"))
    said = in_all_languages(lambda: semicolons(*(each.within(current_language()) for each in parts)))
    return bilingual("diagnosis.titled", text=said)


def _in_terminal(lines: Callable[[], Iterator[_Line]]) -> pages.Facts:
    return replace(pages.bilingual_facts(lines), on=_TERMINAL)


def _loss(found: Diagnosis) -> Iterator[_Line]:
    parts: dict[int, list[str]] = {}
    told, several = str(found.verdict), len(found.measures) > 1
    for measure in found.measures:
        # The cosine says what decibels do; the verdict may have told the user's metric.
        if several and (
            measure.what.key == "diagnosis.measure_cosine" or (measure.of_task and str(measure.what) in told)
        ):
            continue
        exact = measure.unit == "dB" and measure.before >= EXACT_DB
        unit = f" {measure.unit}" if measure.unit and not exact else ""
        text = f"{shown(measure.what)} {_number(measure.before, measure)}{unit}"
        value = _number(measure.after, measure)
        if measure.unit == "dB" and measure.after < measure.before:
            text = translate("diagnosis.as_expected", text=text)
        elif measure.unit == "dB" and (found.side != "device" or measure.after > measure.before):
            text = _expected(found, text, value)
        elif measure.of_task:
            text = translate("diagnosis.value_in_float", text=text, value=value)
        parts.setdefault(measure.samples or found.samples, []).append(text)
    if len(parts) == 1:
        [(samples, texts)] = parts.items()
        yield translate("diagnosis.label_loss"), semicolons(commas(*texts), count_of(samples, "sample"))
    elif parts:
        groups = [
            translate("diagnosis.measured_on", text=commas(*texts), samples=count_of(samples, "sample"))
            for samples, texts in parts.items()
        ]
        yield translate("diagnosis.label_loss"), semicolons(*groups)


def _expected(found: Diagnosis, text: str, value: str) -> str:
    """What was met, beside what is expected and by what; that of ranges alone where nothing else was tried."""
    # What brought a repair is told with its steps.
    levers = next((each.result for each in found.checks if each.name.key == "diagnosis.check_levers"), None)
    if found.repair is not None:  # what it did is told with its steps
        return translate("diagnosis.expected_value", text=text, value=value)
    if levers is None:
        # A device has no ranges to find.
        key = "expected_value" if found.side == "device" else "best_ranges_value"
        return translate(f"diagnosis.{key}", text=text, value=value)
    gaps = dict(levers.arguments)
    if levers.key != "diagnosis.levers_reach" or gaps["db"] != f"{value} dB":
        return translate("diagnosis.expected_value", text=text, value=value)
    names = commas(*map(str, gaps["names"])) if isinstance(gaps["names"], tuple) else str(gaps["names"])
    return translate("diagnosis.expected_by", text=text, value=value, names=names)


def _findings(found: Diagnosis, card: CulpritCard | None, *, scored: bool) -> Iterator[_Line]:
    """All that were proven: as many in full as find room, the first with its ladder."""
    proven = [each for each in found.findings if each.proven]
    whole = _told_in_full(proven, found, card)
    for finding in proven[:whole]:
        yield from _in_full(finding, found, card, scored=scored)
    short = proven[whole : whole + _IN_SHORT]
    before = proven[0].measures[0] if proven and proven[0].measures else None
    for finding in short:
        text = _said(_where(finding), cause_name(finding.cause))
        text = _said(text, _than_told(finding.measures[0], before)) if finding.measures else text
        last = finding is proven[-1]
        yield str(finding.number), translate("diagnosis.short_findings", text=text) if last else text
    more = len(proven) - whole - _IN_SHORT
    if more > 0:
        yield "", translate("diagnosis.more_findings", count=more)


def _than_told(measure: Measure, before: Measure | None) -> str:
    """A number before and after; its name where the one that was told before has another."""
    said = measure_text(measure)
    same = before is not None and before.what == measure.what
    return said.removeprefix(shown(measure.what)).lstrip() if same else said


def _told_in_full(proven: Sequence[Finding], found: Diagnosis, card: CulpritCard | None) -> int:
    """How many findings find room, by their English: a page has as many lines in every language."""
    left = _LINES
    with use_language("en"):
        for number, finding in enumerate(proven):
            told = _in_full(finding, found, card, scored=False)
            left -= sum(-(-cell_len(text) // _COLUMNS) for _, text in told)
            if left < 0 and number:
                return number
    return len(proven)


def _in_full(finding: Finding, found: Diagnosis, card: CulpritCard | None, *, scored: bool) -> Iterator[_Line]:
    """Where, why, the proof and what to do."""
    cause = cause_name(finding.cause)
    places = (_said(_where(finding, most), cause) for most in range(_PLACES, 0, -1))
    fitting = [each for each in places if cell_len(each) <= _COLUMNS]
    yield str(finding.number), fitting[0] if fitting else _said(_where(finding, 1), cause)
    yield translate("diagnosis.label_why"), _cut(_one_place(finding.summary), finding)
    ours = card is not None and card.number == finding.number
    yield from _proof(finding, found, card if ours else None, scored=scored)
    # What was tried of the remedies is told with what came of it.
    if finding.remedy is not None and found.repair is None:
        title, cost = shown(finding.remedy.title), cost_name(finding.remedy.cost)
        yield (
            translate("diagnosis.label_remedy"),
            _cut(translate("diagnosis.priced", title=title, cost=cost), finding),
        )


def _proof(finding: Finding, found: Diagnosis, card: CulpritCard | None, *, scored: bool) -> Iterator[_Line]:
    """What was changed and what that did, there, elsewhere and on other samples: as bars where there is a card."""
    control = finding.control
    if card is not None:
        first, better = finding.measures[0], ""
        if control is not None and control.other_half is not None:
            better = translate("diagnosis.control_samples", better=control.better, count=control.samples)
        # A table has a column of what the bars are, and the repaired network.
        tabled = scored and first.what == found.measures[0].what
        name = shown(first.what)
        what = "" if tabled else _than_above(name, finding, found)
        # The line on the loss has named it.
        what = "" if what == name and found.measures and first.what == found.measures[0].what else what
        said = [*map(measure_text, finding.of_task), what, better]
        change = "" if finding.intervention is None else _one_place(finding.intervention)
        yield translate("diagnosis.label_proof"), _cut(semicolons(change, commas(*said)), finding)
        rungs = [each for each in card.ladder if not tabled or each.role != "repaired"]
        yield from (("", f"  {line}") for line in ladder_lines(rungs, first.unit, _COLUMNS - 4))
        return
    if finding.measures:
        proof = measure_text(finding.measures[0])
        if finding.intervention:
            proof = _said(shown(finding.intervention), proof)
        proof = semicolons(_than_above(proof, finding, found), *map(measure_text, finding.of_task))
        yield translate("diagnosis.label_proof"), _cut(proof, finding)
    if control is not None:
        yield translate("diagnosis.label_control"), control_text(control)


def _one_place(text: Message) -> str:
    """What is said of the first place alone: how many there are stands in another line."""
    return shown(cast("Message", dict(text.arguments)["whole"]) if text.key == _LIKEWISE else text)


def control_text(control: Control) -> str:
    """What the same change does elsewhere and on other samples: ``elsewhere +0.1 dB; other half +11.2 dB``."""
    said = []
    if control.elsewhere is not None:
        change = _change(control.elsewhere)
        said.append(translate("diagnosis.control_elsewhere", count=control.others, change=change))
    if control.other_half is not None:
        said.append(translate("diagnosis.control_half", change=_change(control.other_half)))
        said.append(translate("diagnosis.control_samples", better=control.better, count=control.samples))
    return semicolons(*said)


def _change(measure: Measure) -> str:
    """By how much a number changes: ``+11.2 dB``; what it is where that is exact."""
    if not math.isfinite(measure.after - measure.before):
        return _number(measure.after, measure)
    # Rounded first: a loss of 0.04 dB is no "-0.0".
    return f"{round(measure.after - measure.before, 1) + 0.0:+.1f} {measure.unit}".rstrip()


def _said(name: str, text: str) -> str:
    return translate("diagnosis.said", name=name, text=text)


def _than_above(text: str, finding: Finding, found: Diagnosis) -> str:
    """A proof, and why the number before it is not the one in the line on the loss, where it is not."""
    ours, whole = finding.measures[0], found.measures[:1]
    if ours.what.key == "diagnosis.measure_device" and 0 < ours.samples < found.samples:
        return translate("diagnosis.on_samples", text=text, samples=count_of(ours.samples, "sample"))
    if not whole or ours.what != whole[0].what or _number(ours.before, ours) == _number(whole[0].before, ours):
        return text
    if ours.samples != whole[0].samples:
        return translate("diagnosis.on_samples", text=text, samples=count_of(ours.samples, "sample"))
    return text


def _cut(text: str, finding: Finding) -> str:
    """A sentence with long names of nodes and tensors cut in their middle."""
    for name in sorted({*finding.nodes, *finding.tensors}, key=len, reverse=True):
        if len(name) > _LONGEST:
            text = text.replace(name, f"{name[:_START]}...{name[_START + 3 - _LONGEST :]}")
    return text


def _where(finding: Finding, most: int = _PLACES) -> str:
    names = finding.accused_nodes or finding.nodes[:1] or finding.tensors[:1]
    name = few([short_name(each) for each in names], most) if names else translate("diagnosis.whole_network")
    return (
        translate("diagnosis.share_of_loss", name=name, share=share_text(finding.share, 0))
        if finding.share
        else name
    )


def _suspected(found: Diagnosis) -> Iterator[_Line]:
    open_ones = [each for each in found.findings if not each.proven]
    # Beside what was proven there is room for places and words alone.
    proven = len(open_ones) < len(found.findings)
    for index, finding in enumerate(open_ones[:_SUSPECTED]):
        summary = _where(finding, 1) if proven else shown(finding.summary)
        text = translate("diagnosis.not_proven", cause=cause_name(finding.cause), summary=summary)
        if finding.measures:
            text = translate("diagnosis.with_change", text=text, change=measure_text(finding.measures[0]))
        if finding.control is not None and not finding.control.holds:
            control = "" if proven else control_text(finding.control)
            text = translate(f"diagnosis.{'by_chance' if proven else 'within_chance'}", text=text, control=control)
        yield "" if index else translate("diagnosis.label_suspected"), text


def _victims(found: Diagnosis) -> Iterator[_Line]:
    if found.victims:
        first = short_name(found.victims[0])
        text = translate("diagnosis.wrong_inputs", count=len(found.victims), first=first)
        yield translate("diagnosis.label_victims"), text


def _limits(found: Diagnosis) -> Iterator[_Line]:
    for index, text in enumerate(found.not_looked_at):
        yield "" if index else translate("diagnosis.label_not_seen"), shown(text)


def _next_lines(found: Diagnosis) -> Iterator[_Line]:
    # After a repair: confirm it, and take it over. A browser has room for all.
    repair = found.repair
    most = None if repair is None else _REPAIRED_STEPS - repair.reached
    for index, command in enumerate(found.next_steps[:most]):
        yield "" if index else translate("diagnosis.label_next"), command


def _next(found: Diagnosis) -> Iterator[pages.Block]:
    if found.next_steps:
        yield pages.Paragraph(bilingual("diagnosis.next"), on=_BROWSER)
        yield pages.Commands(found.next_steps, on=_BROWSER)


# What a browser has room for, and files.


def _details(found: Diagnosis) -> Iterator[pages.Block]:
    proven, suspected = (
        [each for each in found.findings if each.proven is is_proven] for is_proven in (True, False)
    )
    if proven:
        yield _cards("findings", bilingual("diagnosis.findings"), proven)
    if found.victims:
        yield pages.Paragraph(bilingual("diagnosis.victims", names=pages.few_names(found.victims)), on=_BROWSER)
    if found.measures:
        yield _loss_table(found)
    if suspected:
        yield _cards("suspected", bilingual("diagnosis.suspected"), suspected)
    columns = tuple(pages.Column(name, plain(name), "text", on=("csv",)) for name in _FILE)
    rows = tuple(row for each in found.findings for row in _rows(each))
    yield pages.TableBlock(
        "findings-measured", bilingual("diagnosis.findings"), columns, rows, file="findings.csv"
    )
    checks = tuple((phrase_of(each.name), phrase_of(each.result), each.ok, each.seconds) for each in found.checks)
    yield pages.TableBlock("checks", bilingual("diagnosis.checks"), _CHECKS, checks, folded=True)
    for what in found.not_looked_at:
        yield pages.Paragraph(bilingual("diagnosis.not_looked_at", what=phrase_of(what)), note=True, on=_BROWSER)


def _layers(found: Diagnosis, network: Topology | None) -> Iterator[pages.Block]:
    """Every unit with what it loses, so that a search finds it and the panel can say it."""
    layers = found.layers
    if layers is None:
        return
    known = {} if network is None else {node.name: node.op_type for node in network.nodes}
    after = () if found.repair is None else found.repair.accumulated_db
    columns = (
        pages.Column("node", bilingual("common.node"), "node", on=_BROWSER),
        pages.Column("op_type", bilingual("common.operation"), "text", on=_BROWSER),
        pages.Column("shape", bilingual("diagnosis.shape"), "text", on=_BROWSER),
        pages.Column("codes", bilingual("diagnosis.codes"), "text", on=_BROWSER),
        pages.Column("local_db", bilingual("diagnosis.local_db"), "decibels", higher_is_better=True, on=_BROWSER),
        pages.Column(
            "accumulated_db", bilingual("diagnosis.accumulated_db"), "decibels", higher_is_better=True, on=_BROWSER
        ),
        *([] if not after else [pages.Column("repaired_db", bilingual("card.repaired"), "decibels", on=_BROWSER)]),
        pages.Column("rms_steps", bilingual("diagnosis.rms_steps"), "number", digits=3, on=_BROWSER),
        pages.Column("worst_channel", bilingual("diagnosis.worst_channel"), "text", on=_BROWSER),
    )
    rows = tuple(
        (
            layers.units[at],
            known.get(layers.units[at]),
            layers.shapes[at],
            layers.dtypes[at],
            layers.local_db[at],
            layers.accumulated_db[at],
            *([after[at]] if after else []),
            layers.rms_steps[at],
            _worst_channel(layers.worst_channel[at], layers.worst_channel_db[at]),
        )
        for at in range(len(layers.nodes))
    )
    yield pages.TableBlock("all-layers", bilingual("diagnosis.all_layers"), columns, rows, folded=True)


def _worst_channel(channel: int | None, value: float | None) -> str | None:
    return None if channel is None or value is None else f"{channel}: {decibels(value)} dB"


def _loss_table(found: Diagnosis) -> pages.TableBlock:
    """What was met: distances beside what is expected, the metric beside that of the float network."""
    rows = [
        (
            _unit(each.what, each.unit),
            _told(each.before, each),
            None if each.of_task else _told(each.after, each),
            _told(each.after, each) if each.of_task else None,
            each.before,
            None if each.of_task else each.after,
            each.after if each.of_task else None,
            each.samples or found.samples,
        )
        for each in found.measures
    ]
    kept = [at for at in range(len(_LOSS)) if any(row[at] is not None for row in rows)]
    cells = tuple(tuple(row[at] for at in kept) for row in rows)
    return pages.TableBlock("loss", bilingual("diagnosis.loss"), tuple(_LOSS[at] for at in kept), cells)


def _cards(name: str, caption: Phrase, findings: Sequence[Finding]) -> pages.TableBlock:
    """One card for each; those of many places name all of them."""
    rows = [_card(each) for each in findings]
    if all(each.places == 1 for each in findings):
        return pages.TableBlock(name, caption, _FINDINGS, tuple(rows), cards=True, folded=True)
    others = [", ".join(each.accused_nodes[1:]) or None for each in findings]
    columns = (*_FINDINGS[:2], _OTHERS, *_FINDINGS[2:])
    cells = tuple((*row[:2], also, *row[2:]) for row, also in zip(rows, others, strict=True))
    return pages.TableBlock(name, caption, columns, cells, cards=True, folded=True)


def _card(each: Finding) -> tuple[pages.Cell, ...]:
    measure: tuple[pages.Cell, ...] = (None, None, None)
    if each.measures:
        first = each.measures[0]
        measure = (_unit(first.what, first.unit), first.before, first.after)
    remedy: tuple[pages.Cell, ...] = (None, None)
    if each.remedy is not None:
        remedy = (phrase_of(each.remedy.title), _cost(each.remedy.cost))
    return (
        each.number,
        each.nodes[0] if each.nodes else None,
        named(f"diagnosis.cause_{each.cause}") or each.cause,
        each.share,
        phrase_of(each.summary),
        *remedy,
        *measure,
        _intervention(each),
        _control(each),
    )


def _intervention(finding: Finding) -> Phrase | None:
    """What was changed, and what that did to the user's metric."""
    how = finding.intervention
    if how is None or not finding.of_task:
        return None if how is None else phrase_of(how)
    return in_all_languages(lambda: semicolons(shown(how), *map(measure_text, finding.of_task)))


def _control(finding: Finding) -> Phrase | None:
    control = finding.control
    return None if control is None else in_all_languages(lambda: control_text(control))


def _rows(each: Finding) -> Iterator[tuple[pages.Cell, ...]]:
    """A finding in findings.csv: one row for each measure, in English."""
    remedy = ("", "") if each.remedy is None else (str(each.remedy.title), each.remedy.cost)
    words = ("" if each.intervention is None else str(each.intervention), *remedy, str(each.summary))
    place = (" ".join(each.nodes), " ".join(each.tensors))
    control = each.control or Control()
    sides = (control.elsewhere, control.other_half)
    beside = (*(None if side is None else side.after - side.before for side in sides), control.probability)
    for measure in each.measures or (Measure(verbatim(""), "", math.nan, math.nan),):
        numbers = (str(measure.what), measure.unit, measure.before, measure.after, measure.samples)
        yield each.number, each.proven, each.cause, *place, round(each.share, 4), *numbers, *words, *beside


def _cost(cost: str) -> Phrase:
    return in_all_languages(lambda: cost_name(cost))


def _unit(what: Message, unit: str) -> Phrase:
    name = phrase_of(what)
    return bilingual("diagnosis.with_unit", what=name, unit=unit) if unit else name


# What came of the repair: ``REPAIRED: words read 0.0104 -> 0.9896 (1 in float)``, and every step.


def _repair_headline(found: Diagnosis, *, scored: bool) -> Iterator[pages.Headline]:
    """What came of the repair, with its interval; in brief where a table has that."""
    repair, word = found.repair, _repair_word(found)
    if repair is None or word is None:
        return
    measure = repair.measures[0]

    def text(*, brief: bool) -> str:
        interval = repair.interval if repair.held_out and measure.improved else None
        # One score has one interval: that which stands beside it where networks are scored.
        scored_ends = next((each.interval for each in repair.scores if each.of == "repaired"), None)
        if interval is not None and measure.of_task and scored_ends is not None:
            interval = scored_ends
        said, least = measure_text(measure), None if interval is None else interval[0]
        # A figure is told where it holds for other samples; else what they have at least.
        bound = least is not None and measure.unit == "dB" and not repair.known and least > measure.before
        if least is not None and bound:
            said = measure_text(replace(measure, after=least), bound=True)
        goal = next((_number(each.after, each) for each in found.measures if each.what == measure.what), None)
        # Of the user's metric what float has on the same samples as the repaired network.
        goal = next((_number(each.value, measure) for each in repair.scores if each.of == "float"), goal)
        if goal is not None:
            key = "diagnosis.value_expected" if measure.unit == "dB" else "diagnosis.value_in_float"
            said = translate(key, text=said, value=goal)
        if brief:
            held = repair.held_out and measure.samples <= repair.held_out
            return commas(said, translate("card.held_out" if held else "card.same", count=measure.samples))
        if interval is None:
            return said
        low, high = (_number(end, measure) for end in interval)
        if bound:
            here = _number(measure.after, measure)
            return translate("diagnosis.repair_bound", text=said, high=high, here=here)
        return translate("diagnosis.repair_interval", text=said, low=low, high=high)

    whole, brief = (
        in_all_languages(partial(lambda short: translate("diagnosis.titled", text=text(brief=short)), short))
        for short in (False, True)
    )
    yield pages.Headline(word[0], whole, word=word[1], brief=brief if scored and repair.scores else None)


def _steps(repair: Repair | None) -> Iterator[pages.Block]:
    """All that was tried, and on what the figure was measured."""
    if repair is None:
        return
    yield _step_table(repair)
    if any(step.kept for step in repair.steps):
        yield pages.Paragraph(phrase_of(_measured_on(repair)), note=True, on=_BROWSER)
        yield from (replace(each, on=_BROWSER) for each in pages.notes(repair.doubts))


def _measured_on(repair: Repair) -> Message:
    if not repair.held_out:
        return message("diagnosis.same_samples")
    counts = {"used": repair.used, "held": repair.held_out, "count": repair.measures[0].samples}
    key = "repair_judged_crossed" if counts["count"] > repair.held_out else "repair_judged_on"
    return message(f"diagnosis.{key}", **counts)


def _doubt_lines(repair: Repair | None, *, scored: bool) -> Iterator[_Line]:
    """On what the figure was measured, unless the headline says it, and what to know of it."""
    if repair is None or not any(step.kept for step in repair.steps):
        return
    on = _measured_on(repair)
    known = scored and repair.scores and on.key == "diagnosis.repair_judged_on"
    for at, each in enumerate([*([] if known else [on]), *repair.doubts]):
        yield "" if at else translate("diagnosis.label_note"), shown(each)


def _step_lines(repair: Repair | None) -> Iterator[_Line]:
    """What was kept, each with what it brought, and what failed; else what was refused. A browser shows all."""
    if repair is None:
        return
    kept = [each for each in repair.steps if each.kept]
    helped = [each for each in kept if _visible(each.measure)]
    before: Measure | None = None
    for at, step in enumerate(helped or kept):
        # What it brought first; what is free has no price.
        text, title = _than_told(step.measure, before), shown(step.title)
        if step.added is not None or step.cost != COSTS[0]:
            cost = cost_name(step.cost) if step.added is None else shown(step.added)
            title = translate("diagnosis.priced", title=title, cost=cost)
        yield "" if at else translate("diagnosis.kept"), _said(text, title)
        before = step.measure
    failed = [each for each in repair.steps if each.why is not None and each.why.key == "diagnosis.repair_failed"]
    for at, step in enumerate(failed if kept else repair.steps):
        title = shown(step.title)
        yield "" if at else translate("diagnosis.refused"), _said(title, shown(step.why)) if step.why else title


def _visible(measure: Measure) -> bool:
    """Whether a gain is one that a reader sees: as small a one in decibels as below is none."""
    return measure.improved and not (measure.unit == "dB" and measure.after - measure.before < _LEAST_DB)


def _repair_word(found: Diagnosis) -> tuple[pages.Tone, Phrase] | None:
    """What came of the repair in a word; None where nothing was measured."""
    repair = found.repair
    if repair is None or not repair.measures:
        return None
    tone: pages.Tone = "open"
    if not repair.measures[0].improved:
        tone, word = "bad", "not_repaired"
    elif repair.reached:
        tone, word = "good", "repaired"
    else:
        word = "better" if repair.proven else "unproven"
    return tone, bilingual(f"diagnosis.word_{word}")


def _step_table(repair: Repair) -> pages.TableBlock:
    kinds = {_kind(step.measure) for step in repair.steps}
    # Steps may be in different units (a margin in decibels behind the user's metric): each says its own then.
    kind: pages.ColumnKind = kinds.pop() if len(kinds) == 1 else "text"
    columns = (
        pages.Column("for", bilingual("diagnosis.column_for"), "count", on=_KEPT),
        pages.Column("remedy", bilingual("diagnosis.step"), "text", on=_KEPT),
        pages.Column("cost", bilingual("diagnosis.cost"), "text", on=_KEPT),
        pages.Column("measure", bilingual("diagnosis.measure"), "text", on=_KEPT),
        pages.Column("before", bilingual("diagnosis.before"), kind, on=_KEPT),
        pages.Column("after", bilingual("diagnosis.after"), kind, on=_KEPT),
        pages.Column("kept", bilingual("diagnosis.kept"), "truth", on=_KEPT),
        pages.Column("why", bilingual("diagnosis.why"), "text", on=_KEPT),
    )
    rows = tuple(
        (
            step.finding or None,
            phrase_of(step.title),
            _cost(step.cost) if step.added is None else phrase_of(step.added),
            _unit(step.measure.what, step.measure.unit),
            _cell(step.measure.before, step.measure, kind),
            _cell(step.measure.after, step.measure, kind),
            step.kept,
            phrase_of(step.why) if step.why else None,
        )
        for step in repair.steps
    )
    return pages.TableBlock("repair", bilingual("diagnosis.repair"), columns, rows)


def _kind(measure: Measure) -> pages.ColumnKind:
    if measure.unit == "dB":
        return "decibels"
    return "share" if measure.of_top1 or str(measure.what) in TOP1 else "number"


def _told(value: float, measure: Measure) -> Phrase:
    return in_all_languages(lambda: _number(value, measure))


def _cell(value: float, measure: Measure, kind: pages.ColumnKind) -> float | Phrase:
    return value if kind != "text" else plain(f"{_number(value, measure)} {measure.unit}".rstrip())
