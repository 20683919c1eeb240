"""What others run of this repository: its options are those of the program."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from roundoff.cli import parse_words

ROOT = Path(__file__).parents[1]


def test_the_templates_of_the_gate_type_what_the_program_takes() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    step = action["runs"]["steps"][-1]
    lab = yaml.safe_load((ROOT / "gitlab-gate.yml").read_text(encoding="utf-8"))["roundoff-gate"]
    for line, most in ((step["run"], step["env"]["MOST"]), (lab["script"][-1], "")):
        words = [word.strip('"') for word in line.split()][1:]
        at = words.index("--max-regression") + 1
        assert words[at] == ("$MOST" if most else "$ROUNDOFF_MAX_REGRESSION")
        words[at] = "1dB"
        found = parse_words(words)
        assert found is not None
        assert found.junit.name
    # An input is never a part of a script.
    assert all("${{" not in each["run"] for each in action["runs"]["steps"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_hook_audits_every_file_and_fails_when_one_does(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    # Stands for the program: notes what it is asked, and fails for one file.
    program = tmp_path / "roundoff"
    program.write_text('#!/bin/sh\necho "$@"\n[ "$2" != "b int8.onnx" ]\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for files, code in ((["a_int8.onnx"], 0), (["a_int8.onnx", "b int8.onnx", "c_int8.onnx"], 1)):
        words = [*shlex.split(hook["entry"]), *files]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stdout.splitlines()) == (code, [f"audit {file}" for file in files])
    assert parse_words(["audit", "a_int8.onnx"]) is not None


def test_a_container_is_built_from_all_that_the_package_carries() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = built["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {built["project"]["readme"], *built["project"]["license-files"], *wheel["force-include"]}
    needed |= {Path(each).parts[0] for each in wheel["packages"]}
    assert needed <= {name for line in copied for name in line.split()}


def test_every_python_that_is_declared_is_tested() -> None:
    declared = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == declared == ["3.11", "3.12", "3.13"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    made = {
        step["run"].removeprefix("make ")
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    }
    assert made == {"test", "lint", "docs"} <= targets
