"""The first screen of a diagnosis: every number that it shows, and where it comes from."""

# ruff: noqa: RUF001 - minus signs and dashes as people read them

from dataclasses import replace

import pytest

from roundoff.core.coverage import Coverage, Judgement, OutputCoverage, Share
from roundoff.core.document import Environment, InputFile, RunDocument
from roundoff.core.tensors import NodeInfo, Topology
from roundoff.diagnosis.cards import (
    channel_drawing,
    diagnosis_cards,
    histogram_drawing,
    overflow_drawing,
    scatter_drawing,
)
from roundoff.diagnosis.page import diagnosis_page
from roundoff.diagnosis.result import (
    Control,
    Diagnosis,
    Finding,
    LayerErrors,
    Measure,
    NetworkScore,
    Remedy,
    RemedyChange,
    Repair,
    RepairStep,
    ValuePairs,
    ValueProfile,
)
from roundoff.messages.message import message, verbatim
from roundoff.pages.cards import ChannelDrawing, CulpritCard, ErrorChart, HeroCard, HistogramDrawing, db_class
from roundoff.pages.html.render import html_report

SQNR = message("diagnosis.measure_sqnr", name="y")
ACCURACY = message("diagnosis.measure_accuracy")
LAYERS = LayerErrors(
    ("a", "b"),
    nodes=("relu", "y"),
    units=("conv", "dense"),
    tensors=("relu", "y"),
    shapes=("1x8", "1x4"),
    dtypes=("u8", "u8"),
    outputs=(False, True),
    local_db=(8.5, 35.0),
    accumulated_db=(8.5, -0.14),
    cosine=(0.93, 0.6),
    rms_steps=(43.9, 0.3),
    clipped=(0.0, 0.0),
    worst_channel=(3, None),
    worst_channel_db=(-14.0, None),
)
PROFILE = ValueProfile(
    "conv", "w", weight=True, dtype="s8", scales=1, scale=0.5, low=-64.0, high=63.5, channels=5,
    reaches=(1.0, 63.5, 2.5, 0.2, 8.0), counts=(0, 1, 4, 9, 0, 1), start=-64.0, end=63.5, zeros=0.236,
)  # fmt: skip
FINDING = Finding(
    1,
    "outlier-channel",
    ("conv", "relu"),
    ("w",),
    verbatim("the weight of 'conv' has one scale"),
    intervention=verbatim("a scale for each channel"),
    measures=(
        Measure(SQNR, "dB", -0.14, 10.36, samples=2),
        Measure(ACCURACY, "", 0.125, 0.875, samples=8),
    ),
    share=0.97,
    remedy=Remedy(verbatim("to s16"), "16 bit", (RemedyChange("bits", ("w",), ("conv",), value="s16"),)),
    proven=True,
    control=Control(
        elsewhere=Measure(SQNR, "dB", -0.2, 0.1, samples=8),
        others=4,
        other_half=Measure(SQNR, "dB", -0.5, 9.5, samples=1),
        better=2,
        samples=2,
    ),
    profiles=(PROFILE,),
)
REPAIR = Repair(
    (RepairStep(verbatim("correct biases"), "free", 0, Measure(ACCURACY, "", 0.2, 0.9), kept=True),),
    (Measure(ACCURACY, "", 0.1, 0.9, samples=10),),
    reached=True,
    used=20,
    held_out=10,
    gain=(0.4, 1.0),
    scores=(
        NetworkScore("float", 0.9, 10, 9, (0.596, 0.982), held_out=True),
        NetworkScore("quantized", 0.1, 10, 1, (0.018, 0.404), held_out=True),
        NetworkScore("repaired", 0.9, 10, 9, (0.596, 0.982), held_out=True),
    ),
    accumulated_db=(29.6, 18.34),
    operators={"Min": 27},
    precisions={"weight s16 per tensor": 2},
)
FOUND = Diagnosis(
    "net.onnx",
    verbatim("net_int8.onnx"),
    "quantization",
    "culprits",
    verbatim("conv makes most of the loss"),
    (FINDING,),
    measures=(
        Measure(SQNR, "dB", -0.14, 11.7, samples=2),
        Measure(ACCURACY, "", 0.125, 0.875, samples=8),
    ),
    victims=("y",),
    samples=2,
    judgement=Judgement("lossy", Coverage(OutputCoverage(("y",)), tensors=Share(2, 2))),
    scores=(
        NetworkScore("float", 0.875, 8, 7, (0.529, 0.978)),
        NetworkScore("quantized", 0.125, 8, 1, (0.022, 0.471)),
    ),
    layers=LAYERS,
    target="tiny-chip",
    precisions={"weight s8 per tensor": 2},
)


