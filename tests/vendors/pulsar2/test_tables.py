import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from roundoff.vendors.pulsar2.tables import (
    OutlierTableRow,
    PrecisionRow,
    QuantConfigRow,
    layer_config_table,
    outlier_table,
    precision_table,
    quant_config_table,
)
from tests.vendors.pulsar2.published import published, table_rows

IMAGES = QuantConfigRow(
    input="input",
    shape=(1, 3, 224, 224),
    directory="input",
    data_format="Image",
    tensor_format="BGR",
    mean=(103.939, 116.779, 123.68),
    std=(58, 58, 58),
)


def lines_of(text: str) -> list[str]:
    return text.split("\n")


def same_body(ours: str, theirs: list[str]) -> None:
    """Equal but for the blanks in front of the title: the manual's tables were edited under their titles."""
    title, *body = lines_of(ours)
    assert body == theirs[1:]
    assert title.strip() == theirs[0].strip()


# Ours -----------------------------------------------------------------------------------------------------------


def test_precision_table() -> None:
    rows = [
        PrecisionRow("conv", "AxQuantizedConv", "x", (1, 8, 4, 4), "FP32", "U8", 0.99912, 0.00027),
        PrecisionRow("y_Dequantize", "AxReshape", "y", (1, 10), "FP32", "FP32", None, None),
    ]
    assert lines_of(precision_table(rows, method="EndToEnd", mode="NPUBackend")) == [
        "                             Quant Precision Table【EndToEnd NPUBackend】",
        "┏━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓",
        "┃ Operator     ┃      Type       ┃ Output Tensor ┃    Shape     ┃ DType ┃ QDType ┃ Cosin   ┃ MSE     ┃",
        "┡━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩",
        "│ conv         │ AxQuantizedConv │ x             │ (1, 8, 4, 4) │ FP32  │   U8   │ 0.99912 │ 0.00027 │",
        "├──────────────┼─────────────────┼───────────────┼──────────────┼───────┼────────┼─────────┼─────────┤",
        "│ y_Dequantize │    AxReshape    │ y             │   (1, 10)    │ FP32  │  FP32  │ None    │ None    │",
        "└──────────────┴─────────────────┴───────────────┴──────────────┴───────┴────────┴─────────┴─────────┘",
    ]


def test_layer_config_table() -> None:
    rows = [("Softmax", "FP32"), ("block.0/attention", "S16")]
    assert lines_of(layer_config_table(rows)) == [
        "         Layer Config Table",
        "┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓",
        "┃ Op Type / Layer name ┃ Precision ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━┩",
        "│ Softmax              │ FP32      │",
        "├──────────────────────┼───────────┤",
        "│ block.0/attention    │ S16       │",
        "└──────────────────────┴───────────┘",
    ]


def test_numbers_are_those_of_float32_in_full() -> None:
    assert "0.8999999761581421" in outlier_table([OutlierTableRow("t", 0.0, (0.9, 0.5, 0.25, 0.0))])
    assert "[]" in quant_config_table([QuantConfigRow("x", (1, 4), "d", "Numpy", "AutoColorSpace")])


def test_a_name_with_markup_is_shown_as_it_is() -> None:
    assert "[red]x[/red]" in layer_config_table([("[red]x[/red]", "U16")])


@given(st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1), min_size=1), st.data())
def test_no_line_is_wider_than_the_terminal(names: list[str], data: st.DataObject) -> None:
    width = data.draw(st.integers(40, 200))
    text = layer_config_table([(name, "U16") for name in names], width=width)
    assert max(map(cell_len, lines_of(text))) <= width


# Published ------------------------------------------------------------------------------------------------------


def test_published_precision_table_of_eight_columns() -> None:
    text = published("tables/quant_precision_table_perlayer_8col.txt")
    rows = [
        PrecisionRow(name, kind, tensor, ast.literal_eval(shape), dtype, qdtype, float(cosine), float(mse))
        for name, kind, tensor, shape, dtype, qdtype, cosine, mse in table_rows(text)
    ]
    assert len(rows) > 50
    table = [line for line in lines_of(text) if " | INFO " not in line]
    same_body(precision_table(rows, method="PerLayer", mode="Reference"), table)


def test_published_tables_of_the_configuration() -> None:
    text = lines_of(published("tables/quant_config_and_layer_config_table.txt"))
    second = next(place for place, line in enumerate(text) if "Layer Config Table" in line)
    assert lines_of(quant_config_table([IMAGES])) == text[:second]
    layers = [("Add", "U16"), ("conv6_4", "U16")]
    same_body(layer_config_table(layers), text[second:])


def test_published_table_in_a_terminal_of_80_columns() -> None:
    from dataclasses import replace

    text = lines_of(published("tables/build_log_quant_part.txt"))
    first = next(place for place, line in enumerate(text) if "Quant Config Table" in line)
    last = next(place for place, line in enumerate(text) if line.startswith("└"))
    row = replace(IMAGES, directory="output/quant/dataset/input")
    assert lines_of(quant_config_table([row], width=80)) == text[first : last + 1]


def test_published_outlier_table() -> None:
    text = published("tables/outlier_ratio_table.txt")
    rows = [OutlierTableRow(name, float(sparse), [*map(float, more)]) for name, sparse, *more in table_rows(text)]
    # The excerpt ends before the rows that made three of its columns as wide as they are.
    longest = OutlierTableRow("n" * 40, 0.0, (0.5, *(1 / 768,) * 3))
    drawn = lines_of(outlier_table([*rows, longest], width=len(lines_of(text)[1])))
    assert drawn[: len(lines_of(text))] == lines_of(text)


@pytest.mark.parametrize("width", [80, 160])
def test_figures_survive_narrow_terminals(width: int) -> None:
    row = PrecisionRow("a/long/name" * 9, "AxQuantizedConv", "t" * 99, (1, 3), "FP32", "U8", 0.5, 0.25)
    text = precision_table([row], method="PerLayer", mode="Reference", width=width)
    assert "0.50000" in text
    assert "0.25000" in text
