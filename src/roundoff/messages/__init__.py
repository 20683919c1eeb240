"""What is said to people, in every language: one catalogue, read by terminal and pages alike."""

from roundoff.messages.catalogue import (
    LANGUAGES,
    Language,
    Phrase,
    english_of,
    explained,
    in_all,
    named,
    phrase_names,
    plain,
    say,
    speaking,
    spoken,
    told,
)
from roundoff.messages.sentences import known, sentence

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "english_of",
    "explained",
    "in_all",
    "known",
    "named",
    "phrase_names",
    "plain",
    "say",
    "sentence",
    "speaking",
    "spoken",
    "told",
]
