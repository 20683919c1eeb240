"""Random damage ends in a problem or a clear error, never in a traceback or a crash."""

import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.writer import open_writer


def make(folder: Path, kind: str) -> Path:
    """Write two small tensors and tell which file to damage."""
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False])}
    if kind == "safetensors":
        header = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
        text = json.dumps(header | {"b": {"dtype": "BOOL", "shape": [2], "data_offsets": [24, 26]}}).encode()
        values = b"".join(array.tobytes() for array in arrays.values())
        (folder / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + values)
        return folder / "x.safetensors"
    if kind in ("savez", "compressed"):
        (np.savez if kind == "savez" else np.savez_compressed)(folder / "x.npz", a=arrays["a"], b=arrays["b"])
        return folder / "x.npz"
    if kind == "csv":
        for name, array in arrays.items():
            (folder / f"{name}.bin").write_bytes(array.tobytes())
        (folder / "manifest.csv").write_text("name,dtype,shape,file\na,float32,2x3,a.bin\nb,bool,2,\n")
        return folder / "manifest.csv"
    with open_writer(folder, "npy" if kind == "npy" else "npz", samples=[""]) as writer:
        writer.begin_sample("")
        for name, array in arrays.items():
            writer.write(TensorInfo(name), array)
    return folder / {"npy": "a.npy", "map": "tensors.json"}[kind]


def read_everything(folder: Path) -> None:
    source = open_source(folder)
    for info in source.tensors:
        with contextlib.suppress(BadInput):
            values = source.read(info.name, source.samples[0])
            assert not info.problem
            assert values.shape == info.shape
            assert len(values.tobytes()) == values.nbytes  # touches every value


@pytest.mark.parametrize("kind", ["npy", "savez", "compressed", "safetensors", "map", "csv"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_survived(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = make(Path(scratch), kind)
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content))) :]
        for _ in range(data.draw(st.integers(0, 4))):
            if content:
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        with contextlib.suppress(BadInput):
            read_everything(Path(scratch))
