"""The public names exist, are what they say, and the three lists of them agree."""

import ast
import inspect

import pytest

import roundoff


@pytest.mark.parametrize("name", roundoff.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    value = getattr(roundoff, name)
    assert (inspect.getdoc(value) or "").strip()


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(roundoff))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(roundoff.__all__) == set(roundoff._HOMES)


def test_no_public_name_is_hidden_by_a_package() -> None:
    for name in roundoff.__all__:
        assert not inspect.ismodule(getattr(roundoff, name)), name


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        roundoff.compair  # noqa: B018
