"""Tests of the facade for Ascend."""
