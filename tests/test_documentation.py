"""Examples in the documentation do what they say, and its tables are true."""

import argparse
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from roundoff.cli import main, parse_words
from roundoff.cli.options import Command
from roundoff.cli.parser import CommandParser
from roundoff.demo import model_path
from tests.documented import (
    PAGES,
    ROOT,
    Typed,
    clear_output,
    commands,
    fences,
    labels_for,
    make_folder,
    table_rows,
)
from tests.documented_scenes import batches_for, set_scene

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# An example that works on the demo's model needs nothing that a reader would have to bring.
COMPLETE = "import demo"
FROM_PYTHON = "## From Python\n"


def _complete_examples() -> list[tuple[str, str]]:
    pages = sorted(DOCS.rglob("*.md"))
    blocks = [
        (str(page.relative_to(DOCS)), block) for page in pages for block in BLOCK.findall(page.read_text("utf-8"))
    ]
    return [(name, block) for name, block in blocks if COMPLETE in block]


EXAMPLES = _complete_examples()


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_an_example_on_the_demo_runs(
    page: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # It knows nothing but what it says itself.
    exec(compile(example, page, "exec"), {"__name__": "__main__"})  # noqa: S102 - the page's own example
    assert capsys.readouterr().out


def test_every_page_that_speaks_of_python_has_such_an_example() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if FROM_PYTHON in page.read_text("utf-8")}
    assert len(pages) > 10
    # Target files, nets of Caffe and dumps of a chip are the reader's own; the machine is no model.
    of_the_reader = {f"reference/{name}.md" for name in ("targets", "convert", "ascend", "self-check")}
    assert pages - of_the_reader <= {page for page, _ in EXAMPLES}


# Commands, as they are typed.

TYPED: dict[str, list[Typed]] = defaultdict(list)
for each in commands():
    TYPED[each.page].append(each)


def vendor_parser(words: tuple[str, ...]) -> tuple[argparse.ArgumentParser, list[str]] | None:
    """The parser of a vendor's sub-command, and the words for it; None for a command of ours."""
    from roundoff.cli import amct, ascend, horizon, pulsar2, suite

    modules = {"amct": amct, "ascend": ascend, "horizon": horizon, "pulsar2": pulsar2, "suite": suite}
    module = modules.get(words[0])
    subcommands: dict[str, Command] = getattr(module, "_SUBCOMMANDS", {})
    if len(words) < 2 or words[1] not in subcommands:
        return None
    parser = CommandParser(prog=words[1], allow_abbrev=words[0] != "pulsar2")
    subcommands[words[1]].declare(parser)
    rest = list(words[2:])
    if words[0] == "pulsar2" and words[1] != "run":
        rest, _ = pulsar2.split_settings(rest, parser)
    return parser, rest


def test_commands_stand_in_blocks_that_are_run() -> None:
    """A line that begins with our name in a block of another kind would be run by nobody."""
    for page in PAGES:
        for kind, block in fences(page):
            found = re.findall(r"^ *(?:\$ )?roundoff .*", block, re.MULTILINE)
            assert kind == "console" or not found, f"{page.name}: {found}"


# What the page on projects leaves out stands in the project; its commands are run below.
@pytest.mark.parametrize("page", [page for page in TYPED if page != "project"])
def test_every_command_of_a_page_is_understood(page: str) -> None:
    for typed in TYPED[page]:
        assert parse_words(typed.words) is not None, typed.words
        vendor = vendor_parser(typed.words)
        if vendor is not None:
            vendor[0].parse_args(vendor[1])


