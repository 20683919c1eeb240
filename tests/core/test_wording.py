"""Numbers of things in words."""

from roundoff.core.wording import counted


def test_one_is_singular() -> None:
    assert [counted(number, "tensor") for number in (0, 1, 2)] == ["0 tensors", "1 tensor", "2 tensors"]
