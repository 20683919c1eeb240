import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.messages.numbers import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512 B", 512),
        ("500MB", 500_000_000),
        ("500mb", 500_000_000),
        ("2GiB", 2 * 2**30),
        ("2G", 2 * 2**30),
        ("1.5 GB", 1_500_000_000),
        (".5kB", 500),
        (" 1 TB ", 10**12),
        ("3.MiB", 3 * 2**20),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "-1GB", "GB", "1XB", "1e9", "1,5GB", "nan", "0.1", "1 2 MB", "5GBs", "9" * 400 + "MB"]
)
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_size(text)

    assert caught.value.what == f"{text!r} is not a size."
    assert "500MB, 2GiB or 1.5GB" in caught.value.fix


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (123_456, "123 kB"),
        (999_600, "1.0 MB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_as_people_read_them(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(1, 10**15))
def test_what_is_shown_can_be_typed_and_means_nearly_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.051)