def document(found: Diagnosis) -> RunDocument:
    nodes = (
        NodeInfo("conv", "Conv", ("x",), ("c",)),
        NodeInfo("relu", "Relu", ("c",), ("relu",)),
        NodeInfo("dense", "Gemm", ("relu",), ("d",)),
        NodeInfo("y", "Identity", ("d",), ("y",)),
    )
    return RunDocument(
        schema=2,
        command=("roundoff", "diagnose", "net.onnx"),
        inputs=(
            InputFile("model", "folder/net.onnx", 1, "0", "content"),
            InputFile("data", "x.npy", 1, "0", "content"),
        ),
        network=Topology(nodes, ("x",), ("y",)),
        diagnosis=found,
        environment=Environment("1", "3", {}, "host", verbatim(""), 29.9, "2026-11-16T17:51:00+00:00"),
    )


def hero(found: Diagnosis) -> HeroCard:
    card = next(diagnosis_cards(document(found), found, None))
    assert isinstance(card, HeroCard)
    return card


def shown(card: HeroCard) -> list[tuple[str, str, str, str]]:
    return [(each.label.en, each.value.en, each.unit, each.detail.en) for each in card.scores]


def test_the_score_is_of_the_same_samples_with_counts_and_intervals() -> None:
    assert shown(hero(FOUND)) == [
        ("Float", "87.5", "%", "7/8 · 53–98 %"),
        ("Quantized", "12.5", "%", "1/8 · 2–47 %"),
    ]
    card = hero(replace(FOUND, repair=REPAIR))
    assert shown(card) == [
        ("Float", "90.0", "%", "9/10 · 60–98 %"),
        ("Quantized", "10.0", "%", "1/10 · 2–40 %"),
        ("Repaired", "90.0", "%", "9/10 · 60–98 %"),
    ]
    assert card.axis is not None
    assert card.axis.en == (
        "top-1 accuracy with 95 % interval (Wilson), on 10 held-out samples. Repaired and float cannot be told "
        "apart on these samples. On all 8 samples: float 87.5 %, quantized 12.5 %."
    )
    assert card.notice is not None
    assert card.notice[0] == "good"
    assert card.notice[1].en == "Confirmed on 10 held-out samples: 10.0 % → 90.0 %."


def test_without_labels_the_worst_output_is_the_score_and_that_is_said() -> None:
    card = hero(replace(FOUND, scores=(), measures=FOUND.measures[:1]))
    assert shown(card) == [
        ("Quantized", "−0.1", "dB", "SQNR of y, 2 samples"),
        ("Expected", "11.7", "dB", "with all findings put right"),
    ]
    assert card.notice is not None
    assert card.notice[0] == "open"
    assert card.notice[1].en.startswith("No accuracy measured")


def test_a_repair_that_other_samples_do_not_confirm_says_why() -> None:
    doubt = verbatim("10 samples are too few")
    card = hero(replace(FOUND, repair=replace(REPAIR, reached=False, doubts=(doubt,))))
    assert card.notice is not None
    assert (card.notice[0], card.notice[1].en) == ("open", "Not yet confirmed: 10 samples are too few.")


def test_what_was_asked_stands_beside_it() -> None:
    card = hero(replace(FOUND, repair=REPAIR))
    facts = {word.en: [line.en for line in lines] for word, lines in card.facts}
    assert facts == {
        "Model": ["net.onnx", "4 nodes, 2 units"],
        "Chip": ["tiny-chip", "s8 weights per tensor (2)"],
        "Data": ["x.npy", "2 samples diagnosed, 8 for top-1 accuracy"],
        "Coverage": ["2 of 2 tensors judged", "the output among them"],
        "Repair cost": ["adds 27 Min", "now s16 weights per tensor (2)"],
        "Run": ["2026-11-16 17:51, 30 s"],
    }
    assert card.coverage == (2, 2)
    assert card.title.en == "Outlier channels share one scale, at conv."


