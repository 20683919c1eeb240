import argparse

import pytest

from roundoff.cli.options import positive, size, threads


def test_sizes_and_counts() -> None:
    assert size("2GiB") == 2 * 2**30
    assert positive("12") == 12
    assert threads("1024") == 1024


@pytest.mark.parametrize("text", ["lots", "0"])
def test_a_size_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=rf"'{text}' is not a size\. write it like 500MB"):
        size(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "²"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 on"):
        positive(text)


def test_more_threads_than_any_machine_has_are_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1025 is more than the 1024 threads that make sense"):
        threads("1025")
