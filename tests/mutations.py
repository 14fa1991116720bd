"""Measures what the fast tests notice: the share of small changes of the package with which a test fails.

    python -m tests.mutations --coverage build/coverage.db --collect
    python -m tests.mutations --coverage build/coverage.db --number 200 --seed 0 --output build/mutations.json

The first command runs the fast tests once and records which of them run which line (needs pytest-cov). The second
changes one place at a time in a copy of the package (a comparison, a constant, a returned value, a call whose value
nobody takes) and runs tests until one fails that passes without the change: those that run its line or, for what an
import runs, any line of its file, or else all.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
COMPARISONS |= {ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
MAX_TESTS = 200
"""Of one change: those that run its line, first those of the file and the folder that mirror its module, then others,
at random."""
MAX_SECONDS = 400
"""Of the tests of one change; longer ones have hung, which may say nothing on a busy machine."""


def places(file: Path) -> Iterator[tuple[str, ast.AST]]:
    """Yields kind and node of what can be changed, constants of type hints and of module docstrings left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    hints = {inner for node in ast.walk(tree) for hint in hints_of(node) for inner in ast.walk(hint)}
    for node in ast.walk(tree):
        if node in hints:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield "comparison", node
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield "constant", node
        elif isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
            yield "return", node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield "call", node


def hints_of(node: ast.AST) -> list[ast.expr]:
    return [hint for name in ("annotation", "returns") if (hint := getattr(node, name, None)) is not None]


def change(text: str, kind: str, node: ast.AST) -> str:
    """Returns a module with one place changed."""
    changed = {
        "comparison": lambda: ast.Compare(
            node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators
        ),
        "constant": lambda: ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1),
        "return": lambda: ast.Return(ast.Constant(None)),
        "call": lambda: ast.Pass(),
    }[kind]()
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    code = text.encode()
    new = ast.unparse(ast.fix_missing_locations(changed))
    return (code[:start] + (new if kind in ("return", "call") else f"({new})").encode() + code[end:]).decode()


def collect(checkout: Path, database: Path) -> None:
    """Runs the fast tests, and records the tests of each line."""
    options = ["-q", "-n", "2", "--dist", "loadfile", "--cov=hf_ngsan", "--cov-context=test", "--cov-report="]
    environment = {**os.environ, "COVERAGE_FILE": str(database.resolve()), "PYTHONPATH": str(checkout)}
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=checkout, env=environment, check=False)


def tests_of(database: Path, file: Path, line: int) -> list[str]:
    """Returns the pytest names of the tests that run a line, or else any line of the file, or else of all tests."""
    from coverage import CoverageData

    data = CoverageData(str(database))
    data.read()
    contexts = data.contexts_by_lineno(str(file))
    for names in (contexts.get(line, ()), chain.from_iterable(contexts.values()), data.measured_contexts()):
        if tests := sorted({name.rpartition("|")[0] for name in names if name}):
            return tests
    return []


def nearest(tests: list[str], module: Path, generator: random.Random) -> list[str]:
    """Returns at most MAX_TESTS tests, those that mirror a module first."""
    folder = f"tests/{module.parent}/" if module.parent.name else "tests/test_"
    own_file = f"{folder}test_{module.stem}" if module.parent.name else f"{folder}{module.stem}"
    shuffled = generator.sample(tests, len(tests))
    return sorted(shuffled, key=lambda name: (not name.startswith(own_file), not name.startswith(folder)))[:MAX_TESTS]


class Copy:
    """A copy of a checkout, in which one file at a time is changed."""

    def __init__(self, checkout: Path, temporary: Path):
        self.checkout = checkout
        self.folder = temporary / "copy"
        self.cache = temporary / "cache"
        self.failing: set[str] = set()
        """Tests that fail without a change."""
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "runs")
        shutil.copytree(checkout, self.folder, symlinks=True, ignore=ignored)

    def result_of(self, file: Path, changed: str, tests: list[str]) -> str:
        """Returns what the tests say of a changed file: "noticed", "hung" or "survived"."""
        copy = self.folder / file.relative_to(self.checkout)
        text = file.read_text(encoding="utf-8")
        while tests := [test for test in tests if test not in self.failing]:
            copy.write_text(changed, encoding="utf-8")
            result, failed = self.run(tests)
            copy.write_text(text, encoding="utf-8")
            if result != "noticed":
                return result
            if self.run([failed] if failed else tests)[0] == "survived":
                return result
            self.failing |= {test for test in tests if test.startswith(failed)}
        return "survived"

    def run(self, tests: list[str]) -> tuple[str, str]:
        """Runs tests until one fails.

        Returns:
            "noticed", "hung" or "survived", and the name of the test, or of the file of tests, that failed; it is empty
            if the process ended otherwise.
        """
        shutil.rmtree(self.cache, ignore_errors=True)
        options = ["-q", "-x", "-p", "no:xdist", "-o", f"cache_dir={self.cache}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            result = "noticed" if process.wait(MAX_SECONDS) else "survived"
        except subprocess.TimeoutExpired:
            result = "hung"
        with suppress(ProcessLookupError):  # processes that the tests left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        failures = self.cache / "v" / "cache" / "lastfailed"
        return result, next(iter(json.loads(failures.read_text())), "") if failures.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", type=Path, required=True, help="database of coverage")
    parser.add_argument("--collect", action="store_true", help="make it")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="of the repository")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("build/mutations.json"))
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    if arguments.collect:
        return collect(checkout, arguments.coverage)
    files = sorted((checkout / "hf_ngsan").rglob("*.py"))
    everything = [(file, kind, node) for file in files for kind, node in places(file)]
    drawn = random.Random(arguments.seed).sample(everything, arguments.number)
    found = []
    with TemporaryDirectory() as temporary:
        copy = Copy(checkout, Path(temporary))
        for file, kind, node in drawn:
            tests = tests_of(arguments.coverage, file, node.lineno)
            tests = nearest(tests, file.relative_to(checkout / "hf_ngsan"), random.Random(arguments.seed))
            result = copy.result_of(file, change(file.read_text(encoding="utf-8"), kind, node), tests)
            place = f"{file.relative_to(checkout)}:{node.lineno}"
            found.append({"place": place, "kind": kind, "tests": len(tests), "result": result})
            print(f"{place} {kind}: {result} ({len(tests)} tests)", flush=True)
            arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for kind in (*sorted({one["kind"] for one in found}), "all"):
        of_kind = [one["result"] for one in found if kind in (one["kind"], "all")]
        print(f"{kind}: {of_kind.count('noticed')} of {len(of_kind)}, and {of_kind.count('hung')} hung")
    print(f"tests that fail without a change: {sorted(copy.failing) or 'none'}")


if __name__ == "__main__":
    main()
