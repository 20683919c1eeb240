"""What is said to people, in every language: one catalogue, read by terminal and pages alike."""

from roundoff.messages.catalogue import (
    LANGUAGES,
    Language,
    Phrase,
    bilingual,
    current_language,
    english_of,
    explained,
    in_all,
    named,
    phrase_names,
    plain,
    translate,
    use_language,
)
from roundoff.messages.sentences import known, sentence

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "bilingual",
    "current_language",
    "english_of",
    "explained",
    "in_all",
    "known",
    "named",
    "phrase_names",
    "plain",
    "sentence",
    "translate",
    "use_language",
]
