"""Numbers of things in words."""

from roundoff.messages.numbers import counted, nonfinite_note


def test_one_is_singular() -> None:
    assert [counted(number, "tensor") for number in (0, 1, 2)] == ["0 tensors", "1 tensor", "2 tensors"]


def test_what_is_not_finite_is_named() -> None:
    assert nonfinite_note("tensor", ()) == ()
    said = "with NaN or infinite values, which are left out"
    assert [str(each) for each in nonfinite_note("tensor", ["a"])] == [f"1 tensor {said}: a"]
    assert [str(each) for each in nonfinite_note("tensor", list("abcd"))] == [f"4 tensors {said}: a, b, c ..."]
