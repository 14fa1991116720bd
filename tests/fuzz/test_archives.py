"""Files of features and images that a stranger has prepared: reading them runs no code and writes nothing beside them.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_archives.py` tries others.
"""

import os
import random
from pathlib import Path

import pytest

from hf_ngsan.cli import main

from .archives import ESCAPED, RAN, hostile_file

FEW = 60


def check(place: Path, numbers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    outside = [place / ESCAPED, place.parent / ESCAPED, Path("/tmp", ESCAPED)]
    for number in numbers:
        draw = random.Random(f"{seed} {number}")
        folder = place / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        path = hostile_file(draw, folder / "given")
        commands = [
            ["inspect", path],
            ["convert", path, "--output", "new"],
            ["references", "--data", f"images:{path.parent}", "--split", "train", "--output", "new.json"],
            ["references", "--data", f"features:{path.parent}", "--output", "new.json"],
        ]
        for command in commands:
            try:
                main([str(word) for word in command])
            except SystemExit as end:
                assert end.code, f"seed {seed}, file {number}: {command}"
            told = f"seed {seed}, file {number}: {command} on {path.name}"
            assert not [*folder.rglob(RAN), *folder.rglob(ESCAPED)], f"{told} ran or wrote what it should not"
            assert not any(file.exists() for file in outside), f"{told} wrote outside its folder"


@pytest.mark.slow
def test_prepared_files_run_and_reach_nothing(tmp_path, monkeypatch):
    check(tmp_path, range(FEW), monkeypatch)


