"""`roundoff diagnose --dumps`: what it prints, refuses and leaves with."""

import json
from pathlib import Path

import pytest

from roundoff.cli import main
from tests.diagnosis.devices.devices import planted

Written = tuple[list[str], Path]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("broken")
    return planted("kernel-wrong-channels").write(folder), folder


def test_the_verdict_names_node_cause_proof_and_remedy(
    broken: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, folder = broken
    monkeypatch.chdir(folder)  # the next command repeats the paths
    assert main(["diagnose", *(each.removeprefix(f"{folder}/") for each in arguments)]) == 1
    text = capsys.readouterr().out
    for word in ("CULPRITS", "kernel-fault", "proof", "remedy", "victims"):
        assert word in text
    assert "2 of 12 places of axis 1 hold those of others" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24


def test_the_document_holds_the_same(broken: Written, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, _ = broken
    main(["diagnose", *arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    found = document["diagnosis"]
    assert found["side"] == "device"
    assert found["findings"][0]["cause"] == "kernel-fault"
    assert "dumps" in {each["role"] for each in document["inputs"]}


def test_a_healthy_device_leaves_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = planted("rounds-half-up").write(tmp_path)
    assert main(["diagnose", *arguments]) == 0
    assert "HEALTHY: no fault found on the device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--labels", "labels.csv"], "--labels has no effect with --dumps"),
        (["--fix", "-o", "out"], "--fix repairs quantized models"),
    ],
)
def test_options_without_effect_are_refused(
    broken: Written, extra: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, _ = broken
    assert main(["diagnose", *arguments, *extra]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_is_not_quantized_is_not_taken_for_one(
    broken: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, _ = broken
    assert main(["diagnose", *arguments, "--quantized", arguments[0]]) == 2
    assert "has no quantizers, so it says nothing of what the device computes" in capsys.readouterr().err


def test_nothing_to_diagnose(broken: Written, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, _ = broken
    assert main(["diagnose", *arguments[:3]]) == 2
    assert "neither a quantized model nor dumps were given" in capsys.readouterr().err


def test_options_of_dumps_need_dumps(broken: Written, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, _ = broken
    given = arguments[: arguments.index("--dumps")]
    assert main(["diagnose", *given, "--dump-format", "npy"]) == 2
    assert "--dump-format has no effect without --dumps" in capsys.readouterr().err


def test_dumps_need_a_model(broken: Written, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, folder = broken
    assert main(["diagnose", "--dumps", str(folder / "dumps"), *arguments[1:3]]) == 2
    assert "none was given" in capsys.readouterr().err


def test_dumps_that_are_not_there(broken: Written, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, _ = broken
    assert main(["diagnose", *arguments[:-1], "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
