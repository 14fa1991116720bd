"""Runs seeded cases, each in a child process of one that has imported everything: `python -m tests.fuzz.run SEED N`.

A case may end with exit code 0, or with 2 and one sentence, and with 1 where that has a meaning: a captioner leaks
(`hf-ngsan audit`), a training diverged; it may take 20 s and 2 GB.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from tests.fuzz.archives import ESCAPED, RAN

SECONDS, SECONDS_OF_WAITING = 20, 60
GIGABYTES = 2
NOT_TOLD_TO_USERS = ("Traceback (most recent call last)", "Exception ignored")


@dataclass
class Outcome:
    """What came of a case: its number and name, the command line, and what is wrong ("" for nothing)."""

    number: int
    name: str
    arguments: list[str]
    fault: str
    output: str = ""


def play(seed: int, number: int, folder: Path, made: SimpleNamespace) -> None:
    """Makes a case and runs its command, in a child process that ends here."""
    from hf_ngsan.cli import main
    from tests.fuzz.cases import choose_case

    folder.mkdir()
    os.chdir(folder)
    os.environ["HOME"] = str(folder)
    draw = random.Random(f"{seed} {number}")
    case = choose_case(draw)
    arguments = [str(word).replace("\0", "") for word in case(draw, made)]
    Path(folder, "..", f"{folder.name}.json").write_text(json.dumps([case.__name__, arguments]))
    for stream, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, mode), stream)
    os.dup2(os.open(f"{folder}.err", os.O_WRONLY | os.O_CREAT), 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * GIGABYTES * 2**30, -1))
    os.execv = lambda *arguments: os._exit(0)  # several processes are another test's
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def fault_of(arguments: list[str], code: int, seconds: float, kilobytes: int, errors: str) -> str:
    """Returns what is wrong with the end of a command; "" for nothing."""
    told = [line for line in errors.splitlines() if ": error: " in line]
    if code < 0 or seconds > SECONDS_OF_WAITING:
        return f"ended by signal {-code} after {seconds:.0f} s"
    may_be_1 = arguments[:1] == ["audit"] or (arguments[:1] == ["train"] and len(told) == 1)
    if code not in (0, 2) and not (code == 1 and may_be_1):
        return f"exit code {code}"
    if kilobytes > GIGABYTES * 2**20:
        return f"took {kilobytes / 2**20:.1f} GB"
    if any(words in errors for words in NOT_TOLD_TO_USERS):
        return "a traceback"
    if code == 2 and len(told) != 1:
        return f"{len(told)} sentences"
    if code == 2 and errors.splitlines()[-1] != told[0]:
        return "more after the sentence"
    return ""


def run_cases(seed: int, numbers: range, folder: Path, made: SimpleNamespace, at_once: int = 2) -> Iterator[Outcome]:
    """Runs cases, some at the same time; yields those with a fault."""
    running: dict[int, tuple[int, float]] = {}
    waiting = list(numbers)[::-1]
    while waiting or running:
        while waiting and len(running) < at_once:
            number = waiting.pop()
            child = os.fork()
            if child == 0:
                try:
                    play(seed, number, folder / str(number), made)
                finally:
                    traceback.print_exc()
                    os._exit(99)
            running[child] = (number, time.monotonic())
        child, status, usage = os.wait4(-1, os.WNOHANG)
        if child not in running:
            for late in [one for one, (_, begin) in running.items() if time.monotonic() - begin > SECONDS_OF_WAITING]:
                os.kill(late, 9)
            time.sleep(0.01)
            continue
        number, begin = running.pop(child)
        errors = Path(f"{folder / str(number)}.err")
        text = errors.read_text(errors="replace") if errors.exists() else ""
        code = os.waitstatus_to_exitcode(status)
        described = Path(folder, f"{number}.json")
        name, arguments = json.loads(described.read_text()) if described.exists() else ("?", [])
        fault = fault_of(arguments, code, time.monotonic() - begin, usage.ru_maxrss, text)
        if (folder / str(number) / RAN).exists():
            fault = "ran a stranger's code"
        if any(path.exists() for path in (folder / ESCAPED, folder.parent / ESCAPED, Path("/tmp", ESCAPED))):
            fault = "wrote outside its folder"
        if fault:
            yield Outcome(number, name, arguments, fault, text[-3_000:])


def import_everything(made: SimpleNamespace) -> None:
    """Runs a command of each kind once, so that the cases need not import what these do."""
    import matplotlib.pyplot  # noqa: F401

    from hf_ngsan.cli import main
    from tests.fuzz.inputs import SCENES

    main(["caption", "--model", str(made.photos), str(made.images)])
    main(["evaluate", "--model", str(made.photos), "--data", f"features:{made.features}"])
    main(["visualness", "--model", str(made.rstnet), "--data", SCENES])
    for name in ("m2-hdf5", "bottom-up-tsv", "parquet"):
        main(["inspect", str(made.formats / name)])
    main(["score", "--predictions", str(made.results), "--references", str(made.references)])
    main(["search", str(made.index), "a red ball"])
    main(["search", str(made.guest_index), "a red ball"])
    main(["caption", "--model", str(made.guests / "blip"), str(made.images)])
    main(["evaluate", "--model", str(made.translator), "--data", f"parallel:{made.text},source=en,target=de"])


def run(seed: int, cases: int, first: int = 0, keep: Path | None = None) -> Iterator[Outcome]:
    """Runs the cases of a seed; yields those with a fault."""
    from tests.fuzz.inputs import make_inputs

    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        made = make_inputs(folder)
        import_everything(made)
        (folder / "cases").mkdir()
        yield from run_cases(seed, range(first, first + cases), folder / "cases", made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, help="new folder for the inputs, which are deleted otherwise")
    options = parser.parse_args()
    output = os.dup(1)
    os.dup2(2, 1)
    for fault in run(options.seed, options.cases, options.first, options.keep):
        os.write(output, json.dumps(asdict(fault)).encode() + b"\n")


if __name__ == "__main__":
    main()
