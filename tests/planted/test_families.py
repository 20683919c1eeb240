"""Networks of the planted suite are what they claim: healthy, different by seed, the same twice."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.pictures import CLASSES, pictures
from benchmarks.planted.subject import subject

from roundoff.graph.save import save_model

# What a healthy 8-bit network of these sizes keeps at least, in decibels.
HEALTHY_DB = 20.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_is_healthy_in_8_bits(family: str) -> None:
    network = subject(family, 0)
    assert network.healthy_db > HEALTHY_DB


@pytest.mark.parametrize("family", ["plain", "residual"])
def test_classes_are_learned(family: str) -> None:
    network = subject(family, 0)
    logits = network.values[network.model.proto.graph.output[0].name]
    assert np.mean(logits.argmax(axis=1) == network.built.labels) > 0.6 > 1 / CLASSES


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_network_and_another_one_another(family: str, tmp_path: Path) -> None:
    build = FAMILIES[family]
    files = []
    for number, seed in enumerate((5, 5, 6)):
        save_model(build(np.random.default_rng(seed)).model, tmp_path / f"{number}.onnx")
        files.append((tmp_path / f"{number}.onnx").read_bytes())
    assert files[0] == files[1] != files[2]


def test_activations_are_normalized() -> None:
    network = subject("plain", 1)
    spreads = [network.values[f"conv{index}_out"].std() for index in range(1, 6)]
    assert min(spreads) > 0.5
    assert max(spreads) < 2


def test_dark_pictures_are_narrower_than_others() -> None:
    usual, _ = pictures(np.random.default_rng(0), 20)
    dark, _ = pictures(np.random.default_rng(0), 20, brightness=-1.1)
    assert dark.std() < usual.std() / 2
    assert dark.max() < usual.max()
