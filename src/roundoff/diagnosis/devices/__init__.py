"""What is wrong on a device: each part of a network is fed what the device fed it, and compared with its dump."""

from roundoff.diagnosis.devices.study import diagnose_device

__all__ = ["diagnose_device"]
