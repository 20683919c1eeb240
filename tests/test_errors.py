"""What errors say, and which name they think was meant."""

import pickle  # noqa: TID251  what our own processes hand each other
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.case.minimal import NotLocal
from roundoff.errors import BadInput, CannotAlign, MissingExtra, ModelFailed, RoundoffError, StepFailed, nearest
from roundoff.messages.message import as_message, english
from roundoff.run.executors import PieceFailed
from roundoff.vendors.ascend.errors import Code, Refused

MANY = [f"/features/{number}/Conv_output" for number in range(2000)]


def test_an_error_says_what_failed_and_how_to_go_on() -> None:
    error = BadInput("a.npy is empty.", fix="write it again")
    assert str(error) == "a.npy is empty.\nfix: write it again"
    assert (error.what, error.fix) == ("a.npy is empty.", "write it again")


def test_a_missing_package_names_the_extra_that_brings_it() -> None:
    error = MissingExtra("Drawing pictures", package="matplotlib", extra="plots")
    assert str(error) == (
        "Drawing pictures needs the package 'matplotlib', which is not installed.\n"
        "fix: pip install 'roundoff[plots]'"
    )


@pytest.mark.parametrize(("kind", "code"), [(RoundoffError, 2), (BadInput, 2), (CannotAlign, 3), (ModelFailed, 4)])
def test_every_error_has_its_exit_code(kind: type[RoundoffError], code: int) -> None:
    assert kind("what", fix="fix").exit_code == code


def _kinds(kind: type[RoundoffError] = RoundoffError) -> Iterator[type[RoundoffError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


# What those are made of that take something else than what failed and a fix.
_MADE: dict[type[RoundoffError], Callable[[str, str], RoundoffError]] = {
    MissingExtra: lambda what, fix: MissingExtra(what, package=fix, extra="plots"),
    StepFailed: StepFailed,
    PieceFailed: lambda what, fix: PieceFailed(what, fix=fix, kind="time"),
    Refused: lambda what, fix: Refused(what, fix=fix, code=Code.SHAPE),
}


@given(st.data(), st.text(max_size=9), st.text(max_size=9))
def test_an_error_of_any_kind_comes_whole_from_another_process(data: st.DataObject, what: str, fix: str) -> None:
    assert {NotLocal, PieceFailed, Refused} <= set(_kinds())
    kind = data.draw(st.sampled_from([each for each in _kinds() if each.__module__.startswith("roundoff.")]))
    made = _MADE.get(kind)
    told = english("{what} failed", what=what)
    error = kind(told, fix=fix) if made is None else made(told, fix)
    there = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(there) is kind
    assert (str(there), there.args, dict(vars(there))) == (str(error), error.args, dict(vars(error)))
    assert there.exit_code == error.exit_code
    assert as_message(there.what) == as_message(error.what)


@pytest.mark.parametrize(
    ("name", "choices", "said"),
    [
        ("cosin", ["mse", "cosine"], "did you mean 'cosine'?"),
        ("NPZ", ["npy", "npz"], "did you mean 'npz'?"),
        ("relu", ["Relu", "pool"], "did you mean 'Relu'?"),
        ("xyz", ["b", "a", "A"], "choose one of: b, a, A"),
        ("xyz", ["", "a"], "choose one of: '', a"),
        ("xyz", [], "there is nothing to choose from"),
    ],
)
def test_the_name_that_was_probably_meant(name: str, choices: list[str], said: str) -> None:
    assert nearest(name, iter(choices)) == said


def test_ten_choices_are_listed_in_their_order_and_more_are_cut_to_the_nearest() -> None:
    letters = [letter * 3 for letter in "jihgfedcba"]
    assert nearest("xyz", letters) == f"choose one of: {', '.join(letters)}"
    assert nearest("xyz", [*letters, "y", "wz"]) == (
        "choose one of: y, wz, aaa, bbb, ccc, ddd, eee, fff, ggg, hhh ... and 2 more"
    )


def test_thousands_of_names_fit_into_one_line() -> None:
    said = nearest("conv", MANY)
    assert said.startswith("choose one of: /features/")
    assert said.endswith(" ... and 1990 more")
    assert said.count(", ") == 9


@given(st.text(max_size=8), st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=30))
def test_what_is_suggested_exists_and_nothing_goes_uncounted(name: str, choices: list[str]) -> None:
    said = nearest(name, choices)
    if said.startswith("did you mean"):
        assert any(said == f"did you mean {choice!r}?" for choice in choices)
    elif len(choices) <= 10:
        assert said == (f"choose one of: {', '.join(choices)}" if choices else "there is nothing to choose from")
    else:
        listed, more = said.removeprefix("choose one of: ").removesuffix(" more").rsplit(" ... and ", 1)
        assert int(more) >= len(choices) - 10
        assert sum(choice in listed for choice in choices) >= len(choices) - int(more)
