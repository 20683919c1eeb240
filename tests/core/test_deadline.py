"""Until when work may go on."""

import math

from roundoff.core.progress import NO_DEADLINE, Deadline


def test_what_fits_into_the_time_that_is_left_is_allowed() -> None:
    now = [10.0]
    deadline = Deadline.after(5, clock=lambda: now[0])
    assert (deadline.left, deadline.given) == (5, 5)
    assert deadline.allows(4.9)
    assert not deadline.allows(5)
    now[0] = 16
    assert deadline.left == -1
    assert not deadline.allows(0)


def test_it_may_have_begun_earlier() -> None:
    assert Deadline.after(5, start=2, clock=lambda: 3.0).left == 4


def test_without_an_end_everything_is_allowed() -> None:
    assert Deadline.after(None).left == NO_DEADLINE.left == math.inf
    assert NO_DEADLINE.allows(1e9)


def test_a_share_is_of_what_is_left() -> None:
    now = [10.0]
    deadline = Deadline.after(8, clock=lambda: now[0])
    now[0] = 12
    assert (deadline.share(0.5).at, deadline.share(0.5).given) == (15, 8)
    now[0] = 20
    assert deadline.share(0.5).left == 0
    assert NO_DEADLINE.share(0.5).left == math.inf
