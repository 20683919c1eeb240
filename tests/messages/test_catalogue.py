"""Everything that is said, is said in every language."""

import re
import string
from pathlib import Path
from typing import Any, get_args

import pytest

from roundoff.core import quantizers
from roundoff.diagnosis import result as findings
from roundoff.messages.catalogue import (
    LANGUAGES,
    Phrase,
    bilingual,
    catalogue,
    commas,
    count_of,
    current_language,
    few,
    plain,
    semicolons,
    sentences,
    translate,
    use_language,
)
from roundoff.studies.accumulate import result as accumulation
from roundoff.studies.audit import result as audit
from roundoff.studies.check_calibration import result as calibration_check
from roundoff.studies.check_io import result as io_check
from roundoff.studies.compare import result as comparison
from roundoff.studies.distribution import result as channel_spread
from roundoff.studies.distribution import result as distributions
from roundoff.studies.layers import result as layer_scores
from roundoff.studies.run_diff import result as run_diff
from roundoff.studies.sensitivity import result as sensitivity

SOURCES = Path(__file__).parents[2] / "src/roundoff"


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_phrase_has_all_languages_with_the_same_gaps() -> None:
    for key, entry in catalogue().items():
        assert set(entry) == set(LANGUAGES), key
        assert gaps(entry["en"]) == gaps(entry["zh"]), key
        assert all(text == text.strip() and text for text in entry.values()), key


def test_chinese_is_chinese() -> None:
    same = {key for key, entry in catalogue().items() if entry["en"] == entry["zh"]}
    # Signs and names that both languages write alike.
    assert all(not re.search("[a-z]{5,}", re.sub(r"\{.*?\}", "", catalogue()[key]["en"])) for key in same), same


def test_no_phrase_is_unused() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    whole = set(re.findall(r"""["']([a-z_0-9]+\.[a-z_]+)["']""", code))
    starts = tuple(re.findall(r"""f["']([a-z_0-9]+\.[a-z_]*)\{""", code))
    unused = {key for key in catalogue() if key not in whole and not key.startswith(starts)}
    assert not unused


def test_gaps_are_filled_in_each_language() -> None:
    found = bilingual("sensitivity.chart", kind=bilingual("sensitivity.node"))
    assert found.en == "The leading nodes, with their intervals of 95 %"
    assert found.zh.startswith("排名靠前的节点")
    assert found.within("zh") == found.zh
    assert plain("x") == Phrase("x", "x")


CHOSEN = [
    ("layers.word_", layer_scores.VerdictKind),
    ("explain_text.cause_", layer_scores.Cause),
    ("compare.mark_", comparison.Role),
    ("compare.role_", comparison.Role),
    ("sensitivity.word_", sensitivity.Standing),
    ("sensitivity.", sensitivity.Standing),
    ("sensitivity.kind_", quantizers.SubjectKind),
    ("sensitivity.behind_", quantizers.SubjectKind),
    ("sensitivity.", sensitivity.Mode),
    ("explain_text.", sensitivity.Mode),
    ("counts.", quantizers.SubjectKind),
    ("accumulate.word_", accumulation.Dominance),
    ("accumulate.", accumulation.Dominance),
    ("audit.", audit.Severity),
    ("audit.ranked_", audit.Severity),
    ("distribution.kind_", distributions.InspectedKind),
    ("channels.risk_", channel_spread.Risk),
    ("run_diff.word_", run_diff.DiffKind),
    ("run_diff.change_", run_diff.Change),
    ("run_diff.", run_diff.Pairing),
    ("diagnosis.word_", findings.DiagnosisKind),
    ("diagnosis.cost_", findings.CostClass),
    ("check_calibration.kind_", calibration_check.FindingKind),
    ("check_io.stage_", io_check.Stage),
]


@pytest.mark.parametrize(("start", "kind"), CHOSEN, ids=[f"{start}{kind}" for start, kind in CHOSEN])
def test_whatever_chooses_a_phrase_finds_it(start: str, kind: Any) -> None:
    names = [name.replace(" ", "_") for name in get_args(kind) if name]
    assert [name for name in names if f"{start}{name}" not in catalogue()] == []


def test_the_terminal_speaks_one_language_at_a_time() -> None:
    assert current_language() == "en"
    assert translate("terminal.note", text="x") == "note: x"
    with use_language("zh"):
        assert current_language() == "zh"
        assert translate("terminal.note_label") == "注意"
        with use_language("en"):
            assert translate("terminal.note_label") == "note"
    assert current_language() == "en"


def test_numbers_choose_singular_and_plural() -> None:
    assert [count_of(number, "sample") for number in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert count_of(2, "bias") == "2 biases"
    with use_language("zh"):
        assert count_of(1, "tensor") == "1 个张量"


def test_parts_of_sentences_are_joined_as_the_language_does() -> None:
    assert commas("a", "", "b") == "a, b"
    assert semicolons("a", "b") == "a; b"
    assert sentences("A.", "B.") == "A. B."
    assert few(["a", "b", "c"], 2) == "a, b and 1 more"
    assert few(["a", "b"], 2) == "a, b"
    with use_language("zh"):
        assert sentences("甲", "乙") == "甲乙"
