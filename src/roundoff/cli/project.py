"""The project of a folder: commands take from its roundoff.toml what is not typed; init; what to begin with."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    LEAVE_OUT,
    ONE_OF,
    PROJECT_NAME,
    Alternatives,
    Command,
    Option,
    Options,
    command,
    flat_options,
    opt,
)
from roundoff.cli.terminal import Terminal
from roundoff.core.files import is_model
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.messages.catalogue import current_language, translate, translation
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.project import FoundParts, Project


# Words without a name before them, and what of the project may stand there.
_PLACES = {"model": "model", "reference": "model", "subject": "quantized"}
_QUANTIZATION = ("target", "calibration", "weight-method", "calibration-option", "set", "rules")
_DATA = (
    "data", "labels", "samples", "data-format", "raw-dtype", "raw-shape", "image-color", "image-layout",
    "image-size", "image-resize", "image-filter", "image-resizer", "image-pad", "scale", "mean", "std",
)  # fmt: skip
# Where the one is typed, the others would be of something else: labels of other samples, a chip beside a file.
_APART = {
    "data": _DATA,
    "quantized": _QUANTIZATION,
    "target": ("quantized",),
    "dumps": (*_QUANTIZATION, "labels", "evaluator"),
}
# What a project's model is to these commands is an option of theirs.
_MODEL_OPTION = ("check-io",)


def with_project(words: Sequence[str], name: str, declared: Command) -> tuple[list[str], list[str]]:
    """Words of a command with what the project of this folder adds to them, and what that is.

    Args:
        words: All of them, the command among them.
        name: The command.
        declared: Its options.

    Raises:
        BadInput: The project's file cannot be used.
    """
    if LEAVE_OUT in words:
        return [word for word in words if word != LEAVE_OUT], []
    places = [each for each in flat_options(declared.options) if not each.flags[0].startswith("-")]
    takes = any(each.name in _PLACES for each in places) or name in _MODEL_OPTION
    if not takes or {"-h", "--help"} & set(words) or not Path(PROJECT_NAME).is_file():
        return list(words), []
    from roundoff.api.project import load_project

    project = load_project()
    at = words.index(name) + 1
    before, typed = list(words[:at]), list(words[at:])
    options, loose = _typed(typed, declared)
    position, word = _place(project, places, [typed[index] for index in loose])
    taken = [word] if word else []
    if word:
        typed.insert(loose[position] if position < len(loose) else len(typed), word)
    given = [Path(typed[index]) for index in _typed(typed, declared)[1]]
    more = list(_more(project, name, declared, options, given))
    # In front, since an option that takes several words would take what follows it.
    return [*before, *more, *typed], [*taken, *more]


def _typed(words: Sequence[str], declared: Command) -> tuple[set[str], list[int]]:
    """Names of options that are typed, and where words stand that belong to none."""
    known = {flag: each for each in flat_options(declared.options) for flag in each.flags if flag.startswith("-")}
    names: set[str] = set()
    loose: list[int] = []
    waiting: int | str | None = 0
    for index, word in enumerate(words):
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            flag, equals, _ = word.partition("=")
            found = known.get(flag) or _abbreviated(flag, known)
            names |= {found.name.replace("_", "-")} if found else set()
            takes_none = found is None or found.settings.get("action") == "store_true" or equals
            waiting = 0 if takes_none or found is None else found.settings.get("nargs", 1)
        elif waiting in ("+", "*"):
            continue
        elif waiting:
            waiting = 0
        else:
            loose.append(index)
    return names, loose


def _abbreviated(flag: str, known: dict[str, Option]) -> Option | None:
    meant = [each for spelled, each in known.items() if flag.startswith("--") and spelled.startswith(flag)]
    return meant[0] if len(meant) == 1 else None


def _place(project: "Project", places: Sequence[Option], loose: Sequence[str]) -> tuple[int, str]:
    """Before which of the loose words the project's model stands, and the model; empty where one is typed."""
    slots = sum("nargs" not in each.settings for each in places)
    for position, each in enumerate(places):
        words = project.options.get(_PLACES.get(each.name, ""), ())
        many = any(other.settings.get("nargs") == "*" for other in places)
        room = many or len(loose) < max(slots, 1)
        is_typed = words and (words[0] in loose or (each.name == "model" and any(map(_is_net, loose))))
        if words and room and not is_typed and position <= len(loose):
            return position, words[0]
    return 0, ""


