"""No device is called healthy of which not every output was judged."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.coverage import OutputCoverage
from roundoff.core.document import SCHEMA, Environment, RunDocument, load_document, to_json
from roundoff.diagnosis.result import Diagnosis
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import verbatim
from roundoff.report.junit import document_junit
from tests.diagnosis.devices.devices import diagnosed, planted
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


@pytest.mark.parametrize(
    ("gain", "offset", "told"), [(1.5, 0.0, "is 1.5 times what"), (1.0, 0.8, "should be +0.8")]
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
