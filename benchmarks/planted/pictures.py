"""Pictures made in code that are like photographs where it matters: smooth, of one colour cast, mid-grey."""

import numpy as np

from roundoff.core.tensors import Array

CLASSES = 6
# The power of photographs falls with about the square of the frequency (Field 1987).
_AMPLITUDE_EXPONENT = 1.0
_GRATING = 1.1


def pictures(
    rng: np.random.Generator, count: int, *, size: int = 20, brightness: float = 0.0
) -> tuple[Array, Array]:
    """Normalized pictures (count, 3, size, size), float32, and their classes (count,).

    A class is the direction of a faint grating of random phase, contrast and wavelength on a cloudy background.

    Args:
        rng: Source of chance.
        count: How many.
        size: Height and width.
        brightness: Added to all pixels; negative for pictures taken at night, which also have little contrast.
    """
    labels = np.arange(count) % CLASSES
    rng.shuffle(labels)
    contrast = 1.0 if brightness == 0 else 0.25
    clouds = _clouds(rng, (count, 3, size, size))
    rows, columns = np.mgrid[:size, :size]
    angle = (np.pi * labels / CLASSES + rng.normal(0, 0.06, count))[:, None, None]
    wave = rng.uniform(4.2, 5.4, count)[:, None, None]
    phase = rng.uniform(0, 2 * np.pi, count)[:, None, None]
    along = rows * np.sin(angle) + columns * np.cos(angle)
    grating = np.sin(2 * np.pi * along / wave + phase) * rng.uniform(0.8, 1.2, count)[:, None, None]
    tint = rng.uniform(0.7, 1.3, (count, 3, 1, 1))
    values = contrast * (0.55 * clouds + _GRATING * tint * grating[:, None]) + brightness
    return values.clip(-2.2, 2.6).astype(np.float32), labels.astype(np.int64)


def _clouds(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Noise with the spectrum of photographs, its channels alike, each picture of variance one."""
    size = shape[-1]
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None])
    frequency[0, 0] = 1.0 / size
    noise = rng.standard_normal(shape) * 0.5 + rng.standard_normal((shape[0], 1, *shape[2:]))
    filtered = np.fft.irfft2(np.fft.rfft2(noise) / frequency**_AMPLITUDE_EXPONENT, s=shape[2:])
    return np.asarray(filtered / filtered.std(axis=(1, 2, 3), keepdims=True))
