"""Both sides of a failing sample as pictures."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from roundoff.core.tensors import Array
from roundoff.studies.check_io.study import StageValues, check_io, side_pictures


def read(png: str) -> Array:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))))


def test_the_worst_sample_is_shown_as_each_side_has_it() -> None:
    fine = np.linspace(0, 1, 3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8)
    wrong = fine.copy()
    wrong[0, :, :4] = 0
    both = np.concatenate([fine, fine]), np.concatenate([fine, wrong])
    found = check_io({"preprocessed": StageValues(("batch",), (both[0],), (both[1],))})
    (stage,) = found.stages
    one, other = (read(each.png) for each in stage.pictures)
    assert [each.side for each in stage.pictures] == ["training", "deployed"]
    assert one.shape == other.shape == (8, 8, 3)
    assert one[-1, -1].tolist() == other[-1, -1].tolist()
    assert not other[:4].any()


def test_what_agrees_or_is_an_output_is_not_shown() -> None:
    picture = np.ones((1, 3, 8, 8), np.float32)
    same = check_io({"preprocessed": StageValues(("a",), (picture,), (picture,))})
    output = check_io({"output": StageValues(("a",), (picture,), (picture + 1,))})
    assert [stage.pictures for stage in (*same.stages, *output.stages)] == [(), ()]


@pytest.mark.parametrize("shape", [(10,), (1, 5, 8, 8), (2, 3, 8, 8), (3, 2, 8), (1, 1, 1, 9)])
def test_what_is_no_picture_is_not_shown(shape: tuple[int, ...]) -> None:
    assert side_pictures(np.zeros(shape), np.zeros(shape)) == ()


@pytest.mark.parametrize("shape", [(300, 200), (300, 200, 3), (3, 300, 200), (1, 1, 300, 200)])
def test_large_ones_get_small_and_odd_values_do_not_stop_it(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    values.flat[:3] = np.nan, np.inf, -np.inf
    one, other = side_pictures(values, np.zeros(shape))
    assert max(read(one.png).shape[:2]) <= 128
    assert not read(other.png).any()
    assert side_pictures(values, np.full(shape, np.nan)) == ()
