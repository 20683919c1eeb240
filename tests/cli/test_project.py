"""roundoff.toml, init, completion, and what the bare command asks."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import roundoff
from roundoff import demo
from roundoff.api.project import _SECTIONS, _TOP, FoundParts, look_into, target_hint
from roundoff.cli import COMMANDS, GROUPS, command_of, main, parse_words
from roundoff.cli.options import flat_options
from roundoff.cli.project import _HAVE, first_commands, with_project
from roundoff.core.document import load_document
from roundoff.errors import BadInput
from tests.models import save, value, wrapped


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, samples, their labels, a dump; we are in it."""
    shutil.copy(demo.model_path(), tmp_path / "digits.onnx")
    images, labels = demo.load_split("test")
    np.save(tmp_path / "calib.npy", images[:24])
    np.save(tmp_path / "calib_labels.npy", labels[:24])
    np.save(tmp_path / "few_labels.npy", labels[:5])
    np.save(tmp_path / "other.npy", images[24:32])
    (tmp_path / "board").mkdir()
    for index in range(4):
        np.save(tmp_path / "board" / f"t{index}.npy", np.ones((3, index + 1)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def filled(text: str) -> list[str]:
    words = text.split()
    return with_project(words, words[0], command_of(words[0]))[0]


def test_init_writes_what_it_sees(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--target", "AX650"]) == 0
    capsys.readouterr()
    assert dict(roundoff.load_project().options) == {
        "model": ("digits.onnx",),
        "target": ("AX650",),
        "labels": ("calib_labels.npy",),
        "data": ("calib.npy",),
    }
    assert main(["init"]) == 2
    assert "error: roundoff.toml exists." in capsys.readouterr().err
    found = look_into(Path())
    assert found.dumps == (Path("board"),)
    assert found.labels == (Path("calib_labels.npy"),)


def test_commands_take_what_is_not_typed_and_say_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--target", "generic-int8"]) == 0
    capsys.readouterr()
    assert main(["quantize", "-o", "int8"]) == 0
    said = capsys.readouterr().err
    assert "from roundoff.toml: digits.onnx --target generic-int8 --data calib.npy" in said
    # The document of a run says all of it, so that it can be reproduced elsewhere.
    main(["layers", "-o", "run"])
    assert {"digits.onnx", "generic-int8", "calib.npy"} <= set(load_document(Path("run")).command)
    typed = main(["quantize", "digits.onnx", "--target", "generic-int8", "--data", "calib.npy", "-o", "typed"])
    assert typed == 0
    ours, theirs = (next(Path(each).glob("*.onnx")).read_bytes() for each in ("int8", "typed"))
    assert ours == theirs


@pytest.mark.parametrize("typed", ["layers --lang zh", "layers --lang=zh", "--lang zh layers"])
def test_the_language_is_no_word_of_a_command(
    typed: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("roundoff.toml").write_text('model = "digits.onnx"\ntarget = "generic-int8"\n')
    # Without samples it goes no further.
    assert main(typed.split()) == 2
    assert re.search(r"roundoff\.toml\W+digits\.onnx", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("layers", "layers --target generic-int8 --data calib.npy digits.onnx"),
        ("layers --data other.npy", "layers --target generic-int8 digits.onnx --data other.npy"),
        ("layers --quantized int8", "layers --data calib.npy digits.onnx --quantized int8"),
        ("layers mine.onnx --target=x", "layers --data calib.npy mine.onnx --target=x"),
        ("layers --tar x", "layers --data calib.npy digits.onnx --tar x"),
        (
            "diagnose --evaluator e.py",
            "diagnose --target generic-int8 --data calib.npy digits.onnx --evaluator e.py",
        ),
        ("diagnose --dumps board", "diagnose --data calib.npy digits.onnx --dumps board"),
        (
            "transform equalize -o x",
            "transform --target generic-int8 --labels calib_labels.npy --data calib.npy equalize digits.onnx -o x",
        ),
        (
            "distribution conv1 conv2",
            "distribution --target generic-int8 --data calib.npy digits.onnx conv1 conv2",
        ),
        (
            "sensitivity --nodes a b",
            "sensitivity --target generic-int8 --data calib.npy digits.onnx --nodes a b",
        ),
        ("compare board", "compare --data calib.npy digits.onnx board"),
        ("compare golden board", "compare golden board"),
        ("compare other.onnx board", "compare --data calib.npy other.onnx board"),
        ("audit int8", "audit int8"),
        ("demo", "demo"),
        ("targets AX650", "targets AX650"),
        ("layers --no-project x.onnx", "layers x.onnx"),
        ("explain sqnr", "explain sqnr"),
    ],
)
def test_options_win(project: Path, typed: str, whole: str) -> None:
    roundoff.init(target="generic-int8")
    assert sorted(filled(typed)) == sorted(whole.split())
    given = [word for word in filled(typed) if word in whole.split() and not word.startswith("-")]
    assert [word for word in given if word.endswith(".onnx") or word == "equalize"] == [
        word for word in whole.split() if word.endswith(".onnx") or word == "equalize"
    ]


def test_a_quantized_model_of_the_project_is_what_commands_look_at(project: Path) -> None:
    Path("roundoff.toml").write_text(
        'model = "digits.onnx"\nquantized = "int8.onnx"\ntarget = "generic-int8"\n'
        '[quantization]\ncalibration = "mse"\n[data]\npath = {image = "calib.npy"}\nmean = [-1.5, 2]\n'
        'raw-shape = [1, 28, 28]\n[goal]\nmax-drop = "1%"\n'
    )
    layers = filled("layers")
    assert layers[layers.index("--quantized") :][:2] == ["--quantized", "int8.onnx"]
    assert not {"--target", "--calibration", "--max-drop"} & set(layers)
    assert {"image=calib.npy", "--mean=-1.5,2", "1x28x28"} <= set(layers)
    tuned = filled("tune -o t")
    assert {"--target", "--calibration", "--max-drop", "1%"} <= set(tuned)
    assert "--quantized" not in tuned
    assert filled("audit") == ["audit", "int8.onnx"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('modle = "x"', "modle.*did you mean 'model'"),
        ("[data]\nmean = true", r"data\.mean = True"),
        ('labels = "a"\nevaluator = "b"', "both labels and evaluator"),
        ("[data", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    project: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("roundoff.toml").write_text(text)
    assert main(["layers"]) == 2
    error = capsys.readouterr().err
    assert re.search(says, error, re.DOTALL)
    assert "fix: " in error


def test_what_a_project_may_hold_are_options_of_commands() -> None:
    names = {each.name.replace("_", "-") for name in COMMANDS for each in flat_options(command_of(name).options)}
    keys = {key for section in _SECTIONS.values() for key in section} | set(_TOP)
    assert keys - {"path"} <= names


def test_somebody_is_asked_only_what_cannot_be_seen(project: Path) -> None:
    asked: list[str] = []

    def answer(question: str, answers: object) -> str | None:
        asked.append(str(question))
        answers_to = {"Which chip": "AX650", "Which is": "later.onnx", "How are": "ImageNet"}
        return next((said for start, said in answers_to.items() if str(question).startswith(start)), None)

    shutil.copy("digits.onnx", "later.onnx")
    Path("pictures").mkdir()
    (project / "pictures" / "a.png").write_bytes(b"")
    for file in ("calib.npy", "other.npy", "few_labels.npy"):
        Path(file).unlink()
    roundoff.init(ask=answer)
    # Samples, labels and the dump can be seen.
    assert len(asked) == 3
    options = roundoff.load_project().options
    assert (options["model"], options["target"]) == (("later.onnx",), ("AX650",))
    assert (options["data"], options["scale"]) == (("pictures",), ("1/255",))
    assert (options["mean"], options["std"]) == (("0.485,0.456,0.406",), ("0.229,0.224,0.225",))


def test_a_chip_that_is_not_set_is_told_with_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    lines = Path("roundoff.toml").read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "target" in line)
    line = f'set target = "NAME" in line {number} of roundoff.toml'
    assert line in told
    for words in (["quantize", "-o", "there"], ["layers"], ["diagnose"]):
        with pytest.raises(SystemExit) if words[0] != "diagnose" else contextlib.nullcontext():
            main(words)
        assert line in " ".join(capsys.readouterr().err.split()), words
    Path("roundoff.toml").write_text('model = "digits.onnx"\n')
    assert target_hint() == 'put target = "NAME" at the top of roundoff.toml'
    Path("roundoff.toml").write_text('model = "digits.onnx"\ntarget = "AX650"\n')
    assert target_hint() == ""


def test_an_empty_folder_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no model in"):
        roundoff.init(tmp_path)


def test_labels_belong_to_as_many_samples(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in project.glob("*_labels.npy"):
        file.unlink()
    Path("labels.csv").write_text("3\n" * 8)
    found = look_into(Path())
    assert (found.data[0], found.labels) == (Path("calib.npy"), ())
    assert found.judged == ((Path("other.npy"), Path("labels.csv")),)
    (why, _), *_, (audit, _) = first_commands("quantized", found)
    assert why.endswith(" --data other.npy --labels labels.csv")
    assert audit == "roundoff audit INT8.onnx --float digits.onnx"
    assert main(["init"]) == 0
    assert '# labels = "labels.csv"  # --data other.npy' in capsys.readouterr().out
    assert main(["init", "--data", "other.npy", "--force"]) == 0
    assert '\nlabels = "labels.csv"\n' in capsys.readouterr().out
    Path("labels.csv").write_text("class\n" + "3\n" * 24)
    assert look_into(Path()).labels == (Path("labels.csv"),)
    # A folder of `quantize` has its own plan.
    assert first_commands("quantized", FoundParts(quantized=(project,)))[2][0].endswith(f"audit {project}")


@pytest.mark.parametrize("have", _HAVE)
def test_what_is_shown_first_can_be_typed(have: str) -> None:
    found = FoundParts(models=(Path("m x.onnx"),), data=(Path("d"),), labels=(Path("l.npy"),))
    shown = first_commands(have, found)
    assert len(shown) == 3
    for words, _ in shown:
        assert parse_words(shlex.split(words)[1:]) is not None


def test_the_bare_command_asks_what_one_has(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = io.StringIO("2\n")
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main([]) == 0
    printed = capsys.readouterr()
    assert "What do you have?" in printed.err
    assert printed.out.count("roundoff ") == 3
    assert "roundoff compare digits.onnx board --data calib.npy" in printed.out


def test_every_command_stands_in_one_group() -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["di"], {"diagnose", "distribution", "diff"}),
        (["diagnose", "--quant"], {"--quantized"}),
        (["quantize", "--target", "axera-ax6"], {"axera-ax650"}),
        (["--lang", "zh", "lay"], {"layers"}),
        (["demo", "bo"], {"board"}),
        (["suite", "pl"], {"plan"}),
        (["compare", ""], set()),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes(words: list[str], meant: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    typed = " ".join(f"'{word}'" for word in ["roundoff", *words])
    ask = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _roundoff; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == meant


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    assert main(["completion", shell, "--lang", "zh"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_init_takes_the_model_that_the_samples_fit(project: Path) -> None:
    small = wrapped(
        [helper.make_node("Relu", ["x"], ["y"], "relu")],
        [value("x", (1, 3, 4, 4))],
        [value("y", (1, 3, 4, 4))],
        [],
    )
    save(small, project / "a_first.onnx")
    np.save(project / "tiny.npy", np.zeros((2, 3, 4, 4), np.float32))
    for data, model in (("tiny.npy", "a_first.onnx"), ("calib.npy", "digits.onnx")):
        assert main(["init", "--force", "--data", data]) == 0
        assert roundoff.load_project().options["model"] == (model,)
