"""Names that RKNN-Toolkit2 gives to tensors it moves, and to products that hold what is folded into them."""

from pathlib import Path

import numpy as np

from roundoff.align.alignment import align
from roundoff.align.swapped import swapped_names
from roundoff.tensors import open_source
from roundoff.tensors.stored import MappingSource


def test_products_hold_their_bias_and_copies_are_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 6, 8)).astype(np.float32)
    ours = {"x": x}
    for name in "qkv":
        ours[f"mm_{name}"] = x @ rng.standard_normal((8, 8)).astype(np.float32)
        ours[name] = ours[f"mm_{name}"] + rng.standard_normal(8).astype(np.float32)
    # The tool runs them the other way round, with the bias inside and the axes in another order.
    names = {"x": x, "x_tp-rs": x.transpose(0, 2, 1)[:, :, None]}
    names |= {f"mm_{name}_mm_tp_sw": ours[name].transpose(0, 2, 1)[:, :, None] for name in "vkq"}
    (tmp_path / "simulator" / "npy").mkdir(parents=True)
    lines = ["layer_name  file_name"]
    for name, values in names.items():
        np.save(tmp_path / "simulator" / "npy" / f"{name}.npy", values)
        lines.append(f"{name}  {name}.npy")
    (tmp_path / "map_name_to_file.txt").write_text("\n".join(lines))
    theirs = open_source(tmp_path)
    pairing = align(MappingSource(ours, label="ours"), theirs)
    found = {pair.reference: pair.candidate for pair in pairing.pairs}
    assert {name: found.get(name) for name in "qkv"} == {name: f"mm_{name}_mm_tp_sw" for name in "qkv"}
    assert found["x"] == "x"
    assert "x_tp-rs" in pairing.copies
    # What nobody is called is swapped with nobody.
    assert swapped_names(MappingSource(ours, label="ours").tensors, theirs.tensors, found) == []


def test_outputs_alone_that_are_exchanged() -> None:
    """Names letter by letter the reference's say it; numbers may be a compiler's own."""
    shape = (1, 4, 8, 8)
    rng = np.random.default_rng(5)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name in ("boxes", "scores", "inner")}
    ours = MappingSource(values, label="ours").tensors
    theirs = MappingSource({name: values[name] for name in ("boxes", "scores")}, label="theirs").tensors
    crossed = {"boxes": "scores", "scores": "boxes"}
    assert swapped_names(ours, theirs, crossed) == [("boxes", "scores")]
    numbers = MappingSource(dict.fromkeys(("7", "9"), values["boxes"]), label="numbers").tensors
    assert swapped_names(numbers, numbers, {"7": "9", "9": "7"}) == []


def test_operations_that_are_called_after_what_they_read_are_no_copies(tmp_path: Path) -> None:
    """The tool's own analysis says what computes a layer; a part of a split convolution is of no tensor."""
    values = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    layers = {"c": "Conv", "c_sw": "PRelu", "c_tp": "Transpose", "c_conv": "Conv"}
    (tmp_path / "simulator" / "npy").mkdir(parents=True)
    for place, name in enumerate(layers):
        np.save(tmp_path / "simulator" / "npy" / f"{name}.npy", values + place)
    lines = [f"{name} {name}.npy" for name in ("layer_name file_name", *layers)][1:]
    (tmp_path / "map_name_to_file.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = [f"[{kind}] {name}  1.00000 | 0.1  1.00000 | 0.1" for name, kind in layers.items()]
    (tmp_path / "error_analysis.txt").write_text("\n".join(rows), encoding="utf-8")
    found = {info.name: (info.copy_of, info.op_type) for info in open_source(tmp_path).tensors}
    assert found["c_sw"] == ("", "PRelu")
    assert found["c_tp"][0] == "c"
    assert found["c_conv"] == ("c", "Conv")
