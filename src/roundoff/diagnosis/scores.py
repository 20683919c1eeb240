"""What networks get right, as a table for a terminal."""

from typing import Literal

from roundoff import pages
from roundoff.diagnosis.cards import repaired_output
from roundoff.diagnosis.result import Diagnosis, Measure
from roundoff.messages.catalogue import Phrase, bilingual, current_language, in_all_languages, plain
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import decibels_with_unit, percent_digits, share_text
from roundoff.pages.cards import HeroCard


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
    repair, samples = found.repair, measure.samples or found.samples
    others = repair is not None and any(each.samples != samples for each in repair.scores)
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
