"""Channels that are small against the largest value of their tensor."""
