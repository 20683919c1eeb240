"""The commands on suites: what is done is done once, to the same bytes; pages, gates and exit codes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import roundoff
from roundoff.cli import main
from roundoff.errors import BadInput
from roundoff.suite import functions, page
from roundoff.suite import unit as unit_module
from roundoff.suite.evaluation import joined_scores
from roundoff.suite.matrix import load_suite
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import compute, do_unit, failure_of
from tests.suite.zoo import SUITE, make_zoo

EVALUATED = SUITE + "[commands.evaluate]\nsamples = 12\nsplit = {split}\n"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are done in this process: starting others takes seconds."""

    def run_here(self: Any, units: Any) -> Any:
        for unit in units:
            try:
                told = do_unit(unit, self._store.url)
            except roundoff.RoundoffError as error:
                yield unit_module.UnitState(unit, "failed", problem=failure_of(unit, error))
                continue
            yield unit_module.UnitState(unit, told["state"], told["seconds"], told["exit_code"], told["figures"])

    monkeypatch.setattr(unit_module._WorkThrough, "run", run_here)


@pytest.mark.parametrize("labels", [False, True])
def test_ranges_of_samples_join_to_the_very_numbers_of_one_run(tmp_path: Path, labels: bool) -> None:
    text = EVALUATED.replace("samples = 12\n", "samples = 12\nlabels = 'labels.npy'\n") if labels else EVALUATED
    np.save(tmp_path / "labels.npy", np.arange(12) % 5)
    joined = []
    for split in (12, 5, 1):
        units = load_suite(make_zoo(tmp_path, text.format(split=split)), only=["*evaluate*"]).units
        assert len(units) == -(-12 // split)
        documents = [compute(unit) for unit in units]
        assert documents == [compute(unit) for unit in units]
        joined.append([joined_scores(documents, which=which) for which in ("float", "quantized")])
    assert joined[0] == joined[1] == joined[2]
    assert len(joined[0][0].samples) == 12


def test_a_suite_is_done_once_and_shown_on_one_page(
    tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make_zoo(tmp_path, EVALUATED.format(split=8))
    monkeypatch.chdir(tmp_path)
    assert main(["suite", "status", "suite.toml"]) == 1
    assert "2 of 2 units to do" in capsys.readouterr().out
    assert main(["suite", "run", "suite.toml"]) == 0
    assert "DONE: 2 units, 0 of them from before" in capsys.readouterr().out
    before = {path: path.read_bytes() for path in (tmp_path / "store" / "units").rglob("*.json")}
    assert len(before) == 3
    assert main(["suite", "run", "suite.toml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {unit["state"] for unit in told["units"]} == {"known"}
    # What was damaged is made again, to the same bytes.
    first = next(iter(before))
    first.write_bytes(before[first][:-9])
    assert main(["suite", "status", "suite.toml"]) == 1
    assert main(["suite", "run", "suite.toml"]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert main(["suite", "plan", "suite.toml"]) == 0
    assert "0 of 2 units to do" in capsys.readouterr().out
    assert main(["suite", "report", "suite.toml", "-o", "page"]) in (0, 1)
    written = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    linked = list((tmp_path / "page" / "runs").iterdir())
    assert len(linked) == 1
    assert linked[0].name in written
    assert (tmp_path / "page" / "junit.xml").read_text().count("<testcase") == 2
    assert main(["--lang", "zh", "suite", "plan", "suite.toml"]) == 0
    assert "\u5355\u5143" in capsys.readouterr().out
    assert functions.plan(file).result.done


def test_a_gate_fails_by_goals_and_by_losses_that_are_no_chance(tmp_path: Path, here: None) -> None:
    text = EVALUATED.format(split=12) + "labels = 'labels.npy'\n[goals]\nverdict = false\nmin_output_db = {db}\n"
    file = make_zoo(tmp_path, text.format(db=1))
    data = np.load(tmp_path / "samples.npy")
    model = roundoff.load_model(tmp_path / "net.onnx")
    from roundoff.run.session import open_session

    (scores,) = open_session(model).run({"image": data})
    np.save(tmp_path / "labels.npy", scores.argmax(axis=1))
    with pytest.raises(BadInput, match="no run 'last'"):
        functions.gate(file, baseline="last")
    functions.run(file)
    passed = functions.gate(file, baseline="last")
    assert passed, str(passed)
    file.write_text(text.format(db=99), encoding="utf-8")
    missed = functions.gate(file)
    assert not missed
    assert "min_output_db" in str(missed)
    # Coarser weights lose much on every sample: no chance, and no goal is needed to see it.
    worse = text.format(db=-99).replace("[options]\n", "[options]\nset = ['op:Gemm=weight=s4']\n")
    file.write_text(worse, encoding="utf-8")
    assert functions.run(file)
    lost = functions.gate(file, baseline="last")
    assert not lost
    by_label = {unit.label: unit for unit in lost.result.units}
    assert by_label["net/generic-int8/layers"].failures
    junit = functions.junit_text(lost.result)
    assert "<failure" in junit
    # A unit that is not done has not passed, whatever the others do.
    file.write_text(text.format(db=1).replace("samples = 6", "samples = 5"), encoding="utf-8")
    assert not functions.gate(file)


def test_a_unit_that_cannot_be_done_is_told_and_the_others_are_done(
    tmp_path: Path, here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make_zoo(tmp_path, SUITE + "[models.broken]\nmodel = 'broken.onnx'\ndata = 'samples.npy'\n")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert main(["suite", "run", str(file)]) == 1
    said = capsys.readouterr()
    assert "NOT DONE: 1 of 2 units failed" in said.out
    assert "broken" in said.err
    states = functions.status(file).result.states
    assert [each.state for each in states] == ["known", "failed"]
    assert "broken.onnx" in states[1].problem["what"]
    # Once, whole, and in any language.
    assert said.out.count("broken.onnx") == 1
    assert "fix: " in said.out
    assert main(["--lang", "zh", "suite", "status", str(file)]) == 1
    assert "处理" in (told := capsys.readouterr().out)
    assert states[1].problem["fix"] not in told


def test_jobs_of_others_do_their_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = make_zoo(tmp_path, EVALUATED.format(split=4))
    assert main(["suite", "submit", str(file), "--print", "--jobs", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert all(line.startswith(f"roundoff suite run {file} --store ") for line in lines)
    units = load_suite(file).units
    shares = [unit_module.part_of(units, line.split()[-1]) for line in lines]
    assert sorted(unit.label for share in shares for unit in share) == sorted(unit.label for unit in units)
    assert "--array=1-4" in functions.submit(file, format="slurm")
    job = yaml.safe_load(functions.submit(file, format="kubernetes", store=tmp_path / "my store"))
    assert job["spec"]["completions"] == 4
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:2] == ["/bin/sh", "-c"]
    # What a shell of the pod makes of it, in its second job.
    words = container["command"][2].replace("exec roundoff", "printf '%s\\n'")
    said = subprocess.run(
        ["/bin/sh", "-c", words], env={"JOB_COMPLETION_INDEX": "1"}, capture_output=True, text=True, check=True
    )
    store = ["--store", str(tmp_path / "my store"), "--workers", "1"]
    assert said.stdout.splitlines() == ["suite", "run", str(file), *store, "--part", "2/4"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == [str(tmp_path)]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert main(["suite", "submit", str(file)]) == 2
    with pytest.raises(BadInput, match="no part"):
        unit_module.part_of(units, "4/3")


def test_a_gate_holds_shares_of_jobs_against_the_night_before(tmp_path: Path, here: None) -> None:
    """Each job remembers its share; what it is held against is the whole zoo, not the last job's share."""
    text = EVALUATED.format(split=5)
    file = make_zoo(tmp_path, text)
    for part in ("1/2", "2/2"):
        functions.run(file, part=part)
    (first,) = UnitStore(str(tmp_path / "store")).history("zoo")
    plain = functions.gate(file).result.units[1]
    file.write_text(text.replace("[options]\n", "[options]\nset = ['op:Gemm=weight=s4']\n"), encoding="utf-8")
    for part in ("1/2", "2/2"):
        functions.run(file, part=part)
    lost = functions.gate(file, baseline="last")
    assert [unit.compared for unit in lost.result.units] == [True, True]
    assert lost.result.units[0].failures
    # Ranges of an evaluation are one line of the trend, with the figures of all samples.
    rows = {row.label: row for row in page._trend_rows(1, first)}
    assert list(rows) == ["net/generic-int8/layers", "net/generic-int8/evaluate"]
    assert rows[plain.label].output_db == pytest.approx(plain.figures["output_db"])
    # Both nights may be of one second, which is all that a page shows of them.
    when = page.shown_time(first.when)
    assert functions.gate(file, baseline=first.when).result.baseline == first.when
    functions.report(file, tmp_path / "page", baseline=first.when)
    written = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert when in written
    assert "suite-trend-output_db" in written
    assert 'href=""' not in written


def test_what_nobody_asks_for_goes(tmp_path: Path, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    file = make_zoo(tmp_path)
    functions.run(file)
    store = str(tmp_path / "store")
    assert main(["suite", "gc", store]) == 2
    assert main(["suite", "gc", store, "--older-than", "1d"]) == 0
    assert len(list(UnitStore(store).unit_keys())) == 1
    assert main(["suite", "gc", store, "--suite", "zoo", "--dry-run"]) == 0
    assert main(["suite", "gc", store, "--suite", "zoo"]) == 0
    assert "1 run and 1 unit removed" in capsys.readouterr().out
    assert list(UnitStore(store).unit_keys()) == []