# What is not run here, and why.
ELSEWHERE = {
    "amct-caffe": "tests/vendors/amct/test_caffe_seed.py follows the page",
    "ocr": "tests/test_tutorials.py runs it", "repvgg": "tests/test_tutorials.py runs it",
    "serve": "it serves until it is stopped; tests/browser does",
    "self-check": "it measures the machine for a minute; tests/cli does",
}  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("page", [page for page in TYPED if page not in ELSEWHERE])
def test_every_command_of_a_page_runs(
    page: str, reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, each on what those before it wrote: good and bad news are fine, errors are not."""
    folder = tmp_path / "reader"
    shutil.copytree(reader, folder)
    monkeypatch.chdir(folder)
    set_scene(page, folder)
    for typed in TYPED[page]:
        words = ["generic-int8" if word == "T" else word for word in typed.words]
        digits = "digits.onnx" in words
        if "--resume" in words:
            words_before = [word for word in words if word != "--resume"]
            clear_output(words_before)
            main(words_before)
        else:
            clear_output(words)
        labels_for(words)
        batches_for(words)
        if digits:
            words[words.index("samples.npy")] = str(model_path().parent / "samples.npy")
        code = main(words)
        told = capsys.readouterr()
        if words[:2] == ["amct", "calibration"]:  # the record that the pages hand on
            prefix = words[words.index("--save_path") + 1]
            shutil.copy(f"{prefix}_record.txt", "out/record.txt" if prefix == "out/m" else "record.txt")
        assert (code == 2) if typed.refused else code in {0, 1}, f"{' '.join(words)}: {told.err}"


# Examples in Python that go on from what the reader has; those on the demo's model ran above.
RUN_ELSEWHERE = {
    "api": "tests/api/test_pages.py", "python": "tests/api/test_pages.py", "repvgg": "tests/test_tutorials.py",
    "amct-caffe": "tests/vendors/amct/test_caffe_seed.py", "caffe": "tests/graph/caffe/test_exporting.py",
    "torch": "tests/test_torch.py, where torch is installed", "self-check": "it measures for a minute; tests/cli",
}  # fmt: skip
BEFORE = {
    "amct": "import numpy as np; import roundoff.vendors.amct.caffe as amct\n"
    "first = second = np.ones((8, 3, 224, 224), np.float32)",
    "tune": "import numpy as np; LABELS = np.load('labels.npy')",
}
"""What the text of a page says in words in front of an example."""


def _other_examples() -> dict[str, list[str]]:
    found = {
        page.stem: [block for kind, block in fences(page) if kind == "python" and COMPLETE not in block]
        for page in PAGES
    }
    return {name: blocks for name, blocks in found.items() if blocks and name not in RUN_ELSEWHERE}


@pytest.mark.parametrize("page", _other_examples())
def test_the_other_examples_of_a_page_run(
    page: str, reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roundoff.graph.caffe import conversion

    monkeypatch.setattr(conversion, "_OWN", type(conversion._OWN)("layer type"))
    folder = tmp_path / "reader"
    shutil.copytree(reader, folder)
    monkeypatch.chdir(folder)
    set_scene(page, folder)
    names: dict[str, object] = {"__name__": "example"}
    for block in (BEFORE.get(page, ""), *_other_examples()[page]):
        exec(compile(block, page, "exec"), names)  # noqa: S102 - the page's own example


# Tables.


def test_every_format_that_is_said_to_be_written_is_written_and_read_again(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(reader)
    rows = table_rows("formats/README.md", "# Tensor files")
    written = [re.findall(r"`([^`]+)`", row[0])[0] for row in rows if row[2] == "yes"]
    assert len(written) >= 4
    for name in written:
        out = tmp_path / name
        assert main(["dump", "model.onnx", "--data", "calib/", "--format", name, "-o", str(out)]) == 0
        # Every command that takes dumps takes it, and so does converting it.
        assert main(["compare", "golden", str(out), "--model", "model.onnx"]) in {0, 1}
        assert main(["diagnose", "model.onnx", "--data", "calib/", "--dumps", str(out)]) in {0, 1}
        assert main(["convert", str(out), "-o", str(tmp_path / f"{name}_again")]) == 0


def test_every_format_that_is_documented_has_a_page_and_is_known() -> None:
    from roundoff.tensors import FORMATS

    names = {re.findall(r"`([^`]+)`", row[0])[0] for row in table_rows("formats/README.md", "# Tensor files")}
    assert names == set(FORMATS)
    for name in names:
        assert (ROOT / "docs" / "formats" / f"{name}.md").is_file()


def test_every_dialect_that_is_documented_is_written(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roundoff.vendors.dialects import DIALECTS

    monkeypatch.chdir(reader)
    page = (ROOT / "docs" / "reference" / "export-settings.md").read_text("utf-8")
    documented = {name for row in re.findall(r"^\| *`([\w-]+)`", page, re.MULTILINE) for name in [row]}
    assert set(DIALECTS) <= documented
    for name in DIALECTS:
        out = tmp_path / name
        assert main(["export-settings", "int8", "--dialect", name, "-o", str(out)]) in {0, 1}, name
        assert list(out.iterdir())


def test_every_ending_of_a_pulsar2_configuration_is_taken(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "pulsar2-config.md").read_text("utf-8")
    endings = set(re.findall(r"`(\.(?:json|ya?ml|toml|prototxt|pbtxt|textproto|txtpb))`", page))
    assert {".json", ".yaml", ".toml", ".prototxt"} <= endings
    texts = {
        ".json": '{"input": "model.onnx", "output_dir": "made", "quant": {"input_configs": [{"tensor_name": '
        '"image", "calibration_dataset": "calib", "calibration_format": "Numpy"}]}}',
        ".toml": 'input = "model.onnx"\noutput_dir = "made"\n[[quant.input_configs]]\ntensor_name = "image"\n'
        'calibration_dataset = "calib"\ncalibration_format = "Numpy"\n',
        ".yaml": "input: model.onnx\noutput_dir: made\nquant:\n  input_configs:\n  - tensor_name: image\n"
        "    calibration_dataset: calib\n    calibration_format: Numpy\n",
        ".prototxt": 'input: "model.onnx" output_dir: "made" quant { input_configs { tensor_name: "image" '
        'calibration_dataset: "calib" calibration_format: Numpy } }\n',
    }
    monkeypatch.chdir(reader)
    for ending in endings:
        kind = ".yaml" if ending == ".yml" else ending if ending in texts else ".prototxt"
        Path(f"settings{ending}").write_text(texts[kind])
        assert main(["pulsar2", "build", "--config", f"settings{ending}", "--force"]) == 0, ending


def test_every_option_in_a_table_of_options_exists() -> None:
    """``| `--option VALUE` | ... |`` on the page of a command is one of its options."""
    from roundoff.cli import COMMANDS, command_of

    looked_at = 0
    for name in COMMANDS:
        page = ROOT / "docs" / "reference" / f"{name}.md"
        if not page.is_file() or name in {"ascend", "amct", "pulsar2", "horizon", "suite"}:
            continue
        parser = argparse.ArgumentParser(add_help=False)
        command_of(name).declare(parser)
        first_cells = re.findall(r"^\| *(`--[^|]*)\|", page.read_text("utf-8"), re.MULTILINE)
        for option in (found for cell in first_cells for found in re.findall(r"`(--[\w-]+)", cell)):
            looked_at += 1
            assert option in parser._option_string_actions, f"{page.name}: {option}"
    assert looked_at > 20
