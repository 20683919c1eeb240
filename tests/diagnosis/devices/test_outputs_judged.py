"""No device is called healthy of which not every output was judged."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.subject import subject
from onnx import helper

from roundoff.cli import main
from roundoff.core.coverage import OutputCoverage
from roundoff.core.document import SCHEMA, Environment, RunDocument, load_document, to_json
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.graph.load import model_from_proto
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import verbatim
from roundoff.report.junit import document_junit
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps, diagnosed, planted
from tests.diagnosis.devices.test_causes import clean

_VERDICTS = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "verdicts"


def without_outputs() -> Diagnosis:
    """A device on which nothing is wrong, without the network's outputs."""
    case = clean("float")
    assert case.dumps is not None
    outputs = {each.name for each in case.model.proto.graph.output}
    rows = tuple({name: array for name, array in row.items() if name not in outputs} for row in case.dumps.samples)
    return diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)), with_quantized=False)


def test_with_all_outputs_it_is_healthy_and_says_which() -> None:
    case = clean("float")
    found = diagnosed(case, with_quantized=False)
    assert found.kind == "healthy"
    assert found.outputs == OutputCoverage(tuple(each.name for each in case.model.proto.graph.output))


def test_weights_in_constant_nodes_are_no_tensors_to_be_judged() -> None:
    case = clean("float")
    proto = type(case.model.proto)()
    proto.CopyFrom(case.model.proto)
    held = proto.graph.initializer[0]
    proto.graph.node.insert(0, helper.make_node("Constant", [], [held.name], value=held))
    del proto.graph.initializer[0]
    both = [
        diagnosed(replace(case, model=model), with_quantized=False)
        for model in (case.model, model_from_proto(proto, path=case.model.path))
    ]
    shares = [found.judgement.coverage.tensors for found in both if found.judgement is not None]
    assert len(shares) == 2
    assert shares[0] == shares[1]
    assert both[1].kind == "healthy"


def test_without_its_outputs_it_is_not_healthy() -> None:
    found = without_outputs()
    assert found.kind == "not_enough_evidence"
    assert found.outputs is not None
    assert found.outputs.judged == ()
    assert {each.why for each in found.outputs.not_judged} == {"missing"}


def outputs_alone(gain: float, offset: float, *, spoilt: bool = False) -> Diagnosis:
    """A float device of which only the output was dumped, under a name of its own, with a gain and an offset."""
    case = clean("float")
    assert case.dumps is not None
    (output,) = case.model.proto.graph.output
    change = np.random.default_rng(0).standard_normal(case.dumps.samples[0][output.name].shape) * spoilt
    rows = tuple(
        {"9daa62522b64": (gain * row[output.name] * (1 + change) + offset).astype(np.float32)}
        for row in case.dumps.samples
    )
    return diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)), with_quantized=False)


@pytest.mark.parametrize("gain", [1.0, 1.1])
def test_outputs_alone_that_are_worse_than_the_quantized_file_are_not_healthy(gain: float) -> None:
    """A slight gain keeps every limit; what the file itself gives tells it from rounding."""
    case = clean("integer")
    assert case.dumps is not None
    names = [each.name for each in case.model.proto.graph.output]
    rows = tuple(
        {name: (gain * row[name]).astype(np.float32) for name in names if name in row}
        for row in case.dumps.samples
    )
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)), with_quantized=True)
    assert (found.kind == "healthy") == (gain == 1.0), found.verdict


@pytest.mark.parametrize(
    ("gain", "offset", "told"),
    [(1.5, 0.0, "is 1.5 times what"), (1.0, 0.8, "should be +0.8"), (-1.0, 0.0, "is -1 times what")],
)
def test_outputs_alone_show_gain_and_offset_whatever_they_are_called(
    gain: float, offset: float, told: str
) -> None:
    found = outputs_alone(gain, offset)
    (finding,) = found.accused
    assert finding.cause == "wrong-dequantization"
    assert told in str(finding.summary)


def test_outputs_alone_that_are_wrong_otherwise_cannot_tell_where() -> None:
    found = outputs_alone(1.0, 0.0, spoilt=True)
    assert found.kind == "not_enough_evidence"
    assert not found.accused
    (finding,) = found.findings
    assert "nothing between was dumped" in str(finding.summary)


