"""The first screen of a comparison: where it starts, what the outputs keep, what was asked and judged."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from roundoff.core.coverage import Coverage
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, bilingual, plain
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import score_text
from roundoff.pages.cards import (
    HeroCard,
    Mark,
    NetworkRole,
    ScoreFigure,
    coverage_facts,
    input_names,
    ran,
    score_figure,
)
from roundoff.studies.compare.result import Comparison, TensorComparison

_MARKS: Mapping[str, Mark] = {"pass": "good", "fail": "bad", "incomplete": "open", "no_evidence": "open"}
_OUTPUTS = 3


def comparison_hero(
    document: RunDocument, found: Comparison, rows: Mapping[str, TensorComparison], *, said: Phrase
) -> HeroCard:
    """The score of a comparison.

    Args:
        document: The run.
        found: The comparison.
        rows: Its tensors by their names.
        said: The verdict with its numbers.
    """
    judged = found.verdict.passed + found.verdict.failed
    there = len(found.rows) + len(found.unmatched_reference)
    pills: list[tuple[Mark, Phrase]] = [(_MARKS[found.state], bilingual(f"compare.word_{found.state}"))]
    if judged < there:
        pills.append(("open", bilingual("compare.hero_not_judged", count=there - judged)))
    return HeroCard(
        _title(found, rows),
        tuple(pills),
        Phrase(said.en.lstrip(": ") + ".", said.zh.lstrip(":\uff1a ") + "\u3002"),
        scores=tuple(_scores(found, rows)),
        facts=tuple(_facts(document, found, judged, there)),
        coverage=(judged, there),
    )


def _title(found: Comparison, rows: Mapping[str, TensorComparison]) -> Phrase:
    first = found.verdict.first_divergence
    if found.state != "fail":
        return bilingual(f"compare.hero_{found.state}")
    if first is None:
        return bilingual("compare.hero_fail")
    row = rows[first]
    what = phrase_of(row.difference) if row.difference else phrase_of(row.score.detail)
    return bilingual("compare.hero_first", name=first, what=what)


def _scores(found: Comparison, rows: Mapping[str, TensorComparison]) -> Iterator[ScoreFigure]:
    """What the outputs keep, the worst first."""
    names = () if found.outputs is None else found.outputs.judged
    scored = [rows[name] for name in names if name in rows]
    known = [(value, row) for row in scored if (value := row.score.values.get("sqnr_db")) is not None]
    for value, row in sorted(known, key=lambda each: each[0])[:_OUTPUTS]:
        cosine = row.score.values.get("cosine")
        detail = plain("")
        if cosine is not None:
            detail = bilingual("compare.hero_cosine", value=score_text("cosine", cosine))
        role: NetworkRole = "repaired" if row.passed else "quantized"
        yield score_figure(plain(row.reference), role, metric="sqnr_db", value=value, detail=detail)


def _facts(
    document: RunDocument, found: Comparison, judged: int, there: int
) -> Iterator[tuple[Phrase, tuple[Phrase, ...]]]:
    files = input_names(document)
    given = [files[role] for role in ("model", "reference") if role in files]
    yield bilingual("compare.hero_reference"), tuple(map(plain, given or [PurePath(found.reference).name]))
    other = files.get("candidate") or PurePath(found.candidate).name
    yield bilingual("compare.hero_candidate"), (plain(other),)
    data = [plain(files["data"])] if "data" in files else []
    yield (
        bilingual("card.data"),
        (
            *data,
            bilingual("compare.hero_samples", count=len(found.samples)),
        ),
    )
    yield bilingual("compare.judged_by"), (plain(found.thresholds.describe()),)
    lines = [bilingual("card.judged", judged=judged, there=there)]
    if found.outputs is not None:
        lines += coverage_facts(Coverage(found.outputs))
    yield bilingual("card.coverage"), tuple(lines)
    yield ran(document)
