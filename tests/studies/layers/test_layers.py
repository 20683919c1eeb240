"""Layer-by-layer reports for people and for programs."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from roundoff.core.document import SCHEMA, Environment, InputFile, RunDocument, load_document, to_json
from roundoff.core.target import WIDEST
from roundoff.messages.catalogue import Language, use_language
from roundoff.messages.message import message, verbatim
from roundoff.pages.blocks import Facts, View
from roundoff.pages.terminal import terminal_page
from roundoff.report.pages import run_files, write_run
from roundoff.studies.layers.measurement import arithmetic_in_words
from roundoff.studies.layers.page import layers_page
from roundoff.studies.layers.result import (
    WEIGHTS_UNKNOWN,
    Cause,
    Culprit,
    Experiment,
    Introduced,
    LayerOverflow,
    LayerReport,
    LayerRow,
    LayerScore,
    LayerVerdict,
)

GOOD = LayerScore("ok", verbatim(""), 0.99999, 1e-4, 44.4, 0.3, 1.5, 240, 3, 41.0, "s1", 43.0)
BAD = LayerScore("ok", verbatim(""), 0.8, 0.5, 4.5, 40.0, 300.0, 256, 1, 0.5, "s0", 3.3)


def row(
    order: int, tensor: str, score: LayerScore = GOOD, share: float = 0.1, cause: Cause = "rounding"
) -> LayerRow:
    return LayerRow(
        order=order,
        node=f"node of {tensor}",
        op_type="Conv",
        unit=f"node of {tensor}",
        tensor=tensor,
        shape=(1, 8, 4, 4),
        dtype="float32",
        quantized="u8",
        output=tensor == "logits",
        samples=2,
        levels=256,
        clipped=0.25 if score is BAD else 0.0,
        local=score,
        accumulated=score,
        introduced=Introduced(score.sqnr_db or 0.0, 40.0, share, cause),
    )


FUSED = LayerRow(
    1, "act", "Relu", "conv", "inner", (1, 8, 4, 4), "float32", "fused", False, 2,
    local=replace(GOOD, rms_steps=None, max_steps=None, used_levels=None), accumulated=GOOD,
)  # fmt: skip
ROWS = (row(0, "=HYPERLINK(1)"), FUSED, row(2, "spoilt/卷积层", BAD, 0.85, "clipping"), row(3, "logits"))
REMEDY = ("conv2=weight=float", "tensor:spoilt/卷积层=float")
CULPRIT = Culprit(
    "relu2", "Relu", "conv2", "spoilt/卷积层", Introduced(4.5, 3.0, 0.85, "clipping"), 0.25, 256, 256, REMEDY
)
VERDICT = LayerVerdict(
    kind="local",
    outputs=("logits",),
    agrees=False,
    thresholds="cosine >= 0.99",
    culprits=(CULPRIT,),
    contributors=12,
    tried=("spoilt/卷积层",),
    samples=8,
    before=Experiment((), 4.84, 0.8, False),
    after=Experiment(("q",), 29.81, 0.999, True),
)
REPORT = LayerReport(
    reference="float.onnx",
    samples=("s0", "s1"),
    method="both",
    mode="reference",
    arithmetic=verbatim("fake quantization"),
    rows=ROWS,
    verdict=VERDICT,
    notes=(verbatim("2 passes per sample"),),
    quantized=verbatim("quantized for generic-int8, calibrated by mse"),
    preparation=(verbatim("two nodes were folded"),),
)
DOCUMENT = RunDocument(
    schema=SCHEMA,
    command=("roundoff", "layers", "a"),
    inputs=(InputFile("model", "a", 3, "00", "content"),),
    layers=REPORT,
    environment=Environment("0.1.0", "3.11", {"numpy": "2"}, "host", verbatim("float64"), 0.5),
)


def shown(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def in_report(report: LayerReport, language: Language = "en") -> str:
    """What stands in a report, a line each."""
    found = layers_page(replace(DOCUMENT, layers=report))
    assert found is not None
    facts = [each for each in found.blocks if isinstance(each, Facts) and "html" in each.on]
    return "\n".join(text.within(language) for each in facts for _, text in each.rows)


def page(report: LayerReport, *, most: int | None = None, sort: str = "") -> RenderableType:
    found = layers_page(replace(DOCUMENT, layers=report), View(most, sort))
    assert found is not None
    return terminal_page(found)


def verdict(report: LayerReport) -> str:
    """What stands above the table."""
    return shown(page(report), 200).partition("\n\n")[0]


def table(report: LayerReport, width: int = 80, *, most: int | None = None, sort: str = "") -> str:
    """The table and what stands below it."""
    return shown(page(report, most=most, sort=sort), width).partition("\n\n")[2]


def said(report: LayerReport) -> str:
    return " ".join(verdict(report).split())


def test_what_outputs_that_keep_the_limits_lose_is_a_note() -> None:
    kept = replace(REPORT, verdict=replace(REPORT.verdict, kind="fine", agrees=True))
    text = said(kept)
    assert text.startswith("FINE: the outputs keep the limits; 1 of 12 units in float brings the output from")
    assert "mostly from" in text
    assert "caused by" not in text


def test_a_local_loss_names_the_node_the_tensor_and_the_cause() -> None:
    text = said(REPORT)
    assert text.startswith(
        "LOCAL: 1 of 12 units in float brings the output from 4.8 to 29.8 dB (measured on 8 samples)"
    )
    assert "logits: 44.4 dB, cosine 0.99999 accumulated, 4.8 dB at the part of it that is worst" in text
    assert "worst off; misses cosine >= 0.99" in text
    assert "relu2 (Relu after conv2): 25 % of its values are clipped; local 4.5 dB remedy" in text
    assert "remedy --set conv2=weight=float --set 'tensor:spoilt/卷积层=float'" in text
    assert "%" not in text.replace("25 % of its values", "")


def test_what_was_run_is_said() -> None:
    line = "quantized for generic-int8, calibrated by mse; fake quantization; 2 samples"
    assert line in in_report(REPORT)
    assert line not in said(REPORT)  # whoever typed it knows


def test_a_culprit_beside_others_is_told_with_what_it_costs() -> None:
    culprits = (CULPRIT, replace(CULPRIT, quantized_again=Experiment((), 6.1, 0.9, False)))
    text = said(replace(REPORT, verdict=replace(VERDICT, culprits=culprits)))
    assert "local 4.5 dB; 6.1 dB when this one alone is quantized again" in text


def test_a_channel_that_is_lost_in_a_healthy_tensor_is_told() -> None:
    culprit = replace(
        CULPRIT, tensor="logits", worst_channel=6, worst_channel_sqnr_db=0.0, lost_channels=11, channels=32
    )
    text = said(replace(REPORT, verdict=replace(VERDICT, culprits=(culprit,))))
    assert "local 44.4 dB, but channel 6 has 0.0 dB (11 of 32 channels below 3 dB)" in text
    bad_everywhere = replace(culprit, tensor="spoilt/卷积层")
    assert "channel 6" not in said(replace(REPORT, verdict=replace(VERDICT, culprits=(bad_everywhere,))))


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("rounding", "rounding of its values, 256/256 levels used"),
        ("weights", "its weights"),
        ("integer arithmetic", "integer arithmetic"),
    ],
)
def test_every_cause_has_words(cause: Cause, words: str) -> None:
    culprit = replace(CULPRIT, introduced=replace(CULPRIT.introduced, cause=cause))
    assert words in said(replace(REPORT, verdict=replace(VERDICT, culprits=(culprit,))))


def test_a_culprit_of_which_both_parts_matter_says_so() -> None:
    both = replace(CULPRIT, result_again=Experiment((), 6.1, 0.9, False))
    weights = replace(both, introduced=replace(CULPRIT.introduced, cause="weights"))
    text = said(replace(REPORT, verdict=replace(VERDICT, culprits=(both, weights))))
    assert "25 % of its values are clipped, and weights; local" in text
    assert "its weights, and the rounding of its result; local" in text


def test_a_distributed_loss_says_over_how_many() -> None:
    changed = replace(VERDICT, kind="distributed", culprits=(), tried=("a", "b"))
    text = said(replace(REPORT, verdict=changed))
    assert text.startswith(
        "DISTRIBUTED: no few units are the cause; the 2 tried in float bring the output from 4.8 to 29.8 dB "
        "(measured on 8 samples)"
    )
    # These are not those that head the table, which is explained.
    assert "tried a, b (worst by themselves, which gains more than those that head the table" in text
    top = max((row for row in REPORT.rows if row.introduced), key=lambda row: row.introduced.output_share)  # type: ignore[union-attr]
    text = said(replace(REPORT, verdict=replace(changed, tried=(top.tensor,))))
    assert text.endswith(f"tried {top.tensor}")


def test_a_distributed_loss_says_whether_it_is_the_weights() -> None:
    weights, activations = Experiment((), 22.0, 0.99, True), Experiment((), 5.0, 0.8, False)
    changed = replace(
        VERDICT, kind="distributed", culprits=(), float_weights=weights, float_activations=activations
    )
    text = said(replace(REPORT, verdict=changed))
    assert "all weights in float give 22.0 dB, all activations in float 5.0 dB: it is the weights of many" in text
    assert "try equalize and bias-correct even out channels of different size" in text
    turned = replace(changed, float_weights=activations, float_activations=weights)
    assert "try ranges by other calibration methods" in said(replace(REPORT, verdict=turned))
    close = replace(changed, float_activations=Experiment((), 20.0, 0.9, True))
    assert "it is the" not in said(replace(REPORT, verdict=close))
    assert "try more of them in float, or in 16 bits" in said(replace(REPORT, verdict=close))


def test_a_fine_network_is_called_so() -> None:
    text = said(replace(REPORT, verdict=LayerVerdict("fine", ("logits",), True, "cosine >= 0.99")))
    assert text.startswith("FINE: the outputs agree and no unit stands out")
    assert "misses" not in text


def test_weights_that_are_not_judged_are_never_called_fine() -> None:
    unjudged = (verbatim("weights are not judged: no float model with unrounded weights was given"),)
    changed = LayerVerdict("fine", ("logits",), True, "cosine >= 0.99", not_judged=unjudged)
    text = said(replace(REPORT, verdict=changed))
    assert text.startswith("FINE as far as activations go: ")
    assert f"beware {unjudged[0]}" in text
    nothing = said(replace(REPORT, verdict=replace(changed, kind="open")))
    assert nothing.startswith("INCONCLUSIVE: nothing of it could be judged")
    assert "44.4 dB" not in nothing


@pytest.mark.parametrize("method", ["local", "accumulated"])
def test_one_method_alone_says_how_to_get_a_verdict(method: str) -> None:
    changed = LayerVerdict("open", (), None, "")
    text = said(replace(REPORT, method=method, verdict=changed))  # type: ignore[arg-type]
    assert text.startswith(f"INCONCLUSIVE: only {method} errors were measured")
    assert "--method both" in text


def test_an_input_of_the_network_can_be_the_culprit() -> None:
    culprit = replace(CULPRIT, node="", op_type="", weighted="", tensor="image")
    assert "input image: 25 % of its values are clipped remedy" in said(
        replace(REPORT, verdict=replace(VERDICT, culprits=(culprit,)))
    )


def test_many_culprits_are_named_in_one_line_after_the_first() -> None:
    culprits = tuple(replace(CULPRIT, node=f"conv{index}") for index in range(6))
    text = verdict(replace(REPORT, verdict=replace(VERDICT, culprits=culprits)))
    begins = [line.split()[0] for line in text.splitlines()]
    assert begins[:7] == ["LOCAL:", "output", "caused", "conv1", "conv2", "and", "remedy"]
    assert "and conv3, conv4, conv5" in text


def test_what_is_masked_is_mentioned() -> None:
    text = said(replace(REPORT, verdict=replace(VERDICT, masked=("a", "b", "c", "d"))))
    assert "also a, b, c ...: below 15 dB by itself, but not the cause as things are" in text


def test_several_outputs_are_told_by_the_worst() -> None:
    text = said(replace(REPORT, verdict=replace(VERDICT, outputs=("logits", "inner"))))
    assert "outputs worst is logits: 44.4 dB" in text
    assert "1 other" in text


def test_integer_runs_tell_of_overflows_and_float_nodes() -> None:
    overflows = (
        LayerOverflow("conv1", "Conv", verbatim("3 of 9 sums do not fit")),
        LayerOverflow("conv2", "Conv", verbatim("1 of 9")),
    )
    text = said(replace(REPORT, overflows=overflows, float_nodes={"softmax": verbatim("Softmax: no table")}))
    assert "overflow conv1 (Conv): 3 of 9 sums do not fit; and 1 more" in text
    assert "run float 1 node: softmax" in text


def test_the_table_fits_a_terminal_whatever_the_names() -> None:
    long = replace(ROWS[0], tensor="/model/" + "很长的名字" * 20, op_type="BatchNormalization")
    report = replace(REPORT, rows=(*ROWS, replace(long, order=4)))
    for width in (80, 200):
        lines = table(report, width).splitlines()
        assert max(cell_len(line) for line in lines) <= width
    assert "卷积层" in table(report, 200)


def test_worst_rows_come_first_and_the_rest_is_counted() -> None:
    lines = table(REPORT, most=2).splitlines()
    numbers = [line.split()[0] for line in lines if line.split() and line.split()[0].isdigit()]
    assert numbers[:3] == ["2", "0", "2"]  # two rows, and how many are left out
    text = " ".join(" ".join(lines).split())
    assert "2 rows that matter less are left out; --top all shows them dB: SQNR; local: " in text
    assert "adds: estimated share of output error note: 2 passes" in text
    assert text.endswith("note: for 1 remark on how the model was prepared see the document (--json, -o)")
    in_order = table(REPORT, sort="order")
    assert in_order.index("inner") < in_order.index("spoilt") < in_order.index("logits")


def test_rows_without_a_score_come_before_all_others() -> None:
    broken = replace(ROWS[3], local=LayerScore("shape", verbatim("1x2 against 1x3")), accumulated=GOOD)
    lines = table(replace(REPORT, rows=(*ROWS[:3], broken))).splitlines()
    assert "logits" in lines[2]
    assert "shape" in lines[2]


def test_a_wide_table_has_every_column() -> None:
    head = " ".join(table(REPORT, 200).splitlines()[:2])
    for name in ("shape", "cosine", "steps", "max", "mse", "channel", "clip", "levels", "adds", "est."):
        assert name in head
    assert "1: 0.5" in table(REPORT, 200)


def test_only_what_was_measured_has_a_column() -> None:
    rows = tuple(replace(each, accumulated=None, introduced=None) for each in ROWS)
    head = " ".join(table(replace(REPORT, method="local", rows=rows)).splitlines()[:2])
    assert "local" in head
    assert "accum" not in head
    assert "adds" not in head


def test_the_csv_has_all_scores_and_no_formulas() -> None:
    records = list(csv.DictReader(io.StringIO(run_files(DOCUMENT)["layers.csv"])))
    assert len(records) == len(ROWS)
    assert records[0]["tensor"] == "'=HYPERLINK(1)"
    spoilt = records[2]
    assert spoilt["tensor"] == "spoilt/卷积层"
    assert float(spoilt["local_sqnr_db"]) == 4.5
    assert float(spoilt["accumulated_max_steps"]) == 300
    assert (spoilt["shape"], spoilt["output"], spoilt["cause"]) == ("1x8x4x4", "no", "clipping")
    assert float(spoilt["output_share"]) == 0.85
    assert records[1]["local_rms_steps"] == records[1]["clipped"] == records[1]["cause"] == ""
    assert records[3]["output"] == "yes"


def test_a_run_directory_holds_the_document_and_the_table(tmp_path: Path) -> None:
    perfect = replace(ROWS[0], local=replace(GOOD, sqnr_db=math.inf))
    document = replace(DOCUMENT, layers=replace(REPORT, rows=(perfect, *ROWS[1:])))
    files = write_run(document, tmp_path / "run", force=False)
    assert [file.name for file in files] == ["run.json", "layers.csv"]
    assert load_document(tmp_path / "run") == document


def test_a_document_mentions_only_its_own_kind_of_result() -> None:
    content = json.loads(to_json(DOCUMENT))
    assert "layers" in content
    assert "comparison" not in content


def test_outputs_without_a_score_are_named() -> None:
    output = next(row for row in REPORT.rows if row.output)
    text = replace(
        output, tensor="label", accumulated=LayerScore("unreadable", verbatim("it holds text, not numbers"))
    )
    changed = replace(REPORT.verdict, outputs=(output.tensor, "label"))
    assert "; 1 other, without a score: label" in said(replace(REPORT, rows=(*REPORT.rows, text), verdict=changed))


def test_what_has_no_score_leaves_room_for_the_other_columns() -> None:
    scores = [LayerScore(status, verbatim("")) for status in ("unreadable", "nonfinite", "degenerate")]
    rows = [*REPORT.rows, *(replace(REPORT.rows[0], local=score, accumulated=score) for score in scores)]
    text = table(replace(REPORT, rows=tuple(rows)))
    assert max(map(len, text.splitlines())) <= 80
    assert [word in text for word in ("n/a", "NaN/inf", "empty", "unreadable")] == [True, True, True, False]


def test_a_name_stays_what_it_is_in_chinese() -> None:
    """Nothing of a report is taken apart to be told in another language."""
    odd = """conv (3x3); it's "odd\""""
    blamed = replace(CULPRIT, node=odd, weighted=odd)
    report = replace(
        REPORT,
        verdict=replace(VERDICT, culprits=(blamed,), not_judged=(WEIGHTS_UNKNOWN,)),
        arithmetic=arithmetic_in_words(replace(WIDEST, requantization="fixed_point")),
        overflows=(LayerOverflow(odd, "Conv", message("layers.overflow_bias", count=2, all=8, factor="1.5")),),
        notes=(message("layers.note_hidden", count=3, nodes=(odd,)),),
        quantized=message("common.saved_for", folder="runs; it's", target="a; b", method="mse"),
    )
    with use_language("zh"):
        text = shown(page(report), 300)
    assert text.count(odd) == 3
    text += in_report(report, "zh")
    for part in (
        "没有给出权重未经舍入的浮点模型",
        "面向 a; b 量化",
        "8 个偏置中有 2 个超出编码范围",
        f"{odd} 内部的 3 个张量从外部不可见",
    ):
        assert part in text
