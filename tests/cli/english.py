"""Finds English words where Chinese is spoken."""

import re

# What is quoted, typed or named stays as it is: names, options, commands, files, methods.
_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\bhttps?://\S+|--?[a-z][\w-]*|\S*[_/.=:@]\S*")
_COMMANDS = re.compile(r"^.*\broundoff [a-z].*(?:\n {6,}.*)*", re.MULTILINE)
_RUN = re.compile(r"(?:[A-Za-z][a-z']+[,;:]? +){3,}[A-Za-z][a-z']+")
_ALLOWED = ("Pillow, torchvision",)


def english_runs(text: str) -> list[str]:
    """Runs of four English words and more in what a command printed, but for names and commands to type."""
    for allowed in _ALLOWED:
        text = text.replace(allowed, "")
    text = _COMMANDS.sub("", text)
    text = re.sub(r"\s+", " ", text)
    return _RUN.findall(_NAMES.sub("\u3001", text))
