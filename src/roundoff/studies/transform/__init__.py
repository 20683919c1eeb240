"""Transforms and corrections on trial."""
