"""Runs commands as a user does, and checks their output."""

import subprocess
import sys
from pathlib import Path

import pytest

from hf_ngsan.cli import main


def fails(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """Runs a command that must fail because of a user's mistake; returns its error message, which is one line."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    message = lines[-1]
    assert message.startswith("hf-ngsan: error: ")
    assert "Traceback" not in "\n".join(lines)
    return message


def prints(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """Runs a command that must succeed; returns its output."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


HEAVY = {"torch", "transformers", "datasets", "accelerate", "pandas"}


def heavy_imports(folder: Path, *arguments: object) -> tuple[set[str], subprocess.CompletedProcess]:
    """Runs a command in a new process and folder; returns the heavy packages that it imports, and its last output."""
    command = [sys.executable, "-X", "importtime", "-m", "hf_ngsan.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert any(line.endswith("hf_ngsan") for line in lines)
    return HEAVY & {line.rpartition("|")[2].strip() for line in lines}, done
