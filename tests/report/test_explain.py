"""Anything that a report mentions, in one paragraph."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import roundoff
from roundoff.core.document import RunDocument
from roundoff.diagnosis.registry import CauseOf, all_causes
from roundoff.diagnosis.result import Diagnosis, DiagnosisKind, Finding, Measure, Remedy
from roundoff.errors import BadInput
from roundoff.measure.metrics import all_metrics
from roundoff.messages.catalogue import bilingual, catalogue, use_language
from roundoff.messages.message import verbatim
from roundoff.report.explain import explain as explain_with
from roundoff.report.explain import term_names
from roundoff.studies.layers.result import VerdictKind
from roundoff.studies.run_diff.result import DiffKind
from tests.report.curves import curves_of
from tests.report.diffs import diff_of
from tests.report.documents import chain, empty_document
from tests.studies.compare import test_page as test_reports
from tests.studies.layers import test_layers

FINDING = Finding(
    1, "clipping", ("conv",), ("t1",), verbatim("'t1' is cut off"), {}, verbatim("its range widened"),
    (Measure(verbatim("SQNR of the outputs"), "dB", 10.0, 31.0),), 0.9, Remedy(verbatim("widen it"), "free"), True,
)  # fmt: skip


def explain(name: str, document: RunDocument | None = None) -> str:
    return explain_with(name, document, metrics=tuple(all_metrics()))


def test_everything_that_has_a_name_is_explained() -> None:
    names = [each.name for each in all_metrics()]
    names += [each.name for of in get_args(CauseOf) for each in all_causes(of)]
    names += [*get_args(VerdictKind), *get_args(DiffKind), *get_args(DiagnosisKind)]
    assert [name for name in names if not explain(name)] == []
    assert len(set(term_names())) == len(term_names())


def test_a_metric_is_told_with_its_range_direction_and_when_it_misleads() -> None:
    text = explain("cosine")
    assert text.startswith("cosine: cosine of the angle between the tensors; blind to gain.")
    assert "higher is better; of equal tensors it is 1." in text
    assert "It misleads where" in text
    assert "of equal tensors it is infinite" in explain("SQNR_dB")


def test_words_are_known_in_any_spelling() -> None:
    assert explain("DISTRIBUTED") == explain("distributed")
    assert explain("not enough evidence").startswith("NOT ENOUGH EVIDENCE")
    assert explain("Outlier channel") == explain("outlier-channel")
    assert explain("Inconclusive") == explain("open")
    with use_language("zh"):
        assert explain("不显著") == explain("NOT SIGNIFICANT") == explain("unclear")


def test_a_node_is_told_with_the_numbers_of_the_run() -> None:
    document = empty_document(layers=test_layers.REPORT, network=chain("a", "b"))
    text = explain("spoilt/卷积层", document)
    assert "Alone, fed with float tensors, it keeps 4.5 dB." in text
    assert "adds an estimated 85 % of the error at the outputs, mostly by clipping" in text
    assert "25 % of its values are clipped. 256 of 256 codes occur." in text
    assert "It is a culprit" in text
    assert "It is no culprit." in explain("logits", document)
    assert explain("a", document) == "a: operation Conv, node 1 of 2. This run measured nothing of it."


def test_runs_of_other_kinds_have_their_own_sentences() -> None:
    row = test_reports.make_row(0, "conv", 0.5, role="victim")
    compared = explain("conv", empty_document(comparison=test_reports.make_comparison(row)))
    assert "cosine 0.5" in compared
    assert "It is a victim" in compared
    curves = curves_of()
    assert "On the curve" in explain(curves.nodes[0].tensor, _with_network(curves.nodes[0].tensor))
    assert "went from 30.0 to 20.0 dB: worse" in explain("conv1", empty_document(diff=diff_of("conv1", "b")))


def _with_network(tensor: str) -> RunDocument:
    network = chain("a")
    node = replace(network.nodes[0], outputs=(tensor,))
    return empty_document(accumulation=curves_of(), network=replace(network, nodes=(node,)))


def test_a_finding_is_told_with_its_proof_and_remedy() -> None:
    found = Diagnosis("m", verbatim("q"), "quantization", "culprits", verbatim(""), (FINDING,), victims=("t2",))
    document = empty_document(diagnosis=found, network=chain("conv", "next"))
    expected = (
        "Finding 1 (clipping): 't1' is cut off. It is proven: its range widened. SQNR of the outputs went from "
        "10.0 dB to 31.0 dB. It makes 90 % of the loss. What to do: widen it (cost: free)."
    )
    assert explain("1", document) == explain("finding #1", document) == expected
    assert explain("conv", document).endswith(expected)
    assert explain("t2", document).endswith("wrong only because of what it reads.")
    suspected = replace(found, findings=(replace(FINDING, proven=False),))
    assert "suspected only" in explain("1", replace(document, diagnosis=suspected))
    with pytest.raises(BadInput, match="no finding 7"):
        explain("7", document)


def test_what_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'cosine'"):
        explain("cosin")
    with pytest.raises(BadInput, match="did you mean 'conv1'"):
        explain("conv11", empty_document(diff=diff_of("conv1")))
    with pytest.raises(BadInput, match="no run of 'roundoff diagnose' was given"):
        explain("3")


def test_another_place_of_a_joint_finding_says_where_it_belongs() -> None:
    joint = replace(FINDING, nodes=("conv", "next", "clip"), places=2)
    found = Diagnosis("m", verbatim("q"), "quantization", "culprits", verbatim(""), (joint,))
    document = empty_document(diagnosis=found, network=chain("conv", "next", "clip"))
    belongs = "It belongs to the joint finding 1 of 2 places, the worst of which is conv."
    assert belongs in explain("next", document)
    assert belongs not in explain("conv", document)
    assert "The places are conv, next." in explain("1", document)


@pytest.mark.parametrize(
    "word",
    ["dB", "victims", "culprits", "coverage", "inherited", "INCOMPLETE", "MET", "same top-1", "clipped", "proof",
     "control", "remedy", "introduced by", "layouts", "map", "judged by", "matching", "refused", "not searched",
     "AX650", "axera-ax650", "pulsar2"],
)  # fmt: skip
def test_words_that_are_printed_are_explained(word: str) -> None:
    assert len(roundoff.explain(word)) > 40


PRINTED = sorted(
    key
    for key in catalogue()
    if re.search(r"\.(?:word|label)_", key) and key.split(".")[0] not in ("terms", "glossary")
)


@pytest.mark.parametrize("key", PRINTED)
def test_every_verdict_and_label_that_is_printed_is_explained_in_both_languages(key: str) -> None:
    assert len(PRINTED) >= 100
    phrase = bilingual(key, count=3)
    assert explain(phrase.en)
    if "{count" in catalogue()[key]["en"]:
        return  # a word with a number is known by its English
    with use_language("zh"):
        assert any("\u4e00" <= letter <= "\u9fff" for letter in explain(phrase.zh))


def test_pages_that_messages_name_are_shown_without_the_repository() -> None:
    assert explain("targets.md").startswith("# ")
    assert explain("docs/reference/plan.md") == explain("plan.md")
    with use_language("zh"):
        assert explain("int8.md").startswith("# \u6211")
    with pytest.raises(BadInput, match="has no page"):
        explain("nothing.md")


def test_every_page_that_a_message_names_exists() -> None:
    package = Path(roundoff.__file__).parent
    texts = [path.read_text("utf-8") for ending in ("*.py", "*.toml") for path in package.rglob(ending)]
    named = {page for text in texts for page in re.findall(r"roundoff explain ([a-z0-9-]+\.md)", text)}
    assert len(named) >= 4
    assert all(explain(page) for page in named)
    assert not [text for text in texts if "docs/reference/" in text or "docs/formats/" in text]
