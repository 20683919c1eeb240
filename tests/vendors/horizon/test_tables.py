"""Tables as the vendor's documents show them."""

from roundoff.vendors.horizon.sensitivity import framed_table, sensitivity_table


def test_the_first_generation() -> None:
    rows = [
        ("Conv_3", [0.999009567957658, 0.027825591154396534]),
        ("MaxPool_2", [0.9993462241612948, 0.017706592209064044]),
        ("MaxPool_12", [0.9999, 0.00012345678901234567]),
    ]
    lines = sensitivity_table("node", ["cosine-similarity", "mse"], rows, generation=1).splitlines()
    assert lines[0] == "==========================node=========================="
    assert lines[1] == "Node        cosine-similarity   mse"
    assert lines[2] == "-" * 56
    assert lines[3] == "Conv_3      0.999009567957658   0.027825591154396534"
    assert lines[4] == "MaxPool_2   0.9993462241612948  0.017706592209064044"


def test_the_later_generations() -> None:
    rows = [("Conv_60", [0.777951, 68.021034]), ("a_name_of_20_letters", [0.78428, 64.36318])]
    lines = sensitivity_table("node", ["cosine-similarity", "mse"], rows).splitlines()
    assert lines[0] == "=================node sensitivity================="
    assert lines[1] == "node                  cosine-similarity  mse"
    assert lines[2] == "-" * 51
    assert lines[3] == "Conv_60               0.77795            68.02103"


def test_a_title_longer_than_the_table() -> None:
    assert framed_table("a long title", ("n",), [("1",)]).splitlines()[0] == "=a long title="
