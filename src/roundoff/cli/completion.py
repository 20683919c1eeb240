"""Completion of commands, options and values in bash, zsh and fish: a script made of what the commands declare."""

import argparse
from collections.abc import Iterator

from roundoff.cli.options import Option, command, flat_options, opt
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK
from roundoff.messages.catalogue import current_language, translation

_SHELLS = ("bash", "zsh", "fish")
_EVERYWHERE = ("--help", "--lang", "--no-project")
_LANGUAGES = "en zh"


@command(opt("shell", "whose script", choices=_SHELLS))
def completion(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print a script by which a shell completes commands, options and their values.

    bash  source <(roundoff completion bash)      in ~/.bashrc
    zsh   source <(roundoff completion zsh)       in ~/.zshrc, behind compinit
    fish  roundoff completion fish | source       in ~/.config/fish/config.fish
    """
    terminal.text(_fish() if args.shell == "fish" else _bash(zsh=args.shell == "zsh"))
    return EXIT_OK


def _options() -> Iterator[tuple[str, list[Option]]]:
    from roundoff.cli import COMMANDS, command_of

    for name in COMMANDS:
        yield name, list(flat_options(command_of(name).options))


def _values(option: Option) -> tuple[str, ...]:
    """Values that an option knows; none where any text or file will do."""
    if option.name == "target":
        from roundoff.quantize.targets.files import target_names

        return target_names()
    return tuple(map(str, option.settings.get("choices") or ()))


def _bash(*, zsh: bool) -> str:
    """A script for bash; zsh understands it by its own means."""
    from roundoff.cli import COMMANDS

    cases, values = [], []
    for name, options in _options():
        named = [each for each in options if each.flags[0].startswith("-")]
        flags = [flag for each in named for flag in each.flags if flag.startswith("--")]
        loose = [value for each in options if not each.flags[0].startswith("-") for value in _values(each)]
        cases.append(f'    {name}) words="{" ".join([*flags, *_EVERYWHERE, *loose])}" ;;')
        for each in named:
            if known := _values(each):
                values += [f'    {name}:{flag}) words="{" ".join(known)}" ;;' for flag in each.flags]
    head = "#compdef roundoff\nautoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_roundoff() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" cmd="" words="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in en|zh|-*) ;; *) cmd="$word"; break ;; esac
  done
  case "$cmd" in
    "") words="{" ".join([*COMMANDS, "--help", "--version", "--lang"])}" ;;
{chr(10).join(cases)}
  esac
  case "$cmd:$prev" in
    *:--lang) words="{_LANGUAGES}" ;;
{chr(10).join(values)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -o bashdefault -F _roundoff roundoff
"""


def _fish() -> str:
    from roundoff.cli import COMMANDS

    lines = ["complete -c roundoff -n __fish_use_subcommand -l version -d 'show the version'"]
    lines += [f"complete -c roundoff -l lang -x -a '{_LANGUAGES}'", "complete -c roundoff -l no-project"]
    lines += [
        f"complete -c roundoff -n __fish_use_subcommand -x -a {name} -d {_quoted(_said(what))}"
        for name, what in COMMANDS.items()
    ]
    for name, options in _options():
        start = f"complete -c roundoff -n '__fish_seen_subcommand_from {name}'"
        for each in options:
            spelled = [_fish_flag(flag) for flag in each.flags if flag.startswith("-")]
            known = f"-x -a '{' '.join(_values(each))}'" if _values(each) else ""
            takes = "" if known or each.settings.get("action") == "store_true" or not spelled else "-r"
            if spelled or known:
                lines.append(" ".join(filter(None, [start, *spelled, takes, known, f"-d {_described(each)}"])))
    return "\n".join(lines) + "\n"


def _fish_flag(flag: str) -> str:
    if flag.startswith("--"):
        return f"-l {flag[2:]}"
    return f"-s {flag[1:]}" if len(flag) == 2 else f"-o {flag[1:]}"


def _described(option: Option) -> str:
    return _quoted(_said(str(option.settings["help"])).replace("%%", "%"))


def _said(what: str) -> str:
    """A line of the help in the language of the terminal."""
    return what if current_language() == "en" else translation(what) or what


def _quoted(text: str) -> str:
    """A text in fish's quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
