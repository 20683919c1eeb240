import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.api.tensors import _described
from roundoff.cli import main
from roundoff.graph.load import load_model
from roundoff.run.budget import PROGRAM_BYTES
from roundoff.run.capture import Estimate, LiveSource
from roundoff.tensors import open_source
from tests.models import conv_net, random_feed, save, two_inputs, value, with_if, with_sequence, wrapped
from tests.run.samples import MemorySamples

CONV_TENSORS = ["image", "conv1", "relu1", "conv2", "relu2", "pooled", "flat", "logits"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``roundoff dump`` in a folder with model.onnx and two samples; gives exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    save(conv_net("N"), tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    for index in range(2):
        np.save(tmp_path / "data" / f"{index}.npy", feed(index)["image"])

    def call(*words: str, model: str = "model.onnx", data: str | None = "data") -> tuple[int, str, str]:
        samples = [] if data is None else ["--data", data]
        code = main(["dump", model, *samples, "-o", "out", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def feed(index: int, batch: int = 1) -> dict[str, Any]:
    return random_feed({"image": (batch, 3, 8, 8)}, seed=index)


def left_behind() -> list[str]:
    """What lies in the folder besides the inputs."""
    return sorted(path.name for path in Path().iterdir() if path.name not in ("model.onnx", "data"))


@pytest.mark.parametrize("form", ["npy", "npz", "bin", "ascend-npy"])
def test_every_tensor_is_written_and_can_be_read_back(run: Run, form: str) -> None:
    code, out, err = run("--format", form)

    assert code == 0
    assert out == "out: 8 tensors x 2 samples, 9.9 kB\n"
    assert "written: out/tensors.json, which lists all files" in err
    live = LiveSource(load_model(Path("model.onnx")), MemorySamples([feed(0), feed(1)]))
    dumped = open_source(Path("out"))
    assert [info.name for info in dumped.tensors] == CONV_TENSORS
    assert [(info.node, info.op_type) for info in dumped.tensors] == [
        (info.node, info.op_type) for info in live.tensors
    ]
    for dumped_sample, live_sample in zip(dumped.samples, live.samples, strict=True):
        for name in CONV_TENSORS:
            np.testing.assert_array_equal(dumped.read(name, dumped_sample), live.read(name, live_sample))


def test_ascend_files_carry_node_output_and_time(run: Run) -> None:
    run("--format", "ascend-npy", "--samples", "1")

    assert any(re.fullmatch(r"Conv1\.0\.\d{16}\.npy", path.name) for path in Path("out").iterdir())


def test_the_estimate_comes_first(run: Run) -> None:
    _, _, err = run()

    assert err.splitlines()[0] == "estimate: 8 tensors x 2 samples, about 18.1 kB on disk, 134 MB of memory"


def test_the_estimate_of_the_largest_dump_fits_a_terminal() -> None:
    largest = Estimate(
        tensors=9999, samples=99999, sample_bytes=9 << 20, memory_bytes=99 << 30, passes=12, exact=False
    )
    first, second = _described(largest, stats_only=False).splitlines()
    assert first == "estimate: 9999 tensors x 99999 samples, about 1.5 TB on disk, 106 GB of memory"
    assert len(first) <= 80
    assert second == "  12 passes per sample, to stay within the memory"


def test_files_that_are_no_samples_are_said_to_be_left_out(run: Run) -> None:
    Path("data/README.md").touch()

    code, _, err = run()

    assert code == 0
    assert "not taken for a sample: data/README.md" in err


def test_patterns_are_reported_each(run: Run) -> None:
    code, _, err = run("--tensors", "conv*", "logits", "--tensors", "relu1")

    assert code == 0
    assert "--tensors 'conv*': 2 tensors\n--tensors 'logits': 1 tensor\n--tensors 'relu1': 1 tensor\n" in err
    assert [info.name for info in open_source(Path("out")).tensors] == ["conv1", "relu1", "conv2", "logits"]


def test_a_pattern_without_match_is_an_error(run: Run) -> None:
    code, out, err = run("--tensors", "relux")

    assert (code, out) == (2, "")
    assert "error: --tensors 'relux' matches none of the 8 tensors.\nfix: did you mean 'relu" in err
    assert left_behind() == []


def test_statistics_only(run: Run) -> None:
    code, out, err = run("--stats-only")

    assert code == 0
    assert out.splitlines()[0] == "8 tensors, all values finite"
    assert max(map(len, out.splitlines())) <= 80
    assert "written: out/stats.csv, out/stats.json" in err
    assert sorted(path.name for path in Path("out").glob("[!.]*")) == ["stats.csv", "stats.json"]
    rows = list(csv.DictReader(Path("out/stats.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["tensor"] for row in rows] == CONV_TENSORS
    both = np.concatenate([feed(0)["image"], feed(1)["image"]]).astype(np.float64)
    assert float(rows[0]["mean"]) == pytest.approx(both.mean())
    assert float(rows[0]["std"]) == pytest.approx(both.std())
    assert rows[1]["node"] == "Conv1"
    assert rows[1]["shape"] == "1x4x8x8"


def test_json_of_statistics_is_what_the_file_holds(run: Run) -> None:
    code, out, _ = run("--stats-only", "--json")

    assert code == 0
    assert json.loads(out) == json.loads(Path("out/stats.json").read_text(encoding="utf-8"))


def test_json_of_a_dump(run: Run) -> None:
    _, out, _ = run("--json", "--samples", "1")

    found = json.loads(out)
    assert (found["output"], found["map"], found["format"]) == ("out", "out/tensors.json", "npy")
    assert (found["tensors"], len(found["samples"]), found["size_bytes"]) == (8, 1, 4936)


def test_format_and_statistics_exclude_each_other(run: Run) -> None:
    code, _, err = run("--stats-only", "--format", "npz")

    assert code == 2
    assert "--format npz has no effect with --stats-only" in err


def test_a_dump_beyond_the_disk_limit_is_refused_before_it_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveSource, "read", lambda *_: pytest.fail("it ran"))

    code, _, err = run("--max-disk", "10kB")

    assert code == 2
    assert "error: The dump takes about 18.1 kB on disk; the limit is 10.0 kB (--max-disk).\n" in err
    assert "fix: narrow it with --tensors GLOB or --samples N, write --stats-only, or raise --max-disk" in err
    assert left_behind() == []


@pytest.mark.parametrize(("free", "code"), [(2**30, 0), (10_000, 2)])
def test_the_free_space_is_the_limit_by_default(
    run: Run, monkeypatch: pytest.MonkeyPatch, free: int, code: int
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))

    found, _, err = run()

    assert found == code
    assert ("the limit is 9.5 kB (free space less 500 B)" in err) == (code == 2)


def test_samples_that_grow_beyond_the_limit_stop_the_dump_and_leave_nothing(run: Run) -> None:
    node = helper.make_node("NonZero", ["image"], ["where"])
    where = value("where", None, TensorProto.INT64)
    save(wrapped([node], [value("image", (1, 3, 8, 8))], [where]), Path("model.onnx"))
    # Nothing is found in the first sample, by which the estimate goes, and everything in the second.
    np.save("data/0.npy", np.zeros((1, 3, 8, 8), np.float32))
    np.save("data/1.npy", np.ones((1, 3, 8, 8), np.float32))

    code, _, err = run("--max-disk", "5kB")

    assert code == 2
    assert "Samples are larger than the first one; the dump has come to 7.7 kB on disk; the limit is 5.0 kB" in err
    assert left_behind() == []


def test_an_earlier_result_is_replaced_only_by_force(run: Run) -> None:
    assert run()[0] == 0
    code, _, err = run("--stats-only")
    assert code == 2
    assert "out already holds a result" in err
    assert run("--stats-only", "--force")[0] == 0
    assert left_behind() == ["out"]
    assert not Path("out/tensors.json").exists()
    assert run("--force")[0] == 0
    assert not Path("out/stats.json").exists()


def test_other_people_s_files_are_never_replaced(run: Run) -> None:
    Path("out").mkdir()
    Path("out/thesis.txt").touch()

    code, _, err = run("--force")

    assert code == 2
    assert "holds files that roundoff did not write" in err
    assert Path("out/thesis.txt").exists()


@pytest.mark.parametrize("extra", [[], ["--stats-only"]])
def test_an_interrupt_leaves_nothing_behind(run: Run, monkeypatch: pytest.MonkeyPatch, extra: list[str]) -> None:
    read = LiveSource.read

    def interrupted(self: LiveSource, name: str, sample: str) -> Any:
        if sample.endswith("1") and name == "relu2":
            raise KeyboardInterrupt
        return read(self, name, sample)

    monkeypatch.setattr(LiveSource, "read", interrupted)

    code, _, err = run(*extra)

    assert code == 130
    assert "interrupted" in err
    assert left_behind() == []


def test_a_full_disk_leaves_nothing_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("roundoff.report.statistics.statistics_csv", lambda _: "")
    monkeypatch.setattr("pathlib.Path.replace", full)

    code, _, err = run("--stats-only")

    assert code == 2
    assert "The disk is full" in err
    assert left_behind() == []


def test_little_memory_means_more_passes_and_the_same_files(run: Run) -> None:
    run()
    expected = {str(path): path.read_bytes() for path in Path("out").rglob("*.npy")}
    # Room for two of the largest tensors (1,024 bytes) while a node works on two.
    limit = PROGRAM_BYTES + 4 * Path("model.onnx").stat().st_size + 4 * 1024

    code, _, err = run("--force", "--max-memory", str(limit))

    assert code == 0
    assert "3 passes per sample" in err
    assert {str(path): path.read_bytes() for path in Path("out").rglob("*.npy")} == expected


def test_too_little_memory_is_an_error(run: Run) -> None:
    code, _, err = run("--max-memory", "1MB")

    assert code == 2
    assert "the budget is 1.0 MB" in err
    assert "give --max-memory" in err


def test_what_cannot_be_written_is_said(run: Run) -> None:
    save(with_sequence(), Path("model.onnx"))
    np.save("x.npy", random_feed({"x": (2, 3)})["x"])

    code, out, err = run(data="x.npy")

    assert code == 0
    assert "left out: tensor 'parts', because it is of the kind sequence, not a tensor" in err
    assert "left out: tensor 'text', because it holds text, not numbers" in err
    assert out.startswith("out: 3 tensors x 1 sample,")


def test_nothing_to_write_is_an_error(run: Run) -> None:
    save(with_sequence(), Path("model.onnx"))
    np.save("x.npy", random_feed({"x": (2, 3)})["x"])

    code, _, err = run("--tensors", "parts", data="x.npy")

    assert code == 2
    assert "error: None of the tensors asked for can be written.\nfix: choose others with --tensors" in err


def test_tensors_inside_subgraphs_are_said_to_be_left_out(run: Run) -> None:
    save(with_if(), Path("model.onnx"))
    np.save("x.npy", random_feed({"x": (1, 3)})["x"])

    code, _, err = run(data="x.npy")

    assert code == 0
    assert "left out: 4 tensors inside node 'choose', which cannot be seen from outside" in err


def test_several_inputs(run: Run) -> None:
    save(two_inputs(), Path("model.onnx"))
    values = random_feed({"left": (1, 5), "right": (1, 5)})
    np.savez("pair.npz", left=values["left"], right=values["right"])

    assert run(data="pair.npz")[0] == 0
    assert [info.name for info in open_source(Path("out")).tensors] == ["left", "right", "scaled", "joined"]


def test_a_model_without_inputs_needs_no_data(run: Run) -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2, 2], seed=1.0)
    save(wrapped([node], [], [value("y")]), Path("model.onnx"))

    assert run(data=None)[0] == 0
    assert run("--force")[0] == 2


def test_a_model_that_cannot_run_leaves_with_4(run: Run) -> None:
    save(wrapped([helper.make_node("Nope", ["image"], ["y"])], [value("image", (1, 3, 8, 8))], [value("y")]),
         Path("model.onnx"))  # fmt: skip

    code, _, err = run()

    assert code == 4
    assert "Nope" in err
    assert left_behind() == []


def test_a_missing_model_and_missing_samples(run: Run) -> None:
    assert run(model="none.onnx")[0] == 2
    code, _, err = run(data=None)
    assert code == 2
    assert "add --data PATH" in err
