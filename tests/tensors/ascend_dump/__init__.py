"""Tests of the reader of Ascend dumps."""