def _is_net(word: str) -> bool:
    return is_model(Path(word))


def _more(
    project: "Project", name: str, declared: Command, typed: set[str], given: Sequence[Path]
) -> Iterator[str]:
    """Options that the project adds."""
    excluded = {other for each in typed for other in _APART.get(each, ())}
    excluded |= {other for each in typed for other in _rivals(declared.options, each)}
    if "quantized" in project.options and not excluded & {"quantized"} and "quantized" not in typed:
        takes = {each.name for each in flat_options(declared.options)}
        excluded |= set(_QUANTIZATION) if "quantized" in takes else set()
    if name == "compare" and not any(map(is_model, given)):
        excluded |= set(_DATA)
    if name == "audit":
        # A file is judged by a chip only when that is asked.
        excluded |= {"target"}
    if "target" not in typed and ("target" in excluded or "target" not in project.options):
        excluded |= set(_QUANTIZATION)
    for each in flat_options(declared.options):
        key = each.name.replace("_", "-")
        words = project.options.get(key, ())
        if not each.flags[0].startswith("-") or not words or key in typed | excluded:
            continue
        if key == "model" and name not in _MODEL_OPTION:
            continue
        flag = next((flag for flag in each.flags if flag.startswith("--")), each.flags[0])
        for word in words:
            # Numbers below zero look like options.
            yield from [f"{flag}={word}"] if word.startswith("-") else [flag, word]


def _rivals(options: Options, name: str) -> Iterator[str]:
    """Options that exclude one of this name."""
    for each in options:
        if isinstance(each, Option):
            continue
        names = [option.name.replace("_", "-") for option in flat_options(each.options)]
        if isinstance(each, Alternatives):
            yield from (other for other in names if other != name and name in names)
        else:
            yield from _rivals(each.options, name)


def tell_taken(terminal: Terminal, taken: Sequence[str]) -> None:
    """Say what was taken from the project's file."""
    if taken:
        terminal.wrapped(english("from {file}: {words}", file=PROJECT_NAME, words=shlex.join(taken)))


# init, and what to begin with ------------------------------------------------------------------------------------


