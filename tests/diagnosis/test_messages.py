"""What a diagnosis says is data: names stay what they are in every language, and old documents still open."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.cli import main
from roundoff.core.document import SCHEMA, load_document, to_json
from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.interventions import reach, with_range
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import model_from_proto
from roundoff.graph.nodes import make_model
from roundoff.graph.save import save_model
from roundoff.messages.message import Message, verbatim
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples

ODD = """conv (3x3); it's "odd" """.strip()
OLD = Path(__file__).parent / "data/run_schema_1.json"


def clipped(folder: Path) -> list[str]:
    """A network whose node has a name full of signs, with a range that is too small; as options of diagnose."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((4, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], [ODD], ODD),
        helper.make_node("Conv", [ODD, "w2"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = model_from_proto(make_model(graph), path=Path("odd.onnx"))
    data = rng.standard_normal((8, 3, 8, 8)).astype(np.float32)
    samples = ArraySamples({"x": data})
    quantized = quantize_model(model, samples, QuantizeSettings(load_target("generic-int8"))).quantized
    bad = [_narrow(each) if each.tensor == ODD else each for each in quantized.quantizers]
    save_model(quantized.float_model, folder / "float.onnx")
    save_model(insert_quantizers(quantized.float_model, bad), folder / "bad.onnx")
    np.save(folder / "x.npy", data)
    files = {"quantized": "bad.onnx", "data": "x.npy"}
    named = [word for option, name in files.items() for word in (f"--{option}", str(folder / name))]
    return [str(folder / "float.onnx"), *named]


def _narrow(quantizer: Quantizer) -> Quantizer:
    low, high = reach(quantizer)
    return with_range(quantizer, 0.2 * low, 0.2 * high)


def said(*words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        main(list(words))
    return out.getvalue()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_name_full_of_signs_stays_what_it_is(language: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    text = said("diagnose", *clipped(tmp_path), "-o", str(run), "--lang", language)
    assert f"'{ODD}'" in " ".join(text.split())
    assert ("被截断" in text) == (language == "zh")
    found = load_document(run).diagnosis
    assert found is not None
    (finding,) = found.accused
    assert finding.cause == "clipping"
    assert finding.remedy is not None
    for told in (finding.summary, finding.intervention, finding.remedy.title):
        assert told is not None
        assert all(f"'{ODD}'" in told.within(each) for each in ("en", "zh"))
    assert ODD in said("explain", "1", str(run), "--lang", language)
    for name in ("page.html", "page.md"):
        said("report", str(run), "-o", str(tmp_path / name), "--lang", language)
    page, markdown = ((tmp_path / name).read_text("utf-8") for name in ("page.html", "page.md"))
    html = unescape(page)
    assert ODD in html
    assert "\uff1bit" not in html + markdown
    assert "conv (3x3); it's" in markdown


def test_a_document_holds_texts_as_keys_with_arguments(tmp_path: Path) -> None:
    said("diagnose", *clipped(tmp_path), "-o", str(tmp_path / "run"))
    stored = json.loads((tmp_path / "run/run.json").read_text("utf-8"))
    summary = stored["diagnosis"]["findings"][0]["summary"]
    assert stored["schema"] == SCHEMA == 2
    assert summary["key"] == "diagnosis.clipping_summary"
    assert summary["arguments"]["what"]["arguments"] == {"tensor": ODD, "op": "Conv"}
    assert summary["text"].startswith(f"'{ODD}' (Conv) is cut off")
    document = load_document(tmp_path / "run")
    assert to_json(document) == (tmp_path / "run/run.json").read_text("utf-8")


def test_documents_of_the_first_schema_still_open(tmp_path: Path) -> None:
    document = load_document(OLD)
    found = document.diagnosis
    assert found is not None
    stored = json.loads(OLD.read_text("utf-8"))["diagnosis"]
    assert found.verdict == verbatim(stored["verdict"])
    assert [str(each.summary) for each in found.findings] == [each["summary"] for each in stored["findings"]]
    assert [each.of_task for each in found.measures] == [False] * len(found.measures)
    assert document.schema == SCHEMA
    (tmp_path / "run.json").write_text(to_json(document), encoding="utf-8")
    assert load_document(tmp_path) == document
    assert stored["findings"][0]["summary"] in " ".join(said("explain", "1", str(OLD)).split())
    said("report", str(OLD), "-o", str(tmp_path / "page.html"))
    # Numbers stay with their units there.
    assert stored["verdict"] in (tmp_path / "page.html").read_text("utf-8").replace("\u00a0", " ")


def test_a_message_that_this_version_does_not_have_is_its_text(tmp_path: Path) -> None:
    stored = json.loads(OLD.read_text("utf-8"))
    for key in ("nowhere.said", "diagnosis.never_said", "../diagnosis.title", "diagnosis.clipping_summary"):
        stored["diagnosis"]["verdict"] = {"text": "as it was", "key": key, "arguments": {"low": None}}
        (tmp_path / "run.json").write_text(json.dumps(stored), encoding="utf-8")
        found = load_document(tmp_path).diagnosis
        assert found is not None
        assert isinstance(found.verdict, Message)
        assert found.verdict == verbatim("as it was")
