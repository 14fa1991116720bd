"""The command line `hf-ngsan`: finds the module of a command, parses its arguments, runs it and reports errors.

Every error is printed as one line on stderr. The exit code is 2 if a user can fix the error; otherwise it is 1 and the
line starts with the type of the exception. Importing all command modules is quick, because each of them imports slow
libraries in its `run`.
"""

import argparse
import ctypes
import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from typing import Any

from . import __version__
from .data.readers import find_reader, parse_spec
from .io import import_user_module
from .io.messages import FULL_DISK, did_you_mean, errno_of, is_out_of_memory, plain_warnings, sentence
from .io.processes import has_lost_another, launch_processes, tell_error
from .registry import register
from .visualization import MissingPlotsError

GROUPS = {
    "caption and search": ("demo", "caption", "answer", "translate", "index", "search", "explain", "models"),
    "train and evaluate": (
        *("configs", "train", "evaluate", "score", "reproduce", "calibrate", "attach-vision", "audit"),
        "visualness",
    ),
    "data": ("datasets", "extract", "convert", "references", "inspect"),
    "share": ("push", "export", "serve", "app"),
}
"""The commands, grouped by their use."""
COMMANDS = {
    name: "demo" if name == "demo" else f"commands.{name.replace('-', '_')}"
    for names in GROUPS.values()
    for name in names
}
"""Modules of all commands. Each has `SUMMARY` (its first line is shown in the list of commands), `EPILOG`,
`add_arguments(parser)` and `run(options)`, which returns an exit code or None. A command with `--num-processes` also
has `check(options)`, which finds mistakes before the processes start."""
ENVIRONMENT = {
    # libraries send no telemetry
    **dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "DISABLE_SAFETENSORS_CONVERSION", "ORT_DISABLE_TELEMETRY"), "1"),
    # PyTorch's threads sleep while they wait; spinning would slow down a busy machine (docs/speed.md)
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Environment variables, set before the libraries that read them are imported; values of the user take precedence."""
PROGRAM = "hf-ngsan"
LISTED = "; --help lists them"
NUMBER = re.compile(r"-\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
OUT_OF_MEMORY = """Out of memory; use a smaller --batch-size (train: more training.gradient_accumulation_steps, \
a lower evaluation.batch_size), or end other programs."""
DESCRIPTION = "Geometry-aware image captioning and image-text retrieval."
DATASETS = "hf-ngsan datasets lists the datasets that --data accepts."
EXAMPLES = """examples:
  hf-ngsan caption photo.jpg
  hf-ngsan train --config ngsan/scenes training.epochs=5
  hf-ngsan evaluate --model runs/scenes --data scenes --split test --output captions.json
  hf-ngsan search photos.index "a dog jumps over a log"
  hf-ngsan extract --images photos --backbone microsoft/resnet-50 --output features"""


@plain_warnings()
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 2 after an ordinary error, 1 after another one, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    common, rest = common_parser().parse_known_args(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hf_ngsan").setLevel(logging.INFO)
    try:
        if common.modules:  # these modules may use what `import hf_ngsan` registers
            register()
        for name in common.modules:
            import_user_module(name, "--import")
        options = parse(rest)
        options.modules = common.modules
        data = getattr(options, "data", None) or []  # its mistakes are reported before a model is loaded
        for spec in [data] if isinstance(data, str) else data:
            parse_spec(spec, find_reader(spec))
        if hasattr(options, "num_processes"):
            command = ["-m", "hf_ngsan.cli", *arguments]
            code = launch_processes(command, options.num_processes, lambda: options.command.check(options))
            if code is not None:
                return code
        keep_freed_memory()
        return options.command.run(options) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the program that reads the output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if common.debug:
            raise
        if is_out_of_memory(error):
            tell_error(OUT_OF_MEMORY)
        elif isinstance(error, ValueError | OSError | MissingPlotsError) or errno_of(error) in FULL_DISK:
            tell_error(sentence(error))
        elif not has_lost_another(error):
            tell_error(f"{type(error).__name__}: {sentence(error)} (--debug shows the traceback)")
            return 1
        return getattr(error, "exit_code", 2)


def keep_freed_memory() -> None:
    """Makes glibc reuse the memory of freed tensors; by default it returns it to the system after each operation."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        for parameter in (-1, -3):  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
            ctypes.CDLL(None).mallopt(parameter, 2**31 - 1)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parses a command line; unlike argparse, it accepts images, a query and key=value after options too."""
    before = list(takewhile(lambda word: word.startswith("-"), arguments))
    words = arguments[len(before) :]
    if before or not words:
        parser_of_commands().parse(before)  # this prints the help, the version or an error, and exits
    if words[0] not in COMMANDS:
        parser_of_commands().error(f"unknown command {words[0]!r:.60}{did_you_mean(words[0], COMMANDS, LISTED)}")
    return parser_of(words[0]).parse(words[1:])


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Appends the default of an option to its help text, unless the text has it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        is_shown = action.option_strings and default not in ("", [], argparse.SUPPRESS)
        is_shown = is_shown and not isinstance(default, bool | None) and "default:" not in text
        return f"{text} (default: %(default)s)" if is_shown else text


class CommandParser(argparse.ArgumentParser):
    """Parser that reports unknown options, with a similar name, first; positional arguments may follow options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, parents=[common_parser()], **settings)

    def parse(self, words: list[str]) -> argparse.Namespace:
        self.check_options(words)
        return self.parse_args(words) if "--" in words else self.parse_intermixed_args(words)  # this one drops "--"

    def check_options(self, words: Sequence[str]) -> None:
        known = self._option_string_actions
        for word in words:
            name = word.partition("=")[0]
            if word == "--":
                break
            is_option = word[:1] == "-" and word != "-" and " " not in word and not NUMBER.fullmatch(word)
            if is_option and not any(option.startswith(name) for option in known):  # argparse accepts prefixes
                takes_keys = self.get_default("overrides") is not None
                keys = "; keys of the training config have no hyphens: section.key=value" if takes_keys else ""
                self.error(f"unknown option {name!r:.60}{did_you_mean(name, known, LISTED)}{keys}")


def parser_of_commands() -> CommandParser:
    """Returns the parser of `hf-ngsan` without a command; its help lists the commands."""
    lines = [DESCRIPTION, ""]
    for group, names in GROUPS.items():
        summaries = {name: import_module(f"hf_ngsan.{COMMANDS[name]}").SUMMARY.splitlines()[0] for name in names}
        lines += [f"{group}:", *(f"  {name:<13}  {summary}" for name, summary in summaries.items())]
    parser = CommandParser(prog=PROGRAM, description="\n".join(lines), epilog=f"{EXAMPLES}\n\n{DATASETS}")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("command", metavar="COMMAND", help="a command above; hf-ngsan COMMAND --help describes it")
    return parser


def parser_of(name: str) -> CommandParser:
    """Returns the parser of a command."""
    command = import_module(f"hf_ngsan.{COMMANDS[name]}")
    parser = CommandParser(prog=f"{PROGRAM} {name}", description=command.SUMMARY, epilog=command.EPILOG)
    command.add_arguments(parser)
    if "--data" in parser._option_string_actions:
        parser.epilog = f"{command.EPILOG}\n\n{DATASETS}"
    parser.set_defaults(command=command)
    return parser


def common_parser() -> argparse.ArgumentParser:
    """Returns the parser of the options of all commands; it runs first, because `--import` may register other names."""
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this Python module first, such as one that registers a reader or a task; can be repeated",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of every error")
    return parser


if __name__ == "__main__":
    sys.exit(main())
