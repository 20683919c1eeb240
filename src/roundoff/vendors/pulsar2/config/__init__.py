"""The vendor's build configuration: read from any of its four formats, checked, written back."""
