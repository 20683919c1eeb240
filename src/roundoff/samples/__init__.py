"""Samples: files of many kinds become what a model is fed."""

from roundoff.core import make_callable
from roundoff.samples.options import ImageOptions, SampleOptions
from roundoff.samples.sample_set import ArraySamples, SampleSet, open_samples

__all__ = ["ArraySamples", "ImageOptions", "SampleOptions", "SampleSet", "open_samples"]

make_callable(__name__)