def test_a_culprit_has_its_proof_beside_its_controls_and_the_repair() -> None:
    found = replace(FOUND, repair=REPAIR)
    card = list(diagnosis_cards(document(found), found, None))[1]
    assert isinstance(card, CulpritCard)
    told = [(each.label.en, each.text.en, each.note.en, each.role) for each in card.ladder]
    assert told == [
        ("as quantized", "−0.1", "", "quantized"),
        ("1 place changed", "10.4", "top-1 accuracy 12.5 % → 87.5 %", "changed"),
        ("control: 4 other places", "0.1", "from −0.2, 8 samples", "changed"),
        ("control: other half", "9.5", "from −0.5, 1 sample", "changed"),
        ("repaired model", "18.3", "", "repaired"),
        ("expected", "11.7", "", "expected"),
    ]
    assert card.ladder_caption is not None
    assert card.ladder_caption.en == "Proof: SQNR of 'y' when only this is changed (2 samples)"
    assert [each.en for each in card.text] == [
        "The weight of 'conv' has one scale.",
        "97 % of the loss goes away with it.",
        "1 other layer is wrong only because of its inputs (hatched below).",
    ]
    assert card.settings == ("--set conv=weight=s16",)
    assert isinstance(card.drawings[0], ChannelDrawing)


@pytest.mark.parametrize(
    ("key", "said"),
    [("diagnosis.beside_cured", "all others put right"), ("diagnosis.in_silence", "all else in float")],
)
def test_a_proof_without_other_errors_does_not_start_as_quantized(key: str, said: str) -> None:
    finding = FOUND.findings[0]
    for intervention in (
        message(key, whole=verbatim("a")),
        message("diagnosis.likewise", whole=message(key, whole=verbatim("a")), count=2),
    ):
        found = replace(FOUND, findings=(replace(finding, intervention=intervention),))
        card = list(diagnosis_cards(document(found), found, None))[1]
        assert isinstance(card, CulpritCard)
        assert (card.ladder[0].label.en, card.ladder[0].text.en) == (said, "−0.1")


def test_settings_are_those_of_the_remedy_and_not_of_what_else_would_help() -> None:
    finding = FOUND.findings[0]
    assert finding.remedy is not None
    changes = (RemedyChange("per_channel", ("w",), ("conv",), axis=0), *finding.remedy.changes)
    found = replace(
        FOUND,
        findings=(replace(finding, remedy=replace(finding.remedy, changes=changes)),),
        next_steps=("roundoff diagnose m.onnx --fix -o run", "roundoff bundle run"),
    )
    card = list(diagnosis_cards(document(found), found, None))[1]
    assert isinstance(card, CulpritCard)
    assert card.settings == ()
    assert card.commands == ("roundoff diagnose m.onnx --fix -o run",)


def test_channels_are_told_in_steps_of_the_one_scale() -> None:
    drawn = channel_drawing(PROFILE)
    # Channels 1, 4, 2, 0 and 3 reach 63.5, 8, 2.5, 1 and 0.2 at a scale of 0.5.
    assert drawn.steps == ((1, 127.0), (4, 16.0), (2, 5.0), (0, 2.0), (3, 0.4))
    assert drawn.most == 127
    assert drawn.leader.en == "channel 1: 63.5 sets the scale"
    assert drawn.conclusion.en == "2 of 5 channels have fewer than 4 steps"
    # Where none has so few, the narrowest is told: 4.6 at a scale of 0.5.
    wider = channel_drawing(replace(PROFILE, reaches=(5.0, 63.5, 6.5, 4.6, 8.0)))
    assert wider.conclusion.en == "narrowest channel: 9.2 steps"
    assert drawn.median.en == "median channel 5.0 steps"


def test_a_histogram_says_what_becomes_zero_and_what_is_cut_off() -> None:
    drawn = histogram_drawing(replace(PROFILE, dtype="s4", scale=1.0, low=-8.0, high=7.0, end=20.0, clipped=0.031))
    assert drawn.codes == tuple(float(code) for code in range(-8, 8))
    assert drawn.zero == (-0.5, 0.5)
    assert drawn.zero_text is not None
    assert drawn.zero_text.en == "23.6 % of the values become 0"
    assert [text.en for _, text in drawn.limits] == ["clip −8: 3.1 % outside", "clip 7"]
    # Ends are told with six digits, as the scale is: -8 and 7 are codes all the same.
    told = histogram_drawing(replace(PROFILE, dtype="s4", scale=0.428571, low=-3.42856, high=2.99999, end=3.0))
    assert len(told.codes) == 16
    other = histogram_drawing(replace(PROFILE, zeros=0.001))
    assert (other.codes, other.zero) == ((), None)


