"""Tables of entries by name."""

import pytest

from roundoff.core.table import Table, summary_of
from roundoff.errors import BadInput


def test_entries_keep_their_order_and_are_found_by_name() -> None:
    table = Table("fruit", [("pear", 1), ("apple", 2)])
    table.add("fig", 3)
    assert table.names() == ("pear", "apple", "fig")
    assert (table.find("apple"), table["fig"], len(table), "plum" in table) == (2, 3, 3, False)
    with pytest.raises(BadInput, match="There is no fruit 'aple'") as caught:
        table.find("aple")
    assert "apple" in (caught.value.fix or "")


def test_a_name_is_taken_once_unless_it_is_replaced() -> None:
    table = Table("fruit", [("pear", 1)])
    with pytest.raises(ValueError, match="fruit 'pear' is registered twice"):
        table.add("pear", 2)
    table["pear"] = 2
    assert dict(table) == {"pear": 2}


def test_functions_are_registered_by_decoration() -> None:
    table: Table[str] = Table("step")

    @table.register("one", "two", make=summary_of)
    def work() -> int:
        """Does it.

        And more.
        """
        return 7

    assert dict(table) == {"one": "Does it.", "two": "Does it."}
    assert work() == 7


def test_what_adds_entries_is_loaded_when_they_are_first_read() -> None:
    loads = []

    def load() -> None:
        loads.append(1)
        table.add("late", 1)

    table: Table[int] = Table("fruit", load=load)
    table.add("early", 0)
    assert loads == []
    assert table.names() == ("early", "late")
    assert (table.find("late"), loads) == (1, [1])
