"""How numbers stand in files."""

import csv
import io
import math

import numpy as np

from roundoff.messages.numbers import csv_text


def test_a_cell_of_a_csv_file_has_all_digits_and_is_no_formula() -> None:
    rows = [[np.float64(0.1), np.float32(0.5), 3, None, True, (1.5, np.float64(2.0)), "=1+1", math.inf]]
    written = list(csv.reader(io.StringIO(csv_text(["=a", *"bcdefgh"], rows))))
    assert written == [
        ["'=a", *"bcdefgh"],
        ["0.1", "0.5", "3", "", "yes", "1.5 2.0", "'=1+1", "inf"],
    ]
