"""The command ``roundoff bundle``."""

import getpass
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import to_array

from roundoff.cli import main
from roundoff.demo import model_path
from tests.cli.inspecting import Run, runner

NET = "secretnet.onnx"
SECRETS = (
    "SecretMaker",
    "SecretDoc",
    "SecretValue",
    "SecretNodeDoc",
    "secretnet",
    "block3",
    "block1/relu",
    "logits",
)


@pytest.fixture
def bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs bundle in a folder that holds a run of layers, ``lay``."""
    call = runner("bundle", tmp_path, capsys, monkeypatch)
    proto = onnx.load(model_path())
    proto.producer_name, proto.doc_string = "SecretMaker", "SecretDoc"
    proto.metadata_props.add(key="SecretKey", value="SecretValue")
    for node in proto.graph.node:
        node.doc_string = "SecretNodeDoc"
    onnx.save(proto, NET)
    assert main(["layers", NET, "--quantized", "quantized.onnx", "--data", "images.npy", "-o", "lay"]) == 1
    assert capsys.readouterr().out.startswith("LOCAL: ")
    return call


def unpacked(archive: str, folder: str) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
        return {name: opened.read(name) for name in opened.namelist()}


def run_script(folder: str) -> "subprocess.CompletedProcess[str]":
    """Run the test script of a bundle where neither onnx nor roundoff can be imported."""
    code = (
        "import sys, runpy; sys.modules['onnx'] = None; sys.modules['roundoff'] = None; "
        f"runpy.run_path({str(Path(folder) / 'test_case.py')!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def check_manifest(members: dict[str, bytes]) -> None:
    import hashlib

    listed = json.loads(members["MANIFEST.json"])
    assert set(listed) == set(members) - {"MANIFEST.json"}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256(members[name]).hexdigest()


def test_a_run_of_layers_becomes_a_ticket(bundle: Run) -> None:
    code, out, err = bundle("lay", "-o", "case.zip")
    steps = err.splitlines()
    assert (code, steps[-1]) == (0, "written: case.zip")
    assert steps[0].startswith("8 samples, the worst: 4.8 dB")
    assert steps[-2] == "1 sample of 12 is enough; packing"
    assert out.startswith("PACKED: case.zip shows what the run found")
    assert "made by  block3/relu" in out
    assert "1 sample of 12" in out
    assert bundle("lay", "-o", "again.zip")[0] == 0
    assert Path("again.zip").read_bytes() == Path("case.zip").read_bytes()
    members = unpacked("case.zip", "case")
    check_manifest(members)
    form = members["TICKET.txt"].decode()
    assert form.count("[please fill in]") == 6
    assert "made by block3/relu" in form
    assert "--quantized quantized.onnx --data images.npy -o lay" in form
    done = run_script("case")
    assert done.returncode == 0, done.stderr
    expected = json.loads(members["case.json"])["expected_sqnr_db"]
    assert f"worst {expected:.2f} dB, expected {expected:.2f} dB" in done.stdout


def test_a_spoilt_case_is_noticed_by_its_script(bundle: Run) -> None:
    assert bundle("lay", "-o", "case.zip")[0] == 0
    unpacked("case.zip", "case")
    Path("case/model/quantized.onnx").write_bytes(Path("case/model/float.onnx").read_bytes())
    done = run_script("case")
    assert done.returncode == 1
    assert "the numbers are NOT those of the ticket" in done.stdout


@pytest.mark.parametrize("words", [(), ("--keep-data",), ("--seed", "5")])
def test_nothing_leaks_from_a_confidential_bundle(
    bundle: Run, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = bundle("lay", "-o", "case.zip", "--confidential", *words)
    assert code == 0, out
    assert "keep case.names.json to yourself" in err
    members = unpacked("case.zip", "case")
    check_manifest(members)
    if not words:
        shows_the_same_fault(members, capsys)
        # The same twice is the same archive.
        assert bundle("lay", "-o", "again.zip", "--confidential")[0] == 0
        assert Path("again.zip").read_bytes() == Path("case.zip").read_bytes()
    everything = b"\n".join([*members.values(), *(name.encode() for name in members)])
    proto = onnx.load(NET)
    names = {name for node in proto.graph.node for name in (node.name, *node.input, *node.output) if len(name) > 5}
    for text in (*names, *SECRETS, str(Path.cwd()), Path.cwd().name, getpass.getuser() + "/"):
        assert text.encode() not in everything, text
    for tensor in proto.graph.initializer:
        values = to_array(tensor).ravel()
        for start in range(0, values.size - 15, 16):
            if np.unique(values[start : start + 16]).size > 8:
                assert values[start : start + 16].tobytes() not in everything
    if words != ("--keep-data",):
        stored = np.load("images.npy")
        assert all(image.tobytes() not in everything for image in stored)
    kept = json.loads(Path("case.names.json").read_text(encoding="utf-8"))["nodes and tensors"]
    assert f"made by   {kept['block3/relu']}" in out


def shows_the_same_fault(members: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    """What is unpacked in the folder ``case``."""
    assert run_script("case").returncode == 0
    names = json.loads(Path("case.names.json").read_text(encoding="utf-8"))["nodes and tensors"]
    words = ["--quantized", "case/model/quantized.onnx", "--data", "case/data/worst.txt", "--json"]
    assert main(["layers", "case/model/float.onnx", *words]) == 1
    report = json.loads(capsys.readouterr().out)["layers"]
    assert report["verdict"]["kind"] == "local"
    assert names["block3/relu"] in [each["node"] for each in report["verdict"]["culprits"]]
    assert "Verified: the same verdict, the same nodes" in members["TICKET.txt"].decode()


def test_what_cannot_be_shown_is_not_packed(bundle: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.case import synthetic as disguising

    monkeypatch.setattr(disguising, "same_fault", lambda *_, **__: disguising_shown())
    code, out, _ = bundle("lay", "-o", "case.zip", "--confidential")
    assert code == 1
    assert out.startswith("NOT PACKED: no synthetic case that was tried shows the fault; nothing was written")
    assert "lacks     the loss is fine instead of local" in out
    assert not Path("case.zip").exists()
    assert not Path("case.names.json").exists()


def disguising_shown() -> object:
    from roundoff.case.excerpt import FaultMatch

    return FaultMatch(same=False, reasons=("the loss is fine instead of local",), where="the outputs")


@pytest.mark.parametrize("command", ["quantize", "sensitivity", "samples"])
def test_runs_of_other_commands(bundle: Run, command: str) -> None:
    words = [command, NET, "--data", "images.npy", "--target", "generic-int8-per-tensor", "-o", "run"]
    assert main(words) == 0
    code, out, _ = bundle("run", "-o", "case.zip")
    assert code == 0
    # One sample cannot show that a model is fine.
    assert "calibrated on 2 samples alone:" in out
    members = unpacked("case.zip", "case")
    assert b"generic-int8" in members["config/target.toml"]
    assert ("config/plan.json" in members) == (command == "quantize")
    assert run_script("case").returncode == 0
    if command == "quantize":
        # The one of them with a plan to be made anonymous.
        code, out, _ = bundle("run", "-o", "secret.zip", "--confidential")
        assert code == 0, out


def test_a_comparison_with_a_dump(bundle: Run) -> None:
    folder = model_path().parent
    words = [NET, str(folder / "board_dump"), "--data", str(folder / "samples.npy"), "-o", "cmp"]
    assert main(["compare", *words]) == 1
    code, out, _ = bundle("cmp", "-o", "case.zip")
    assert code == 0
    assert "block3/relu: 6.0 dB" in out
    assert "the error starts here" in out
    members = unpacked("case.zip", "case")
    check_manifest(members)
    done = run_script("case")
    assert done.returncode == 0, done.stderr
    assert "block3/relu: 5.97 dB" in done.stdout
    inputs = json.loads(members["tensors/inputs.json"])
    assert [each["tensor"] for each in inputs] == ["block3/pointwise_norm"]
    assert set(inputs[0]) == {"tensor", "reference"}, "the device did not dump it"
    assert inputs[0]["reference"] in members


def test_a_comparison_with_a_dump_without_names(bundle: Run) -> None:
    folder = model_path().parent
    words = [NET, str(folder / "board_dump"), "--data", str(folder / "samples.npy"), "-o", "cmp"]
    assert main(["compare", *words]) == 1
    code, out, err = bundle("cmp", "-o", "secret.zip", "--confidential")
    assert code == 0, out + err
    assert "tensor_0: 6.0 dB" in out
    members = unpacked("secret.zip", "secret")
    check_manifest(members)
    assert "model/float.onnx" not in members
    everything = b"\n".join([*members.values(), *(name.encode() for name in members)])
    for text in (*SECRETS, "digits", "board_dump"):
        assert text.encode() not in everything, text
    assert run_script("secret").returncode == 0
    open_pair = [np.load(f"secret/tensors/{side}.npy") for side in ("reference", "candidate")]
    assert bundle("cmp", "-o", "case.zip")[0] == 0
    unpacked("case.zip", "case")
    for mixed, side in zip(open_pair, ("reference", "candidate"), strict=True):
        stored = np.load(f"case/tensors/{side}.npy")
        assert not np.array_equal(mixed, stored), "another order"
        assert np.array_equal(np.sort(mixed, axis=None), np.sort(stored, axis=None))
    assert json.loads(Path("secret.names.json").read_text(encoding="utf-8"))["nodes and tensors"] == {
        "block3/relu": "tensor_0"
    }


def test_a_diagnosis_becomes_a_ticket_of_the_model_that_was_diagnosed(bundle: Run) -> None:
    words = ["diagnose", NET, "--quantized", "quantized.onnx", "--data", "images.npy", "--fix", "-o", "found"]
    assert main(words) == 0
    assert Path("found/plan.json").exists()
    code, out, err = bundle("found", "-o", "case.zip")
    assert (code, "made by  block3/relu" in out) == (0, True), err
    members = unpacked("case.zip", "case")
    assert "config/plan.json" not in members, "the plan in the folder is that of the repaired model"
    form = members["TICKET.txt"].decode()
    assert "Cause found: clipping at block3/relu, 100 % of the loss" in form
    assert "proven by: the range of 'block3/relu'" in form
    assert run_script("case").returncode == 0
    code, out, err = bundle("found", "-o", "secret.zip", "--confidential")
    assert code == 0, out + err
    secret = unpacked("secret.zip", "secret")["TICKET.txt"].decode()
    assert "Cause found: clipping at " in secret
    assert "block3" not in secret


def test_a_diagnosis_of_dumps_becomes_a_ticket_of_the_tensor_accused(bundle: Run) -> None:
    folder = model_path().parent
    words = [NET, "--dumps", str(folder / "board_dump"), "--data", str(folder / "samples.npy"), "-o", "found"]
    assert main(["diagnose", *words]) == 1
    code, out, err = bundle("found", "-o", "case.zip")
    assert code == 0, out + err
    assert "block3/relu: 6.0 dB" in out
    members = unpacked("case.zip", "case")
    form = members["TICKET.txt"].decode()
    assert "Found by: roundoff diagnose" in form
    assert "Cause found: " in form
    assert run_script("case").returncode == 0
    code, out, err = bundle("found", "-o", "secret.zip", "--confidential")
    assert code == 0, out + err
    secret = unpacked("secret.zip", "secret")["TICKET.txt"].decode()
    assert "causes proven: " in secret
    assert "block3" not in secret


def test_a_search_becomes_a_ticket_of_what_it_found(bundle: Run) -> None:
    words = ["--target", "generic-int8-per-tensor", "--data", "images.npy", "--max-trials", "2", "-o", "tuned"]
    assert main(["tune", NET, *words]) in (0, 1)
    code, out, err = bundle("tuned", "-o", "case.zip")
    assert code == 0, out + err
    members = unpacked("case.zip", "case")
    assert {"config/plan.json", "config/target.toml", "run.json"} <= set(members)
    assert "Found by: roundoff tune; tuned, quantized for generic-int8" in members["TICKET.txt"].decode()
    assert run_script("case").returncode == 0


def test_inputs_that_are_gone_or_changed(bundle: Run) -> None:
    np.save("images.npy", np.load("images.npy") * 2)
    code, _, err = bundle("lay", "-o", "case.zip")
    assert (code, "the data images.npy has changed since the run" in err) == (2, True)
    Path("images.npy").unlink()
    Path(NET).unlink()
    code, _, err = bundle("lay", "-o", "case.zip")
    assert code == 2
    assert f"the model {NET} is missing; the data images.npy is missing" in err


def test_nothing_is_replaced_unasked(bundle: Run) -> None:
    Path("case.zip").write_text("mine", encoding="utf-8")
    code, _, err = bundle("lay", "-o", "case.zip")
    assert (code, "case.zip exists." in err) == (2, True)
    code, _, err = bundle("lay", "-o", "case.zip", "--force")
    assert (code, "does not look like a bundle that roundoff wrote" in err) == (2, True)
    assert Path("case.zip").read_text(encoding="utf-8") == "mine"
    # It ends as archives do.
    Path("case.zip").write_bytes(b"PK\x05\x06" + b"\xff" * 18)
    code, _, err = bundle("lay", "-o", "case.zip", "--force")
    assert (code, "does not look like a bundle that roundoff wrote" in err) == (2, True)


def test_other_folders_and_runs_are_refused(bundle: Run) -> None:
    Path("empty").mkdir()
    code, _, err = bundle("empty", "-o", "case.zip")
    assert (code, "empty holds no run: it has neither run.json nor command.json" in err) == (2, True)
    content = json.loads(Path("lay/run.json").read_text(encoding="utf-8"))
    content["command"] = ["roundoff", "convert", "x.onnx"]
    Path("lay/run.json").write_text(json.dumps(content), encoding="utf-8")
    code, _, err = bundle("lay", "-o", "case.zip")
    assert (code, "is a run of 'convert', of which no bundle can be made" in err) == (2, True)
    content["command"] = ["roundoff", "layers", "--nosuch"]
    Path("lay/run.json").write_text(json.dumps(content), encoding="utf-8")
    code, _, err = bundle("lay", "-o", "case.zip")
    assert (code, "is not one that this version takes" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep-data",), "--keep-data has no effect without --confidential"),
        (("--confidential", "--seed", "-1"), "--seed is -1"),
    ],
)
def test_bad_options(bundle: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = bundle("lay", "-o", "case.zip", *words)
    assert (code, message in err) == (2, True)


def test_a_ticket_has_the_verdict_of_its_diagnosis_and_no_other(bundle: Run) -> None:
    words = [NET, "--quantized", "quantized.onnx", "--data", "images.npy", "-o", "found"]
    assert main(["diagnose", *words]) == 1
    code, out, _ = bundle("found", "-o", "case.zip")
    assert code == 0
    assert "; CULPRITS" in out
    assert "made by  block3/relu" in out
    ticket = unpacked("case.zip", "case")["TICKET.txt"].decode()
    assert ticket.startswith("Accuracy fault: logits")
    assert ticket.count("Verdict: ") == 1
    assert "Verdict: culprits: block3/relu makes most of the loss" in ticket


def test_a_ticket_accuses_nothing_that_its_run_did_not_prove(bundle: Run) -> None:
    words = [NET, "--quantized", "quantized.onnx", "--data", "images.npy", "-o", "found"]
    assert main(["diagnose", *words]) == 1
    run = json.loads(Path("found/run.json").read_text())
    run["diagnosis"].update(kind="not_enough_evidence", findings=[])
    Path("found/run.json").write_text(json.dumps(run))
    for name, options in (("case", ()), ("secret", ("--confidential",))):
        code, out, err = bundle("found", "-o", f"{name}.zip", *options)
        assert code == 0, err
        assert re.search(r"made by +no place is proven; ", out)
        # What few samples accuse by themselves: the analysis of layers does, on the same network.
        ticket = unpacked(f"{name}.zip", name)["TICKET.txt"].decode()
        assert "made by" not in ticket
        assert "No place is proven to make the loss. These lose most, not proven:" in ticket


def test_a_run_that_found_nothing_is_no_fault(bundle: Run) -> None:
    assert main(["layers", NET, "--target", "generic-int8", "--data", "images.npy", "-o", "good"]) == 0
    code, out, _ = bundle("good", "-o", "case.zip")
    assert code == 0
    assert "fault" not in out
    ticket = unpacked("case.zip", "case")["TICKET.txt"].decode()
    assert ticket.startswith("Accuracy, no fault found: logits")
    assert "2. What was measured" in ticket
    assert "the fault" not in ticket
    assert "the numbers are those of the ticket" in run_script("case").stdout