@command(
    opt("--model MODEL", "the float model, if it is not the one that is found"),
    opt("--data PATH", "samples, likewise", type=str),
    opt("--labels FILE", "right classes, likewise"),
    opt("--target NAME|FILE", "the chip, as listed by 'roundoff targets'"),
    opt("--force", "replace an earlier roundoff.toml"),
)
def init(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write roundoff.toml: what commands in this folder would be told each time.

    Models, samples, labels and an evaluator are found here and in the folders here;
    what can be seen is not asked. Commands then take from it what is not typed, and
    say so; --no-project leaves it aside.

      model = "model.onnx"         quantized = "theirs_int8.onnx"
      target = "axera-ax650"       labels = "labels.npy"   (or evaluator)
      [data]          path, samples, scale, mean, std, image-resize, image-color ...
      [quantization]  calibration, weight-method, set, rules
      [goal]          max-drop, min-metric, max-cost
      [limits]        max-memory, threads
    """
    from roundoff.api.project import init, target_hint

    said = {"model": args.model, "data": args.data, "labels": args.labels, "target": args.target}
    ask = _Questions(terminal) if sys.stdin.isatty() and sys.stderr.isatty() else None
    file = init(**said, force=args.force, ask=ask)
    terminal.text(file.read_text(encoding="utf-8"))
    terminal.written([file])
    hint = target_hint()
    if hint:
        terminal.wrapped(english("{hint}; 'roundoff targets' lists the names", hint=hint))
    return EXIT_OK


class _Questions:
    """Asks who sits in front of the terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __call__(self, question: str, answers: Sequence[str]) -> str | None:
        """The answer; None for none."""
        self._terminal.wrapped(question)
        for number, answer in enumerate(answers, 1):
            self._terminal.note(f"  {number}  {answer}")
        try:
            sys.stderr.write("> ")
            sys.stderr.flush()
            said = sys.stdin.readline().strip()
        except (OSError, UnicodeDecodeError):
            return None
        if answers and said.isdigit() and 0 < int(said) <= len(answers):
            return answers[int(said) - 1]
        return said or None


_HAVE = ("quantized", "board", "float", "run", "nothing")
"""What people come with; each has its three commands."""


def begin(terminal: Terminal, *, ask: bool = True) -> int:
    """Ask what one has, and show the three commands that fit, with the names of what lies in this folder.

    Args:
        terminal: Where it is asked.
        ask: Whether somebody can answer; else it is told by what lies here.
    """
    from roundoff.api.project import look_into

    found = look_into(Path())
    terminal.note(translate("cli.begin_title"))
    titles = [translate(f"cli.begin_{each}") for each in _HAVE]
    answer = _Questions(terminal)(translate("cli.begin_question"), titles) if ask else ""
    if answer is None:
        terminal.note(translate("cli.begin_help"))
        return BadInput.exit_code
    have = _HAVE[titles.index(answer)] if answer in titles else _lies_here(found)
    for words, key in first_commands(have, found):
        terminal.text(f"  {words}")
        terminal.text(f"      {translate(f'cli.{key}')}")
    terminal.note(translate("cli.begin_help"))
    return EXIT_OK if ask else BadInput.exit_code


def _lies_here(found: "FoundParts") -> str:
    known = (found.quantized, found.models and found.dumps, found.models, found.runs)
    return next((have for have, parts in zip(_HAVE, known, strict=False) if parts), "nothing")


def first_commands(have: str, found: "FoundParts") -> list[tuple[str, str]]:
    """Three commands for what one has, each with the key of what it does.

    Args:
        have: One of what people come with.
        found: What lies in the folder; its names are taken.
    """

    def first(paths: Sequence[Path], otherwise: str) -> str:
        return shlex.quote(paths[0].as_posix()) if paths else otherwise

    model, data = first(found.models, "MODEL.onnx"), first(found.data, "SAMPLES")
    quantized, dump = first(found.quantized, "INT8.onnx"), first(found.dumps, "DUMP")
    run = first(found.runs, "RUN")
    # A folder of `quantize` knows its float model.
    beside = "" if found.quantized and found.quantized[0].is_dir() else f" --float {model}"
    judge = f" --labels {first(found.labels, '')}" if found.labels else ""
    # What is quantized already needs no samples but those that are to judge it.
    right = [
        f"{first([each], '')} --labels {first([labels], '')}" for each, labels in found.judged[:1] if not judge
    ]
    judged = right[0] if right else f"{data}{judge}"
    return {
        "quantized": [
            (f"roundoff diagnose {model} --quantized {quantized} --data {judged}", "begin_why"),
            (f"roundoff layers {model} --quantized {quantized} --data {data}", "begin_layers"),
            (f"roundoff audit {quantized}{beside}", "begin_audit"),
        ],
        "board": [
            (f"roundoff compare {model} {dump} --data {data}", "begin_compare"),
            (f"roundoff diagnose {model} --dumps {dump} --data {data}", "begin_device"),
            ("roundoff check-io --preprocessed OURS.npy THEIRS.npy", "begin_io"),
        ],
        "float": [
            ("roundoff targets", "begin_targets"),
            (f"roundoff quantize {model} --data {data} --target generic-int8 -o int8", "begin_quantize"),
            (f"roundoff diagnose {model} --data {data} --target generic-int8{judge} --fix -o fixed", "begin_fix"),
        ],
        "run": [
            (f"roundoff report {run} -o report.html", "begin_report"),
            (f"roundoff explain 1 {run}", "begin_explain"),
            (f"roundoff bundle {run} -o ticket.zip", "begin_ticket"),
        ],
        "nothing": [
            ("roundoff demo", "begin_demo"),
            ("roundoff demo board", "begin_demo_board"),
            ("roundoff init", "begin_init"),
        ],
    }[have]


# What roundoff does, on data that comes with it.

# Known without importing the stories, so that --help stays quick.
_STORIES = ("repair", "board", "ocr")


@command(
    opt("story", "which (default: repair)", nargs="?", choices=_STORIES, default=_STORIES[0]),
    opt("--target NAME|FILE", "of ocr: for this chip (default: generic-int8)"),
    opt("-o --output DIR", "where the inputs and the results go (default: roundoff-demo, board-demo, ocr-demo)"),
    opt("--force", "replace the result of an earlier demo"),
)
def demo(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show what roundoff does, on data that comes with it.

    repair: a network that reads digits, on a chip with too few bits; it is
    diagnosed, repaired, and counted on images that nobody has seen. board: the
    tensors that a broken board wrote, and the layer that is wrong. ocr: a text
    recogniser of 11 MB from the package rapidocr-onnxruntime, which misreads words
    in 8 bits: 'ocr --target generic-int8-per-tensor' all of them. Takes minutes.
    """
    import shlex

    # The package imports its commands, so a command can import it only once it runs.
    from roundoff.cli import main
    from roundoff.core.files import output_directory
    from roundoff.demo.stories import story

    told = story(args.story, target=args.target)
    # A folder for each, so that one story can be told behind the other.
    folder = args.output or Path("roundoff-demo" if args.story == _STORIES[0] else f"{args.story}-demo")
    inputs, results = folder / "inputs", folder / "results"
    with output_directory(inputs, marker=told.marker, force=args.force) as staged:
        told.prepare(staged)
    lines = told.command(inputs, results)
    lines[-1] += ["--force"] * args.force
    shown = " \\\n    ".join(shlex.join(line) for line in lines)
    terminal.note(english("{introduction}\n\n  roundoff {shown}\n", introduction=told.introduction, shown=shown))
    code = main(["--lang", current_language(), *(word for line in lines for word in line)])
    if code not in (EXIT_OK, EXIT_THRESHOLD_MISSED):
        return code
    terminal.note(told.conclusion(inputs, results))
    return EXIT_OK


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
    if option.name == "sub":  # a family's own commands, which only its help lists
        return tuple(str(option.settings["help"]).removeprefix(ONE_OF).split(", "))
    return tuple(map(str, option.settings.get("choices") or ()))


def _bash(*, zsh: bool) -> str:
    """A script for bash; zsh understands it by its own means."""
    from roundoff.cli import COMMANDS

    cases, values = [], []
    for name, options in _options():
        named = [each for each in options if each.flags[0].startswith("-")]
        flags = [flag for each in named for flag in each.flags if flag.startswith("--")]
        loose = [value for each in options if not each.flags[0].startswith("-") for value in _values(each)]
        # Where no option is begun a file may be meant, which the shell itself completes.
        dashed = " ".join([*flags, *_EVERYWHERE])
        cases.append(f'    {name}) [[ "$cur" == -* ]] && words="{dashed}" || words="{" ".join(loose)}" ;;')
        for each in named:
            if known := _values(each):
                values += [f'    {name}:{flag}) words="{" ".join(known)}" ;;' for flag in each.flags]
    head = "#compdef roundoff\nautoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""{head}_roundoff() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" cmd="" words="" word
  for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
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
