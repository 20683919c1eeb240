"""Delta debugging over sets."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from roundoff.case.minimal import shrink


@given(size=st.integers(1, 60), data=st.data())
def test_what_is_needed_is_found_wherever_it_is(size: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4))
    found = shrink(range(size), needed.issubset)
    assert found == sorted(needed)


@given(size=st.integers(1, 40), data=st.data())
def test_no_member_can_be_left_out(size: int, data: st.DataObject) -> None:
    """Whatever shows it, as long as everything together does."""
    groups = data.draw(st.lists(st.sets(st.integers(0, size - 1), min_size=1, max_size=4), min_size=1, max_size=4))

    def shows(items: Sequence[int]) -> bool:
        return any(group <= set(items) for group in groups)

    found = shrink(range(size), shows)
    assert shows(found)
    assert not any(shows([item for item in found if item != left]) for left in found)


def test_nothing_is_tried_twice() -> None:
    tried: list[tuple[int, ...]] = []

    def shows(items: Sequence[int]) -> bool:
        tried.append(tuple(items))
        return {3, 11} <= set(items)

    assert shrink(range(16), shows) == [3, 11]
    assert len(tried) == len(set(tried))
    assert len(tried) < 60
