"""The command ``roundoff layers``."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split
from tests.cli.inspecting import MODEL, Run, save_quantized
from tests.models import conv_net, save, value, wrapped


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``roundoff layers`` in a folder with images and a quantized model with a planted fault."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", load_split("calibration")[0][:12])
    save_quantized(Path("quantized.onnx"))

    def call(
        *words: str, quantized: str | None = "quantized.onnx", model: str | None = MODEL
    ) -> tuple[int, str, str]:
        source = [] if quantized is None else ["--quantized", quantized]
        named = [] if model is None else [model]
        code = main(["layers", *named, *source, "--data", "images.npy", *words])
        return (code, *capsys.readouterr())

    return call


def test_the_verdict_comes_first_and_names_the_node(run: Run) -> None:
    code, out, err = run("--top", "3")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("LOCAL: 1 of 14 units in float brings the output from ")
    assert lines[2].startswith("  coverage   judged: 1 of 1 output, 32 of 32 tensors, 12 of 12 samples")
    assert lines[3].startswith("  output     logits: ")
    assert any(line.startswith("  caused by  block3/relu (Relu after block3/pointwise): ") for line in lines)
    assert "  remedy     --set tensor:block3/relu=float" in lines
    assert "of its values are clipped" in " ".join(out.split())
    assert max(map(len, lines)) <= 80
    assert "29 rows that matter less are left out; --top all shows them" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    code, out, err = run("-o", "run", "--csv", "table.csv", "--json")
    assert code == 1
    assert "written: run/run.json, run/layers.csv, table.csv" in err
    printed, stored = json.loads(out), load_document(Path("run"))
    assert stored.layers is not None
    assert stored.comparison is None
    assert printed["layers"]["verdict"]["kind"] == stored.layers.verdict.kind == "local"
    assert [entry["role"] for entry in printed["inputs"]] == ["model", "quantized", "data"]
    records = list(csv.DictReader(io.StringIO(Path("table.csv").read_text(encoding="utf-8"))))
    assert [record["tensor"] for record in records] == [row.tensor for row in stored.layers.rows]
    assert Path("run/layers.csv").read_text(encoding="utf-8") == Path("table.csv").read_text(encoding="utf-8")


def test_nothing_is_replaced_unasked(run: Run) -> None:
    quick = ["--method", "local", "--samples", "1", "--csv", "table.csv"]
    assert run(*quick)[0] == 1
    code, _, err = run(*quick)
    assert code == 2
    assert "table.csv exists" in err
    assert run(*quick, "--force")[0] == 1
    Path("table.csv").write_text("mine", encoding="utf-8")
    assert run(*quick, "--force")[0] == 2
    assert Path("table.csv").read_text(encoding="utf-8") == "mine"


def test_the_same_twice_gives_the_same_document(run: Run) -> None:
    first, second = (json.loads(run("--json", "--samples", "3")[1]) for _ in range(2))
    for document in (first, second):
        del document["environment"]
    assert first == second


def test_rows_in_execution_order_and_one_method_only(run: Run) -> None:
    code, out, _ = run("--sort", "order", "--top", "all", "--method", "accumulated", "--samples", "5")
    assert code == 1
    assert out.startswith("INCONCLUSIVE: only accumulated errors were measured; ")
    assert out.index("stem/relu") < out.index("block4/relu") < out.index("head/pool")


def test_integers(run: Run) -> None:
    code, out, _ = run("--mode", "integer", "--arithmetic", "litert", "--json")
    layers = json.loads(out)["layers"]
    assert code == 1
    assert layers["mode"] == "integer"
    assert "multiplier of 31 bits and a shift" in layers["arithmetic"]["text"]
    assert [each["node"] for each in layers["verdict"]["culprits"]] == ["block3/relu"]


def test_a_model_is_quantized_for_a_target_first(run: Run) -> None:
    code, out, _ = run("--target", "generic-int8", "--set", "logits=float", "-o", "run", quantized=None)
    assert code == 0
    assert out.startswith("FINE: ")
    said = str(load_document(Path("run")).layers.quantized)  # type: ignore[union-attr]
    assert said == "quantized for generic-int8, calibrated by minmax"


def test_the_remedy_does_what_was_measured(run: Run) -> None:
    spoilt = ("--target", "generic-int8", "--set", "block1/depthwise=weight=s4", "--json")
    verdict = json.loads(run(*spoilt, quantized=None)[1])["layers"]["verdict"]
    assert (verdict["kind"], len(verdict["culprits"])) == ("fine", 1)  # a note, as the outputs keep the limits
    rules = [word for each in verdict["culprits"] for rule in each["remedy"] for word in ("--set", rule)]
    layers = json.loads(run(*spoilt, *rules, quantized=None)[1])["layers"]
    output = next(row for row in layers["rows"] if row["output"])
    assert output["accumulated"]["sqnr_db"] == pytest.approx(verdict["after"]["sqnr_db"], abs=0.01)
    assert verdict["samples"] == len(layers["samples"])


def test_a_folder_that_quantize_wrote_is_taken(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", MODEL, "--target", "litert", "--data", "images.npy", "-o", "q"]) == 0
    capsys.readouterr()
    code, out, _ = run("--mode", "integer", "--json", "--samples", "4", quantized="q")
    assert code == 0
    layers = json.loads(out)["layers"]
    assert "multiplier of 31 bits" in layers["arithmetic"]["text"]
    assert layers["verdict"]["kind"] == "fine"
    alone = json.loads(run("--mode", "integer", "--json", "--samples", "4", quantized="q", model=None)[1])[
        "layers"
    ]
    # Biases are stored as codes, so the float model that remains has slightly other ones.
    assert alone["verdict"]["kind"] == "fine"
    assert [row["tensor"] for row in alone["rows"]] == [row["tensor"] for row in layers["rows"]]
    save(conv_net(), Path("other.onnx"))
    np.save("images.npy", np.zeros((1, 3, 8, 8), np.float32))
    code, _, err = run(quantized="q", model="other.onnx")
    assert code == 2
    assert "q was made from" in err
    assert "'--quantized q' has its own" in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "a=u16", "--rules", "r.toml"], "--set and --rules say how to quantize"),
        (["--calibration", "mse"], "--calibration says how to quantize, but quantized.onnx is quantized already"),
        (["--arithmetic", "litert"], "--arithmetic has no effect without --mode integer"),
        (["--mode", "integer", "--arithmetic", "litertt"], "litertt"),
        (["--max-memory", "1MB"], "the budget is 1.0 MB"),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, words: list[str], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert "\nfix: " in err


def test_without_a_float_model_the_quantized_one_is_taken_apart(run: Run) -> None:
    with_float, without = (
        json.loads(run("--json", "--samples", "4", model=model)[1])["layers"] for model in (MODEL, None)
    )
    assert [row["tensor"] for row in without["rows"]] == [row["tensor"] for row in with_float["rows"]]
    assert [each["node"] for each in without["verdict"]["culprits"]] == ["block3/relu"]


def test_a_target_needs_a_float_model(run: Run) -> None:
    code, _, err = run("--target", "generic-int8", quantized=None, model=None)
    assert code == 2
    assert "--target quantizes a float model, but none was given" in err


def test_a_float_model_is_not_a_quantized_one(run: Run) -> None:
    code, _, err = run(quantized=MODEL)
    assert code == 2
    assert "no quantizers" in err


def test_a_file_that_computes_something_else_than_its_quantizers_say_is_never_fine(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", MODEL, "--data", "images.npy", "--target", "generic-int8", "-o", "whole"]) == 0
    capsys.readouterr()
    file = next(Path("whole").glob("*fake_quant*.onnx"))
    proto = onnx.load(file)
    add = next(node for node in proto.graph.node if node.op_type == "Add")
    add.input[1] = add.input[0]  # the other branch is lost
    onnx.save(proto, file)
    onnx.save(proto, "broken.onnx")
    # Also where the plan beside it is sound.
    for broken in ("broken.onnx", "whole"):
        code, out, _ = run(quantized=broken)
        assert (code, out.split(":")[0]) == (1, "INCONCLUSIVE"), out
        assert "the file as it runs is worse than its quantizers explain" in " ".join(out.split())
    assert main(["diagnose", MODEL, "--data", "images.npy", "--quantized", "whole"]) == 1


def test_a_folder_whose_mask_two_attentions_share_is_read(run: Run, tmp_path: Path) -> None:
    feed = np.random.default_rng(0).standard_normal((8, 1, 6, 8)).astype(np.float32)
    nodes, held = [], [numpy_helper.from_array(np.triu(np.full((6, 6), -1e4, np.float32), 1), "mask")]
    last = "x"
    for at in range(2):
        held.append(numpy_helper.from_array(feed[at, 0].T @ feed[at + 1, 0] / 8, f"w{at}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{at}"], [f"q{at}"]),
            helper.make_node("Transpose", [last], [f"k{at}"], perm=[0, 2, 1]),
            helper.make_node("MatMul", [f"q{at}", f"k{at}"], [f"s{at}"]),
            helper.make_node("Add", [f"s{at}", "mask"], [f"m{at}"]),
            helper.make_node("Softmax", [f"m{at}"], [f"p{at}"]),
            helper.make_node("MatMul", [f"p{at}", last], [f"y{at}"]),
        ]
        last = f"y{at}"
    model = save(wrapped(nodes, [value("x", (1, 6, 8))], [value("y1")], held), tmp_path / "masked.onnx")
    np.save("images.npy", feed.reshape(8, 6, 8))
    main(["quantize", str(model), "--data", "images.npy", "--target", "generic-int8", "-o", "masked"])
    code, out, err = run(model=str(model), quantized="masked")
    assert code in (0, 1), err
    assert "1 of 1 output" in out
