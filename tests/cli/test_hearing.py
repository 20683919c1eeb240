"""What a Caffe net loses when it is read is said by every command, once."""

import logging
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from tests.graph.caffe.nets import NetText, values

SAID = "net.prototxt: 5 layers are left out: loss1 (SoftmaxWithLoss) serves training or scoring; "


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    made = NetText({"data": (1, 3, 6, 6), "label": (1,)})
    made.add("Convolution", "conv", "data", "", "convolution_param { num_output: 4 kernel_size: 3 }",
             [values(4, 3, 3, 3), values(4)])  # fmt: skip
    made.add("InnerProduct", "score", "conv", "", "inner_product_param { num_output: 3 }",
             [values(3, 64), values(3)])  # fmt: skip
    for index in range(1, 5):
        made.add("SoftmaxWithLoss", f"loss{index}", ["score", "label"])
    made.write(tmp_path)
    np.save("x.npy", values(4, 3, 6, 6))
    return "net.prototxt"


@pytest.mark.parametrize(
    "words",
    [
        "dump NET DATA -o out",
        "quantize NET DATA --target ascend -o out",
        "tune NET DATA --target ascend --max-trials 2 -o out",
        "transform bias-correct NET DATA --target ascend -o out",
        "layers NET DATA --quantized q",
        "sensitivity NET DATA --quantized q",
        "accumulate NET DATA --quantized q",
        "partial NET DATA --quantized q",
        "distribution NET * DATA --quantized q",
        "channels NET * DATA --quantized q",
        "samples NET DATA --quantized q",
        "outliers NET DATA",
        "compare NET dumped DATA",
    ],
)
def test_every_command_says_it_once(net: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", "x.npy"]
    if "--quantized" in words:
        assert main(["quantize", net, *data, "--target", "ascend", "-o", "q"]) in (0, 1)
    if "dumped" in words:
        assert main(["dump", net, *data, "-o", "dumped"]) == 0
    capsys.readouterr()
    given = [word for each in words.split() for word in {"NET": [net], "DATA": data}.get(each, [each])]
    assert main(given) in (0, 1)
    out, err = capsys.readouterr()
    assert err.count(SAID) == 1
    assert "2 more; 'roundoff convert' lists them" in err
    assert "left out" not in out


def test_nothing_is_heard_behind_a_command(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["dump", net, "--data", "x.npy", "-o", "out"])
    capsys.readouterr()
    assert logging.getLogger("roundoff").handlers == []
