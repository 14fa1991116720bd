"""Commands as a person runs them, and what they say."""

import pytest

from hf_ngsan.cli import main


def fails(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """Runs a command that must fail for the user's fault; returns what it says, in one line."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    message = lines[-1]
    assert message.startswith("hf-ngsan: error: ")
    assert "Traceback" not in "\n".join(lines)
    return message


def prints(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """Runs a command that must succeed; returns what it prints."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out
