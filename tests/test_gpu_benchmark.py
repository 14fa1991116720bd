"""The benchmark of a GPU, all parts at tiny sizes on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
TIMED = ("training step", "decoding", "cached features", "photographs", "extraction", "contrastive", "search", "blip")


@pytest.mark.slow
def test_every_part_measures_and_none_fails(tmp_path):
    output = tmp_path / "gpu.json"
    command = [sys.executable, PROGRAM, "--device", "cpu", "--tiny", "--minutes", "9", "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    parts = json.loads(output.read_text())["parts"]
    assert [row for rows in parts.values() for row in rows if "error" in row] == []
    for word in TIMED:
        titles = [title for title in parts if word in title.lower()]
        assert titles, word
        for title in titles:
            assert any(row.get("ms", 0) > 0 for row in parts[title]), title
    required = [row for rows in parts.values() for row in rows if "requirement" in row]
    assert len(required) >= 10
    assert all(isinstance(row["passed"], bool) for row in required)
    assert "| required |" in output.with_suffix(".md").read_text()
