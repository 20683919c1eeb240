"""Tables as Pulsar2 prints them: rows in, text out."""

from roundoff.vendors.pulsar2.tables.configuration import (
    LayerConfigRow,
    QuantConfigRow,
    layer_config_table,
    quant_config_table,
)
from roundoff.vendors.pulsar2.tables.outliers import OutlierTableRow, outlier_table
from roundoff.vendors.pulsar2.tables.precision import PrecisionRow, precision_table
from roundoff.vendors.pulsar2.tables.rendering import NATURAL

__all__ = [
    "NATURAL",
    "LayerConfigRow",
    "OutlierTableRow",
    "PrecisionRow",
    "QuantConfigRow",
    "layer_config_table",
    "outlier_table",
    "precision_table",
    "quant_config_table",
]