def test_outputs_of_codes_that_any_8_bits_excuse_are_no_good_news() -> None:
    """What a guess of plain 8 bits over a whole network allows is no proof that the device is right."""
    case = planted("requantized-wrong", "transformer")
    assert case.dumps is not None
    (output,) = case.model.proto.graph.output
    rows = tuple({output.name: row[output.name]} for row in case.dumps.samples)
    found = diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)), with_quantized=False)
    assert found.kind == "not_enough_evidence"
    assert not found.accused


def with_rows(
    change: Callable[[Mapping[str, Array]], Mapping[str, Array]], kind: str = "float", family: str = "plain"
) -> Diagnosis:
    """A device on which nothing was wrong, with what it wrote of each sample changed."""
    case = dict(clean_cases(family, 0))[f"clean-dump-{kind}"]()
    assert case.dumps is not None
    rows = tuple(dict(change(row)) for row in case.dumps.samples)
    return diagnosed(replace(case, dumps=replace(case.dumps, samples=rows)), with_quantized=False)


def only_outputs(noise: float, dtype: str = "float32", family: str = "plain") -> Diagnosis:
    """Nothing but the outputs was dumped, with noise of this part of their values; codes without their scale."""
    outputs = [each.name for each in subject(family, 0).model.proto.graph.output]
    random = np.random.default_rng(3)

    def changed(values: Array) -> Array:
        noisy = values + noise * np.sqrt(np.square(values).mean()) * random.standard_normal(values.shape)
        codes = np.clip(np.rint(noisy * 30), -128, 127)
        return np.asarray(codes if dtype == "int8" else noisy, dtype)

    return with_rows(lambda row: {name: changed(row[name]) for name in outputs}, family=family)


def test_float_outputs_alone_are_good_only_near_to_rounding() -> None:
    assert only_outputs(0.0).kind == only_outputs(0.0, "float16").kind == only_outputs(3e-4).kind == "healthy"
    found = only_outputs(0.05)
    assert found.kind == "not_enough_evidence"
    assert "half precision gives" in str(found.verdict)
    # What is expected is not what was measured: noise of a 20th is 26 dB.
    assert found.measures[0].before == pytest.approx(26.0, abs=1.5)
    assert found.measures[0].after > 50


def test_fitted_scales_hide_gains_and_offsets() -> None:
    # Outputs that are codes without a scale may have any gain, and are right with the one that was fitted.
    found = only_outputs(0.0, "int8", "unet")
    assert found.kind == "not_enough_evidence"
    assert "was fitted to the float model" in str(found.verdict)
    assert any("gain or offset cannot be seen" in str(note) for note in found.notes)
    found = only_outputs(0.12, "int8", "unet")
    assert found.kind == "not_enough_evidence"
    assert "hides gains and offsets" in str(found.verdict)


def test_samples_that_are_one_or_not_all_dumped_are_no_good_news() -> None:
    case = clean("float")
    assert case.dumps is not None
    few = diagnosed(replace(case, dumps=replace(case.dumps, samples=case.dumps.samples[:2])), with_quantized=False)
    assert few.kind == "not_enough_evidence"
    assert few.judgement is not None
    assert few.judgement.coverage.samples is not None
    share, total = few.judgement.coverage.samples, len(case.dumps.samples)
    assert (share.judged, share.there) == (2, total)
    assert [(each.kind, each.count, each.of) for each in few.judgement.doubts] == [("lacking", total - 2, total)]
    copies = replace(case.dumps, samples=(case.dumps.samples[0],) * 3)
    fed = {name: np.repeat(each[:1], 3, axis=0) for name, each in case.samples.items()}
    same = diagnosed(replace(case, samples=fed, dumps=copies), with_quantized=False)
    assert same.kind == "not_enough_evidence"
    assert same.judgement is not None
    assert [each.kind for each in same.judgement.doubts] == ["repeated"]


def test_values_that_an_operation_cannot_give_are_a_fault() -> None:
    """Half precision excuses so much of the largest value, but no rounding makes a Relu negative."""
    relu = next(node.output[0] for node in clean("half").model.proto.graph.node if node.op_type == "Relu")

    def below_zero(part: float) -> Diagnosis:
        return with_rows(
            lambda row: {
                **row,
                relu: np.where(row[relu] == 0, -part * row[relu].max(), row[relu]).astype(row[relu].dtype),
            },
            "half",
        )

    assert below_zero(0.0).kind == "healthy"
    found = below_zero(0.0025)
    assert found.kind != "healthy"
    assert relu in {name for each in found.findings for name in each.tensors}


