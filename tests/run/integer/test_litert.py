from pathlib import Path

from roundoff.quantize.targets.files import load_target
from roundoff.run.integer.machine import IntegerRunner
from tests.golden_litert import golden_litert


def test_every_tensor_of_a_real_integer_run_is_reproduced_exactly(tmp_path: Path) -> None:
    golden = golden_litert(tmp_path)
    runner = IntegerRunner(golden.model, golden.quantizers, load_target("litert").arithmetic)

    codes = runner.run(golden.feed, golden.codes).codes

    wrong = {name: int((codes[name] != expected).sum()) for name, expected in golden.codes.items()}
    assert wrong == dict.fromkeys(golden.codes, 0)
    assert sum(expected.size for expected in golden.codes.values()) > 100_000
    assert runner.report.float_nodes == ()
    assert runner.report.overflows == ()
    assert runner.report.table_nodes == ("n15",)
