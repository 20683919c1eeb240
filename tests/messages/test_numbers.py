"""How numbers stand in files."""

import csv
import io
import math

import numpy as np
import pytest

from roundoff.messages.numbers import csv_text, percent_number


def test_a_cell_of_a_csv_file_has_all_digits_and_is_no_formula() -> None:
    rows = [[np.float64(0.1), np.float32(0.5), 3, None, True, (1.5, np.float64(2.0)), "=1+1", math.inf]]
    written = list(csv.reader(io.StringIO(csv_text(["=a", *"bcdefgh"], rows))))
    assert written == [
        ["'=a", *"bcdefgh"],
        ["0.1", "0.5", "3", "", "yes", "1.5 2.0", "'=1+1", "inf"],
    ]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0012, "0.12"),
        (0.42, "42"),
        (0.994, "99"),
        (0.9962, "99.6"),
        (0.99999, "99.9"),
        (1, "100"),
        (20, "2000"),
        (0, "0"),
    ],
)
def test_a_large_share_has_no_exponent(share: float, text: str) -> None:
    assert percent_number(share) == text