def test_an_output_of_words_is_not_judged() -> None:
    (output,) = clean("float").model.proto.graph.output
    found = with_rows(lambda row: {**row, output.name: np.full(row[output.name].shape, "a")})
    assert found.kind == "not_enough_evidence"
    assert found.outputs is not None
    assert [each.name for each in found.outputs.not_judged] == [output.name]


def test_document_and_junit_carry_what_was_not_judged(tmp_path: Path) -> None:
    found = without_outputs()
    where = Environment("0.1.0", "3.11", {"numpy": "2"}, "host", verbatim("float64"), 0.5)
    document = RunDocument(schema=SCHEMA, command=("roundoff",), inputs=(), environment=where, diagnosis=found)
    (tmp_path / "run.json").write_text(to_json(document), encoding="utf-8")
    read = load_document(tmp_path)
    assert read.diagnosis is not None
    assert read.diagnosis.outputs == found.outputs
    text = document_junit(document)
    assert text is not None
    assert '<failure message="not judged: not in the dump"/>' in text


@pytest.mark.parametrize(
    ("name", "word", "judged"),
    [
        ("healthy_0_tensors", "CULPRITS", "1 emb ("),
        ("healthy_two_faults", "CULPRITS", "2 places of 48 tensors"),
        ("healthy_output_sign_flipped", "CULPRITS", "1 mask_conv ("),
        ("false_layout_c_eq_h_eq_w", "CULPRITS", "1 place of 48 tensors"),
        ("elsewhere_outputs_only", "CULPRITS", "'clean_out' is 1.5 times what it should be"),
    ],
)
def test_cases_that_were_called_healthy(
    name: str, word: str, judged: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _VERDICTS / name
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not here")
    monkeypatch.chdir(folder)
    words = shlex.split((folder / "cmd.sh").read_text().partition("roundoff ")[2])
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(f"{word}: ")
    assert judged in out


def test_the_line_is_chinese_in_a_chinese_terminal() -> None:
    from rich.console import Console

    from roundoff.diagnosis.page import diagnosis_page
    from roundoff.pages.terminal import terminal_page
    from tests.report.documents import empty_document

    console = Console(width=200, record=True)
    page = diagnosis_page(empty_document(diagnosis=without_outputs()))
    assert page is not None
    with use_language("zh"):
        console.print(terminal_page(page))
    text = console.export_text()
    assert "证据不足" in text
    assert "并非网络的所有输出都已判定" in text
    assert "不在转储中" in text


def test_one_tensor_with_channels_last_among_three_pictures_is_told() -> None:
    def changed(row: Mapping[str, Array]) -> Mapping[str, Array]:
        maps = [name for name, array in row.items() if array.ndim == 4 and len(set(array.shape[1:])) > 1][1:4]
        kept = {name: array for name, array in row.items() if array.ndim != 4 or name in maps}
        return {**kept, maps[1]: np.moveaxis(kept[maps[1]], 1, -1)}

    found = with_rows(changed)
    assert found.kind == "culprits"
    assert [each.cause for each in found.accused] == ["layout"]


def test_a_branch_that_leads_to_no_output_accuses_nobody() -> None:
    """Who reads a quantized file drops it, and does not know its weights: what is made of it is not judged."""
    network = subject("plain", 1)
    quantized = network.healthy
    proto = type(quantized.float_model.proto)()
    proto.CopyFrom(quantized.float_model.proto)
    layer = next(node for node in proto.graph.node if node.op_type == "Conv" and node.name == "conv2")
    branch = type(layer)()
    branch.CopyFrom(layer)
    branch.name, branch.output[0] = "branch", "branch_out"
    proto.graph.node.append(branch)
    model = model_from_proto(proto, path=quantized.float_model.path)
    rng = np.random.default_rng(0)
    rows = [
        {**row, "branch_out": (made + rng.normal(0, 0.1, made.shape)).astype(np.float32)}
        for row in Device(network, quantized).run(few_samples(network))
        for made in [row["conv2_out" if "conv2_out" in row else "conv2/relu_out"]]
    ]
    found = diagnose_device(
        replace(quantized, float_model=model), ArraySamples(few_samples(network)), HeldDumps(tuple(rows))
    )
    assert found.kind == "healthy"
    assert found.judgement is not None
    tensors = found.judgement.coverage.tensors
    assert tensors is not None
    assert [each.names for each in tensors.left_out if each.why == "unused"] == [("branch_out",)]
