"""Tests the package as its users install it, without constraints: `python -m tests.fresh_environment newest`.

`newest` makes an environment of the newest releases that pyproject.toml allows, `oldest` one of its lower bounds. A
wheel is installed into it; then `tests.installed_package` runs outside of the checkout, and the fast tests inside. If
this environment already has the `newest` releases, nothing is installed, and its own tests suffice. The version of
torch is that of constraints.txt, because of its build without CUDA (`--torch` selects another one).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOWER_BOUND = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?\s*>=\s*([\w.]+)")
NEVER_HERE = ("dev",)
"""Extras that the tests do not install."""


def lower_bounds() -> list[str]:
    """Returns constraints that pin every requirement of pyproject.toml to the oldest version that it allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [item for name, item in project["optional-dependencies"].items() if name not in NEVER_HERE]
    actual = [LOWER_BOUND.match(line) for lines in (project["dependencies"], *extras) for line in lines]
    return sorted({f"{item[1]}=={item[2]}" for item in actual if item and item[1] != "torch"})


def tested_torch() -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def versions(python: str | Path) -> dict[str, str]:
    """Returns the versions of all packages that are installed for an interpreter, by name."""
    listing = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format", "json"], text=True))
    return {canonicalize_name(item["name"]): item["version"] for item in listing}


def newest_versions(torch: str) -> dict[str, str]:
    """Returns the versions that pip would install today without constraints, by name."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = json.loads(subprocess.check_output([*command, torch, f"{ROOT}[test]"], text=True))
    actual = {item["metadata"]["name"]: item["metadata"]["version"] for item in report["install"]}
    return {canonicalize_name(name): version for name, version in actual.items() if name != "hf-ngsan"}


def install(folder: Path, kind: str, torch: str) -> Path:
    """Creates the environment again, with the package from a wheel; returns its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheel", ROOT], check=True)
    [wheel] = (folder / "wheel").glob("*.whl")
    bounds = folder / "constraints.txt"
    bounds.write_text("\n".join(lower_bounds() if kind == "oldest" else []) + "\n")
    subprocess.run([*pip, "install", "--quiet", torch], check=True)
    subprocess.run([*pip, "install", "--quiet", "--constraint", bounds, f"{wheel}[test]"], check=True)
    return python


def use(python: Path) -> None:
    """Uses the installed package as a user does, in a folder from which the checkout cannot be imported."""
    script = (ROOT / "tests" / "installed_package.py").read_text(encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with TemporaryDirectory() as folder:
        environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": folder}
        subprocess.run([python, "-c", script, python.parent], cwd=folder, env=environment, check=True)


def run_tests(python: Path, processes: int) -> None:
    subprocess.run([python, "-m", "tests.transformers_suite"], cwd=ROOT, check=True)
    options = ["-q", "--numprocesses", str(processes), "--dist", "loadfile"]
    subprocess.run([python, "-m", "pytest", *options], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["newest", "oldest"])
    parser.add_argument("--torch", default=tested_torch(), metavar="REQUIREMENT", help="(%(default)s)")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="of the tests (%(default)s)")
    options = parser.parse_args()
    try:
        if options.kind == "newest" and newest_versions(options.torch).items() <= versions(sys.executable).items():
            print(f"newest: {sys.prefix} has the newest version of everything.")
            return 0
        python = install(ROOT / "build" / options.kind, options.kind, options.torch)
        actual = versions(python)
        print(f"{options.kind}:", " ".join(f"{name}=={version}" for name, version in actual.items()), flush=True)
        use(python)
        run_tests(python, options.processes)
    except subprocess.CalledProcessError as error:
        print(f"{options.kind}: {' '.join(map(str, error.cmd[:4]))} … failed.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
