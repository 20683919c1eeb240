"""What an Ascend dump says about itself: operator, tensors, formats and types by their numbers."""

from dataclasses import dataclass, field

__all__ = [
    "ELEMENT_TYPES",
    "FORMATS",
    "FORMAT_NUMBERS",
    "GE_TYPES",
    "NOWHERE",
    "Blob",
    "Dump",
    "DumpTensor",
    "format_name",
]

NOWHERE = -1
"""Offset of a tensor that the device left out of the file, because it had no address."""

ELEMENT_TYPES = (
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64",
    "BOOL", "DOUBLE", "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16",
    "QINT32", "QUINT8", "QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "INT4", "UINT1", "INT2",
    "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2",
    "FLOAT6_E2M3", "FLOAT4_E2M1", "FLOAT4_E1M2",
)  # fmt: skip
"""Element types by the number that a dump gives them."""

GE_TYPES = (
    "FLOAT", "FLOAT16", "INT8", "INT32", "UINT8", None, "INT16", "UINT16", "UINT32", "INT64", "UINT64", "DOUBLE",
    "BOOL", "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16", "QINT32",
    "QUINT8", "QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "UNDEFINED", "INT4", "UINT1", "INT2",
    "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2", "FLOAT6_E2M3",
    "FLOAT4_E2M1", "FLOAT4_E1M2",
)  # fmt: skip
"""Element types by the number of the graph engine, which the small variant of the format uses."""

FORMATS = {
    **dict(enumerate((
        "NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW", "FRACTAL_DECONV",
        "C1HWNC0", "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS", "NC1HWC0_C04", "FRACTAL_Z_C04",
        "CHWN", "FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK",
        "HASHTABLE_LOOKUP_LOOKUPS", "HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT",
        "HASHTABLE_LOOKUP_HITS", "C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN",
        "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC", "DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM",
        "FRACTAL_Z_G", "RESERVED", "ALL", "NULL", "ND_RNN_BIAS", "FRACTAL_ZN_RNN", "YUV", "YUV_A", "NCL",
        "FRACTAL_Z_WINO", "C1HWC0",
    ))),
    255: "MAX",
}  # fmt: skip
"""Names of memory formats by their number."""

FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}


def format_name(number: int) -> str:
    """The name of a memory format; ``FORMAT_99`` for one that is not known."""
    return FORMATS.get(number, f"FORMAT_{number}")


@dataclass(frozen=True, slots=True)
class DumpTensor:
    """One input or output of the dumped operator, as the header describes it.

    Attributes:
        role: ``input`` or ``output``.
        index: Its place among the inputs or outputs.
        element_type: Name of its element type in `ELEMENT_TYPES`.
        format: Name of the memory format.
        shape: Shape in that format, padding included.
        original_shape: Shape before the compiler changed the format; empty when the dump does not say.
        groups: Groups of a grouped convolution; 0 and 1 mean none.
        address: Address on the device; 0 when unknown.
        size: Bytes it takes in the file.
        offset: Where they begin in the file; `NOWHERE` when the device left them out.
        origin: Name and output of the operator before fusion, when the dump says so.
    """

    role: str
    index: int
    element_type: str
    format: str
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    groups: int
    address: int
    size: int
    offset: int
    origin: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes without a type: a buffer or a workspace of the operator."""

    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Dump:
    """The header of one dump file.

    Attributes:
        op_name: The operator, in the model's own spelling; empty when the dump does not say.
        version: Version of the format.
        time: When it was dumped, in microseconds.
        inputs: Its inputs.
        outputs: Its outputs.
        buffers: Copies of the L1 buffer.
        spaces: Workspaces.
        attributes: Text by name; FFTS+ keeps its slices there.
        message: Free text of the runtime.
        missing: Bytes that the header promises and the file lacks.
        extra: Bytes behind the last one that the header speaks of.
    """

    op_name: str = ""
    version: str = ""
    time: int = 0
    inputs: tuple[DumpTensor, ...] = ()
    outputs: tuple[DumpTensor, ...] = ()
    buffers: tuple[Blob, ...] = ()
    spaces: tuple[Blob, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    message: str = ""
    missing: int = 0
    extra: int = 0

    @property
    def tensors(self) -> tuple[DumpTensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)
