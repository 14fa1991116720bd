"""The example that draws photographs with their captions."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from hf_ngsan.loading import save_model
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "examples" / "caption_sheet.py"


def test_each_photograph_has_its_caption(tmp_path):
    save_model(pixel_captioner(), pixel_processor(), tmp_path / "model")
    files = [str(tmp_path / f"{number}.png") for number in range(3)]
    for file, photo in zip(files, PHOTOS, strict=False):
        photo.save(file)
    command = [sys.executable, SCRIPT, tmp_path / "sheet.jpg", *files, "--model", tmp_path / "model"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split("\t")[0] for line in printed] == files
    assert len({line.split("\t")[1] for line in printed}) == 3
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.width > 2 * sheet.height
