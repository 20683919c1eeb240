"""Samples: files of many kinds become what a model is fed."""

from roundoff.data.arrays import ArraySamples
from roundoff.data.options import ImageOptions, SampleOptions
from roundoff.data.samples import SampleSet, open_samples

__all__ = ["ArraySamples", "ImageOptions", "SampleOptions", "SampleSet", "open_samples"]