def test_a_range_that_ends_at_zero_is_told_where_values_lie_beyond_it() -> None:
    drawn = histogram_drawing(replace(PROFILE, low=-1.0, high=0.0, start=-2.0, end=2.0, zeros=0.0, clipped=0.5))
    assert [(value, text.en) for value, text in drawn.limits] == [
        (-1.0, "clip −1"),
        (0.0, "clip 0: 50.0 % outside"),
    ]
    behind_relu = histogram_drawing(replace(PROFILE, low=0.0, high=2.0, start=0.0, end=2.0, clipped=0.0))
    assert [value for value, _ in behind_relu.limits] == [2.0]


def test_a_tensor_that_is_lost_at_the_scale_of_another_is_drawn_beside_its_steps() -> None:
    lost = replace(PROFILE, scale=3.5, low=-7.5, high=7.5, start=-4.0, end=4.0, zeros=0.97, shared="sum_out")
    drawn = histogram_drawing(lost)
    assert drawn.caption.en.endswith("the steps of the scale of sum_out")
    assert (drawn.codes, drawn.zero, drawn.limits) == ((-3.5, 0.0, 3.5), (-1.75, 1.75), ())


def test_biases_that_do_not_fit_are_told_in_steps_of_their_own_scales() -> None:
    drawn = overflow_drawing(replace(PROFILE, dtype="s32", channels=3, reaches=(100.0, 2.0**33, 2.0**20)))
    assert drawn.over
    assert [at for at, _ in drawn.steps] == [1, 2, 0]
    assert drawn.most == 2.0**33
    assert drawn.conclusion.en == "1 of 3 channels do not fit 32 bits; the widest needs 4 times as much"


@pytest.mark.parametrize(
    ("gain", "offset", "correlation", "said"),
    [
        (0.5, 0.001, 0.9999, "device = 0.5 × expected"),
        (-2.0, -0.25, -1.0, "device = −2 × expected − 0.25"),
        (0.8, 0.0, 0.97, "no straight line: correlation 0.97"),
    ],
)
def test_a_device_is_told_as_a_line_where_it_is_one(
    gain: float, offset: float, correlation: float, said: str
) -> None:
    drawn = scatter_drawing(ValuePairs("n", "t", (0.0, 1.0), (0.0, 0.5), gain, offset, correlation))
    assert drawn.conclusion.en == said
    assert drawn.points == ((0.0, 0.0), (1.0, 0.5))
    assert (drawn.line is None) is said.startswith("no")


def test_the_chart_marks_the_unit_of_the_node_to_blame() -> None:
    found = replace(FOUND, repair=REPAIR)
    chart = list(diagnosis_cards(document(found), found, None))[-1]
    assert isinstance(chart, ErrorChart)
    told = [(each.node, each.local, each.accumulated, each.repaired, each.finding) for each in chart.points]
    # The Conv is named and marked, not the Relu behind it.
    assert told == [("conv", 8.5, 8.5, 29.6, 1), ("dense", 35.0, -0.14, 18.34, 0)]
    assert chart.limit[0] == pytest.approx(16.478, abs=0.001)
    assert "2 samples" in chart.text.en


@pytest.mark.parametrize(
    ("value", "shade"),
    [(float("inf"), 0), (40.0, 0), (39.9, 1), (30.0, 1), (20.0, 2), (10.0, 3), (0.0, 4), (-0.1, 5)],
)
def test_six_classes_of_decibels_have_fixed_ends(value: float, shade: int) -> None:
    assert db_class(value) == shade


def test_all_of_it_is_on_the_page_in_both_languages() -> None:
    page = diagnosis_page(document(replace(FOUND, repair=REPAIR)))
    assert page is not None
    text = html_report([page], title="t").replace("\u00a0", " ")
    for piece in (
        "9/10 · 60–98 %", "10.4", "from −0.2, 8 samples", "channel 1: 63.5 sets the scale",
        "--set conv=weight=s16",
        "output −0.1", "repaired 18.3", "limit 16.5", "2 of 5 channels have fewer than 4 steps",
        "离群通道与其他通道共用一个 scale", "修复后模型",
    ):  # fmt: skip
        assert piece in text
    assert 'class="headline' not in text  # the pills say it
    assert isinstance(histogram_drawing(PROFILE), HistogramDrawing)


@pytest.mark.parametrize("kind", ["healthy", "distributed", "elsewhere", "not_enough_evidence"])
def test_every_verdict_has_a_first_screen(kind: str) -> None:
    found = replace(FOUND, kind=kind, findings=(), layers=None, judgement=None, measures=())  # type: ignore[arg-type]
    page = diagnosis_page(document(found))
    assert page is not None
    assert isinstance(page.blocks[0], HeroCard)
    assert 'class="card hero"' in html_report([page], title="t")
