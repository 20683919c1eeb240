"""Boards: push, run and pull by templates, tested with stand-ins for ssh and adb; what taps change."""

import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from roundoff.errors import BadInput, ModelFailed
from roundoff.suite.board import BoardRunner, tap_check
from roundoff.suite.matrix import load_suite
from roundoff.suite.unit import compute
from roundoff.tensors import open_source
from tests.suite.zoo import SUITE, make_zoo

# Both keep a folder in place of the device, and run what they are told there.
ADB = """#!{python}
import shutil, subprocess, sys
from pathlib import Path
device = Path({device!r})
word, *rest = sys.argv[1:]
def there(name): return device / name.lstrip("/")
if word == "push":
    target = there(rest[-1])
    for name in rest[:-1]:
        source = Path(name)
        target.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / source.name, dirs_exist_ok=True)
        else:
            shutil.copy(source, target / source.name)
elif word == "pull":
    for file in there(rest[0]).iterdir():
        shutil.copy(file, Path(rest[1]) / file.name)
elif word == "shell":
    sys.exit(subprocess.run([sys.executable, {engine!r}, *rest[1:]], cwd=device).returncode)
else:
    sys.exit("no " + word)
"""
# The "accelerator": runs the deployed model on the inputs of a sample, taps all tensors where the model says so.
ENGINE = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
model, inputs, output = (Path(each.lstrip("/")) for each in sys.argv[1:4])
session = onnxruntime.InferenceSession(str(model))
feed = {each.name: np.load(inputs / f"{each.name}.npy") for each in session.get_inputs()}
output.mkdir(parents=True, exist_ok=True)
for each, value in zip(session.get_outputs(), session.run(None, feed)):
    np.save(output / f"{each.name}.npy", value + (FUSED if len(session.get_outputs()) > 1 else 0))
"""
BOARD = """
[boards.rack7]
push = "{adb} push {{model}} {{inputs}} /data/{{name}}"
run = "{adb} shell engine /data/{{name}}/{model} /data/{{name}}/inputs/{{sample}} /data/{{name}}/out{{sample}}"
pull = "{adb} pull /data/{{name}}/out{{sample}} {{output}}"
"""


def make_board(folder: Path, *, fused: float = 0.0, tapped: bool = False) -> Path:
    text = SUITE.replace("[commands.layers]\n", "").replace("samples = 6", "samples = 2")
    text = text.replace('data = "samples.npy"', 'data = "samples.npy"\ndeployed = "net.onnx"')
    adb, engine = folder / "adb", folder / "engine.py"
    if tapped:
        text = text.replace('deployed = "net.onnx"', 'deployed = "net.onnx"\ntapped = "tapped/net.onnx"')
    file = make_zoo(folder, text + BOARD.format(adb=adb, model="net.onnx"))
    if tapped:
        import onnx

        model = onnx.load(folder / "net.onnx")
        model.graph.output.add(name="hidden")
        (folder / "tapped").mkdir()
        onnx.save(model, folder / "tapped" / "net.onnx")
    engine.write_text(ENGINE.replace("FUSED", repr(fused)), encoding="utf-8")
    adb.write_text(ADB.format(python=sys.executable, device=str(folder / "device"), engine=str(engine)))
    adb.chmod(adb.stat().st_mode | stat.S_IXUSR)
    (folder / "device").mkdir()
    return file


def test_a_board_runs_a_model_and_its_dump_is_compared(tmp_path: Path) -> None:
    (unit,) = load_suite(make_board(tmp_path)).units
    assert (unit.label, unit.board) == ("net/rack7/board", "rack7")
    found = compute(unit)
    assert found["figures"]["verdict"][0] == "PASS"
    assert found["exit_code"] == 0
    assert str(tmp_path) not in json.dumps(found)


@pytest.mark.parametrize("fused", [0.0, 0.25])
def test_taps_that_change_outputs_are_noticed(tmp_path: Path, fused: float) -> None:
    (unit,) = load_suite(make_board(tmp_path, fused=fused, tapped=True)).units
    found = compute(unit)
    said = json.dumps(found["run"]["comparison"]["notes"])
    assert ("taps_change" in said) == bool(fused)
    assert ("taps_same" in said) == (not fused)
    assert found["exit_code"] == (1 if fused else 0)
    assert (found["figures"]["verdict"][0] == "TAPS CHANGE OUTPUTS") == bool(fused)


def test_a_tap_check_needs_every_output(tmp_path: Path) -> None:
    for name, tensors in (("plain", {"a": 1, "b": 2}), ("tapped", {"a": 1, "inner": 5})):
        (tmp_path / name).mkdir()
        for tensor, number in tensors.items():
            np.save(tmp_path / name / f"{tensor}.npy", np.full(3, number, np.float32))
    plain, tapped = (open_source(tmp_path / name) for name in ("plain", "tapped"))
    assert tap_check(plain, tapped, ["a"]).good
    lacking = tap_check(plain, tapped, ["a", "b"])
    assert (lacking.good, lacking.missing) == (False, ("b",))
    assert not tap_check(plain, tapped, []).good


def test_what_a_board_cannot_do_is_said(tmp_path: Path) -> None:
    steps = {"push": "true {model}", "run": "false {input}", "pull": "true {output}"}
    with pytest.raises(ModelFailed, match="run on b ended with 1") as failed:
        BoardRunner("b", steps, unique="u").dump("m", tmp_path, 1, tmp_path / "out")
    assert "false" in failed.value.fix
    with pytest.raises(BadInput, match="no command 'pull'"):
        BoardRunner("b", {"push": "x", "run": "y"}, unique="u")
    with pytest.raises(BadInput, match="gap 'modle'"):
        BoardRunner("b", {**steps, "run": "x {modle}"}, unique="u")
    late = BoardRunner("b", {**steps, "run": "sleep 9", "time_limit": 0.1}, unique="u")
    with pytest.raises(ModelFailed, match=r"longer than 0\.1 s"):
        late.dump("m", tmp_path, 1, tmp_path / "late")


def test_a_board_over_ssh(tmp_path: Path) -> None:
    """A real ssh server on this machine, where asyncssh and an ssh client are installed: `make test-suite`."""
    pytest.importorskip("asyncssh", reason="asyncssh is not installed (make test-suite)")
    import shutil

    if shutil.which("ssh") is None or shutil.which("scp") is None:
        pytest.skip("no ssh client on this machine")
    from tests.suite.ssh_server import serving

    with serving(tmp_path) as ssh:
        model, inputs = tmp_path / "m.bin", tmp_path / "inputs"
        model.write_bytes(b"model")
        (inputs / "0").mkdir(parents=True)
        np.save(inputs / "0" / "x.npy", np.arange(3, dtype=np.float32))
        remote = tmp_path / "remote"
        remote.mkdir()
        steps = {
            "push": f"{ssh.scp} -r {{model}} {{inputs}} {ssh.host}:{remote}/",
            "run": f"{ssh.ssh} {ssh.host} cp {remote}/inputs/{{sample}}/x.npy {remote}/y.npy",
            "pull": f"{ssh.scp} {ssh.host}:{remote}/y.npy {{output}}/",
        }
        BoardRunner("over ssh", steps, unique="u").dump(str(model), inputs, 1, tmp_path / "dump")
        assert np.load(tmp_path / "dump" / "0" / "y.npy").tolist() == [0, 1, 2]
        assert (remote / "m.bin").read_bytes() == b"model"
