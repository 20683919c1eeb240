import json
from dataclasses import replace

import pytest

import roundoff.run.host_arithmetic
from roundoff.cli import main
from roundoff.run.host_arithmetic import HostArithmetic, measure_host
from tests.run.test_host_arithmetic import EXACT

COARSE = replace(
    EXACT,
    features=(),
    fused=(
        replace(EXACT.fused[0], moved=40, largest=2),
        replace(EXACT.fused[0], name="Gemm", moved=1, largest=1),
        replace(EXACT.fused[0], name="MatMul", kernels=()),
    ),
    largest_product=0.5059,
    basic_is_equal=False,
    threads_are_equal=False,
    batches_are_equal=False,
)


def printed(
    host: HostArithmetic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(roundoff.run.host_arithmetic, "measure_host", lambda: host)
    assert main(["self-check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    return lines


def test_an_exact_host(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(EXACT, monkeypatch, capsys) == [
        "On this host onnxruntime's fused int8 kernels equal the graph; roundoff does not",
        "use them, and what it uses gives the same bits every time.",
        "  host          onnxruntime 1.2.3, x86_64, avx2, avx512_vnni",
        "  fused int8    Conv, whole range data: all 100 codes equal",
        "                -> Results of onnxruntime's default settings can be trusted here",
        "                to follow the graph.",
        "  u8 x s8       the sum of products 255 x 127 is exact",
        "                -> Large weights and activations do no harm in integer kernels",
        "                here.",
        "  optimization  ORT_DISABLE_ALL and ORT_ENABLE_BASIC: bit-equal",
        "                -> Either level is a reference.",
        "  threads       1 and 4 threads: bit-equal",
        "                -> --threads changes time, not results.",
        "  batches       samples alone and in a batch: bit-equal",
        "                -> Batches change time, not results.",
    ]


def test_a_host_whose_kernels_saturate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(COARSE, monkeypatch, capsys)
    text = " ".join(" ".join(lines).split())

    assert lines[0].startswith("On this host onnxruntime's fused int8 kernels do not compute what the graph")
    assert "But what it uses depends on settings here: see below." in text
    assert "x86_64, instructions unknown" in text
    assert "Conv, whole range data: 40 of 100 move, at most 2 steps" in text
    assert "Gemm, whole range data: 1 of 100 move, at most 1 step" in text
    assert "MatMul, whole range data: not fused" in text
    assert "is 50.6 % of what it should be: pairs saturate at 16 bits" in text
    assert text.count("NOT bit-equal -> Keep this setting the same in runs that are compared.") == 3


def test_measurements_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["self-check", "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    host = measure_host()
    assert facts["summary"] == host.summary()
    assert facts["saturates"] == host.saturates
    assert facts["fused"][0]["elements"] == host.fused[0].elements


def test_kinds_of_data_are_named_in_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = EXACT.fused[0]
    paths = (replace(first, data="whole range"), replace(first, name="network", data="bell-shaped"))
    monkeypatch.setattr(roundoff.run.host_arithmetic, "measure_host", lambda: replace(EXACT, fused=paths))
    assert main(["--lang", "zh", "self-check"]) == 0
    text = capsys.readouterr().out
    assert "满量程数据" in text
    assert "整个网络" in text
    assert "正态分布数据" in text
