"""Dumps with NaN and infinite values: the node that made them is accused, those that read them are not."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from roundoff import demo
from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.diagnosis.result import Diagnosis

CULPRIT = "block3/relu"


def written(
    folder: Path, value: float, *, share: float = 1.0, hand_on: bool = True, culprit: str = CULPRIT
) -> None:
    """What a device wrote on which one node gives no numbers, and all behind it none either."""
    model = onnx.load(demo.model_path())
    names = [name for node in model.graph.node for name in node.output]
    for name in names[:-1]:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    images = demo.load_split("test")[0][:4]
    np.save(folder / "images.npy", images)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (folder / "dumps").mkdir()
    for index, image in enumerate(images):
        found = session.run(None, {"image": image[None]})
        arrays = dict(zip([each.name for each in session.get_outputs()], found, strict=True))
        flat = arrays[culprit].reshape(-1)
        flat[: max(1, round(share * flat.size))] = value
        for name in names[names.index(culprit) + 1 :] if hand_on else ():
            arrays[name][...] = np.nan
        np.savez(folder / "dumps" / f"{index}.npz", **arrays)


def diagnosed(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str, Diagnosis]:
    model, data = str(demo.model_path()), str(folder / "images.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = main(
            ["diagnose", model, "--data", data, "--dumps", str(folder / "dumps"), "-o", str(folder / "run")]
        )
    found = load_document(folder / "run").diagnosis
    assert found is not None
    captured = capsys.readouterr()
    return code, captured.out, captured.err, found


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("share", [1.0, 0.1, 0.0])
def test_the_first_node_is_the_culprit_and_what_reads_it_are_victims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float, share: float
) -> None:
    written(tmp_path, value, share=share)
    code, out, err, found = diagnosed(tmp_path, capsys)
    assert (code, found.kind) == (1, "culprits")
    (finding,) = found.findings
    assert (finding.cause, finding.proven, finding.tensors) == ("not-finite", True, (CULPRIT,))
    assert f"values: first NaN or infinite at '{CULPRIT}', where the float model is finite" in err
    assert "NaN" in str(finding.summary) if np.isnan(value) else "infinite" in str(finding.summary)
    assert "inf dB" not in out
    assert found.victims
    assert CULPRIT not in found.victims
    assert any("roundoff reproduce " in each for each in found.next_steps)


def test_what_reads_them_and_had_numbers_blames_the_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, np.nan, share=0.1, hand_on=False)
    _, _, err, found = diagnosed(tmp_path, capsys)
    assert [(each.cause, each.tensors) for each in found.findings] == [("not-finite", (CULPRIT,))]
    assert "in the dump only" in str(found.findings[0].summary)
    assert str(found.verdict).startswith("the device computes what it should")
    assert "not judged" not in err


def test_a_dump_of_nothing_but_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, np.nan, culprit="stem/conv")
    _, out, _, found = diagnosed(tmp_path, capsys)
    assert [each.tensors for each in found.findings] == [("stem/conv",)]
    assert "output SQNR undefined (NaN, infinite, or beyond all measure)" in " ".join(out.split())


def test_an_output_that_nothing_reads_is_not_said_to_be_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = onnx.load(demo.model_path()).graph.output[0].name
    written(tmp_path, np.nan, share=0.1, culprit=output)
    _, _, _, found = diagnosed(tmp_path, capsys)
    assert [each.tensors for each in found.findings] == [(output,)]
    assert "although all that it reads is finite" in str(found.findings[0].summary)
