"""The path by which scripts of earlier versions import `load_config`."""

from roundoff.vendors.pulsar2.config.files import load_config

__all__ = ["load_config"]
