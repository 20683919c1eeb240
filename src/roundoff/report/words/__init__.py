"""What is said to people, in every language: one catalogue, read by terminal and pages alike."""

from roundoff.report.words.catalogue import (
    LANGUAGES,
    Language,
    Phrase,
    explained,
    named,
    phrase_names,
    plain,
    say,
    speaking,
    spoken,
    told,
)

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "explained",
    "named",
    "phrase_names",
    "plain",
    "say",
    "speaking",
    "spoken",
    "told",
]
