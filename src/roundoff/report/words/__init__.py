"""What is said to people, in every language: one catalogue, read by terminal and pages alike."""

from roundoff.report.words.catalogue import LANGUAGES, Language, Phrase, explained, plain, say

__all__ = ["LANGUAGES", "Language", "Phrase", "explained", "plain", "say"]
