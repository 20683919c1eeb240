import pytest

from roundoff.errors import BadInput
from roundoff.quantize.calibration.methods import MethodOption, all_methods, get_method, method, options_of


def test_all_methods_are_known() -> None:
    assert [each.name for each in all_methods()] == ["minmax", "percentile", "mse", "entropy", "ifmr", "hfmg"]


def test_unknown_method() -> None:
    with pytest.raises(BadInput, match="There is no calibration method 'precentile'") as caught:
        get_method("precentile")
    assert caught.value.fix == "did you mean 'percentile'?"


def test_options_of_other_methods_are_allowed() -> None:
    given = {"percentile": 0.99, "num_of_bins": 1024}
    assert options_of(get_method("hfmg"), given) == {"num_of_bins": 1024}
    assert options_of(get_method("percentile"), None) == {"percentile": 0.9999}
    assert options_of(get_method("minmax"), given) == {}


def test_unknown_option() -> None:
    with pytest.raises(BadInput, match="No calibration method has an option 'num_bins'") as caught:
        options_of(get_method("minmax"), {"num_bins": 1})
    assert caught.value.fix == "did you mean 'num_of_bins'?"


def test_option_out_of_bounds() -> None:
    with pytest.raises(BadInput, match="The option num_of_bins is 1; it is the number of bins") as caught:
        options_of(get_method("hfmg"), {"num_of_bins": 1})
    assert caught.value.fix == "give a number from 16 to 65536"


def test_names_are_taken_once() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        method("minmax")(get_method("minmax").compute)
    with pytest.raises(ValueError, match="registered twice"):
        method("mine", percentile=MethodOption(1, 0, 1, "taken"))(get_method("minmax").compute)
