"""``roundoff.reproduce`` and ``roundoff.bundle`` as functions: what they give, and what they refuse."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff.case.minimal import NotLocal
from roundoff.case.sources import CaseSource, EarlierRun, build_reader, findings_of, open_run
from roundoff.cli import main
from roundoff.core.progress import SILENT
from roundoff.errors import BadInput
from roundoff.run.budget import UNLIMITED
from tests.cli.clipped import write_clipped


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clipped network and a diagnosis of it, ``run``."""
    folder = tmp_path_factory.mktemp("scene")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_clipped(folder)
        words = ["float.onnx", "--quantized", "bad.onnx", "--data", "data.npz"]
        assert main(["diagnose", *words, "-o", "run"]) == 1
    return folder


@pytest.fixture(autouse=True)
def inside(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scene)


def test_a_reproduction_says_what_it_shows() -> None:
    outcome = roundoff.reproduce("run", output="case", keep_samples=2, force=True)
    assert outcome.good
    made = outcome.result
    assert [kind for _, kind in made.reproducer.nodes] == ["Clip"]
    assert (made.finding.number, made.finding.cause) == (1, "clipping")
    assert len(made.reproducer.samples) == 2
    assert {path.name for path in Path("case").iterdir() if not path.name.startswith(".")} == set(made.files)
    assert made.folder == Path("case")


def test_a_case_shows_itself_as_its_command_does() -> None:
    found = roundoff.diagnose("float.onnx", quantized="bad.onnx", data="data.npz")
    made = roundoff.reproduce(found, output="case", force=True)
    assert made.verdict == "REPRODUCED: 1 node alone shows finding 1 (clipping)"
    assert "python case/run.py" in str(made)
    assert "REPRODUCED" in made._repr_html_()
    packed = roundoff.bundle(found, output="case.zip", force=True)
    assert packed.verdict == "PACKED: case.zip shows what the run found"
    assert "test_case.py, " in str(packed)


def test_a_bundle_says_what_it_holds() -> None:
    packed = roundoff.bundle(Path("run"), output=Path("case.zip"), force=True).result
    assert packed.shown
    assert (packed.archive, packed.names, packed.names_file) == (Path("case.zip"), None, None)
    with zipfile.ZipFile("case.zip") as archive:
        assert {name: archive.read(name) for name in packed.members} == packed.members
        assert set(archive.namelist()) == {*packed.members, "MANIFEST.json"}


def test_runs_saved_from_python_serve_as_those_of_commands() -> None:
    given: dict[str, Any] = {"quantized": Path("bad.onnx"), "data": "data.npz"}
    found = roundoff.diagnose("float.onnx", **given, samples=4)
    found.save("saved")
    words = ("diagnose", "float.onnx", "--quantized=bad.onnx", "--data=data.npz", "--samples=4")
    assert found.document.command == ("roundoff", *words)
    assert roundoff.reproduce("saved", output="case", force=True).good
    assert roundoff.bundle("saved", output="case.zip", force=True).good


def test_a_model_quantized_and_saved_from_python_is_bundled() -> None:
    roundoff.quantize("float.onnx", data="data.npz", target="generic-int8").save("made")
    assert roundoff.bundle("made", output="made.zip", force=True).result.members


def test_a_run_of_what_is_in_memory_alone_makes_no_case() -> None:
    given = dict(np.load("data.npz"))
    roundoff.diagnose("float.onnx", quantized="bad.onnx", data=given).save("in_memory")
    with pytest.raises(BadInput, match="made in Python, of a model or samples that are in no file") as caught:
        roundoff.bundle("in_memory", output="case.zip", force=True)
    assert caught.value.fix == "call roundoff.diagnose() with the paths of files, and save that run"


def test_both_cases_have_one_script() -> None:
    roundoff.reproduce("run", output="case", force=True)
    packed = roundoff.bundle("run", output="case.zip", force=True).result
    assert Path("case/run.py").read_bytes() == packed.members["test_case.py"]


@pytest.mark.parametrize(
    ("function", "words", "what"),
    [
        (roundoff.reproduce, {"run": 3, "output": "new"}, "The run is of type int, not a path"),
        (roundoff.reproduce, {"run": "run", "output": None}, "output= is None, not a path"),
        (roundoff.reproduce, {"run": "none", "output": "new"}, "does not exist"),
        (roundoff.reproduce, {"run": "run", "output": "new", "finding": 0}, "finding= is 0"),
        (roundoff.reproduce, {"run": "run", "output": "new", "keep_samples": 0}, "keep_samples= is 0"),
        (roundoff.reproduce, {"run": "run", "output": "new", "finding": 2}, "The run has no finding 2; it has 1"),
        (roundoff.reproduce, {"run": "run", "output": "new", "finding": "1"}, "finding= is '1'"),
        (roundoff.reproduce, {"run": "run"}, "missing a required argument: 'output'"),
        (roundoff.bundle, {"run": "run", "output": "new.zip", "outptu": 1}, "takes no argument 'outptu'"),
        (roundoff.bundle, {"run": ["run"], "output": "new.zip"}, "not a path"),
        (roundoff.bundle, {"run": "run", "output": "new.zip", "keep_data": True}, "has no effect"),
        (roundoff.bundle, {"run": "run", "output": "new.zip", "seed": -1}, "seed= is -1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_way_on(function: Any, words: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what) as refused:
        function(**words)
    assert refused.value.fix
    assert not Path("new").exists()
    assert not Path("new.zip").exists()


def test_a_fault_in_no_part_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.case import reproduce as module

    def nowhere(*_: object, **__: object) -> None:
        raise NotLocal("No part shows it.", fix="send it whole")

    monkeypatch.setattr(module, "reproduce_quantized", nowhere)
    with pytest.raises(NotLocal, match="No part shows it"):
        roundoff.reproduce("run", output="new")
    assert not Path("new").exists()


def test_an_earlier_run_is_opened_again() -> None:
    run: EarlierRun = open_run(Path("run"), ("diagnose",), what="case", limits=UNLIMITED, progress=SILENT)
    assert (run.given.model, run.given.quantized) == (Path("float.onnx"), Path("bad.onnx"))
    assert (run.given.dumps, run.given.target, run.given.data) == (None, None, True)
    assert run.model().quantized.quantizers
    assert [each.cause for each in findings_of(run.document)] == ["clipping"]


def test_builds_are_opened_by_whoever_knows_their_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: Path, settings: object) -> CaseSource:
        raise BadInput(f"{path.name} {settings}", fix="none")

    open_build: Any = refuse

    assert build_reader(tmp_path) is None
    (tmp_path / "made.txt").touch()
    monkeypatch.setattr(roundoff, "BUILD_READERS", {"made.txt": "errors"})
    monkeypatch.setattr("roundoff.errors.open_build", open_build, raising=False)
    assert build_reader(tmp_path) is open_build
    assert build_reader(tmp_path / "made.txt") is open_build
    with pytest.raises(BadInput, match=tmp_path.name):
        roundoff.bundle(tmp_path, output=tmp_path / "case.zip")
