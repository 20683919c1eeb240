"""Every shipped format keeps the contract."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from roundoff.core.tensors import Array, TensorInfo
from roundoff.tensors.writer import open_writer
from tests.contracts.format_contract import FormatContract


def truncate(path: Path, *, by: int = 1) -> None:
    path.write_bytes(path.read_bytes()[:-by])


class TestNpyFolder(FormatContract):
    format = "npy"
    names = ("block/conv2", "block/conv10", "fc")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        for name, array in tensors.items():
            (folder / f"{name}.npy").parent.mkdir(exist_ok=True)
            np.save(folder / f"{name}.npy", array)
        return folder

    def damage(self, path: Path, name: str) -> None:
        truncate(path / f"{name}.npy")


class TestNpzFile(FormatContract):
    format = "npz"

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        np.savez(folder / "dump.npz", **dict[str, Any](tensors))
        return folder / "dump.npz"

    def damage(self, path: Path, name: str) -> None:
        content = path.read_bytes()
        member = content.index(f"{name}.npy".encode())
        at = content.index(b"'descr'", member)
        path.write_bytes(content[:at] + b"'DESCR'" + content[at + 7 :])


class TestCompressedNpzFile(TestNpzFile):
    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        np.savez_compressed(folder / "dump.npz", **dict[str, Any](tensors))
        return folder / "dump.npz"

    def damage(self, path: Path, name: str) -> None:
        content = bytearray(path.read_bytes())
        data = content.index(f"{name}.npy".encode()) + len(f"{name}.npy") + 20
        content[data : data + 8] = b"\xff" * 8
        path.write_bytes(content)


class TestRawFolder(FormatContract):
    format = "bin"

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        entries = {}
        for name, array in tensors.items():
            (folder / f"{name}.bin").write_bytes(array.tobytes())
            entries[name] = {"dtype": array.dtype.name, "shape": list(array.shape)}
        (folder / "manifest.json").write_text(json.dumps(entries))
        return folder

    def damage(self, path: Path, name: str) -> None:
        truncate(path / f"{name}.bin")


class TestSafetensorsFile(FormatContract):
    format = "safetensors"

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        save_file(dict(tensors), folder / "dump.safetensors")
        return folder / "dump.safetensors"

    def damage(self, path: Path, name: str) -> None:
        content = path.read_bytes()
        at = content.index(b'"dtype"', content.index(f'"{name}"'.encode()))
        path.write_bytes(content[:at] + b'"DTYPE"' + content[at + 7 :])


class TestAscendFolder(FormatContract):
    format = "ascend-npy"
    names = ("conv2.0", "conv10.0", "fc.1")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        for moment, (name, array) in enumerate(tensors.items(), start=1_700_000_000_000_000):
            np.save(folder / f"{name}.{moment}.npy", array)
        return folder

    def damage(self, path: Path, name: str) -> None:
        truncate(next(path.glob(f"{name}.*.npy")))


class TestOwnDump(FormatContract):
    format = "npy"
    names = ("/model/conv 2:0", "CON", "")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        with open_writer(folder, "npy", samples=[""]) as writer:
            writer.begin_sample("")
            for name, array in tensors.items():
                writer.write(TensorInfo(name), array)
        return folder

    def damage(self, path: Path, name: str) -> None:
        truncate(path / "_model_conv_2_0.npy")
