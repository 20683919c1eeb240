"""What is said to people, in every language: one catalogue, read by terminal and pages alike."""

from roundoff.messages.catalogue import (
    LANGUAGES,
    Language,
    Phrase,
    bilingual,
    current_language,
    english_of,
    explained,
    in_all_languages,
    named,
    phrase_names,
    plain,
    translate,
    use_language,
)

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "bilingual",
    "current_language",
    "english_of",
    "explained",
    "in_all_languages",
    "named",
    "phrase_names",
    "plain",
    "translate",
    "use_language",
]
