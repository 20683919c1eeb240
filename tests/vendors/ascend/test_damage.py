"""Whatever is wrong with the files, a comparison ends in rows or in a message."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.cli import main
from tests.vendors.ascend.networks import Sides, write_sides


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return write_sides(tmp_path_factory.mktemp("damage") / "sides")


@given(data=st.data())
@settings(
    max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
def test_damage_never_ends_in_a_traceback(
    sides: Sides, data: st.DataObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(sides.folder)
    files = sorted([*(folder / "npu").iterdir(), *(folder / "float").iterdir(), folder / "on.json"])
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content), 200) - 1))] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        for words in (
            ["-g", sides.float, "-f", sides.on, "-overflow_detection"],
            ["-g", sides.npu_off],
            ["-g", sides.float, "-f", sides.on, "-op", "fc1"],
        ):
            code = main(["ascend", "compare", "-m", sides.npu, *words, "-out", str(tmp_path / "out")])
            assert 0 <= code <= 48
            assert "Traceback" not in capsys.readouterr().err
    finally:
        path.write_bytes(whole)
