"""`hf-ngsan inspect` describes files and folders."""

import json

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from PIL import Image

from hf_ngsan.cli import main
from hf_ngsan.data import caption_features
from hf_ngsan.data.conversion import convert_features
from hf_ngsan.data.inspection import inspect_data, inspect_images
from tests.commands.running import fails, prints
from tests.data.formats.files import REGIONS, tsv_line, write_tsv
from tests.data.formats.test_annotations import image_of, write_karpathy
from tests.models.test_videos import write_clip
from tests.retrieval.test_index_folder import written


def finds(capsys, path: object) -> str:
    """The output of the command for data with a problem."""
    assert main(["inspect", str(path)]) == 1
    return capsys.readouterr().out


def test_features_are_counted_and_the_first_problem_is_told(tmp_path, capsys):
    lines = [tsv_line(7), tsv_line(12, image_w=0), tsv_line(391895), tsv_line(7)]
    path = write_tsv(tmp_path / "regions.tsv", lines)
    findings = inspect_data(path)
    assert (findings.num_images, findings.num_problems, dict(findings.feature_sizes)) == (2, 2, {6: 2})
    assert (min(findings.spreads["regions"]), max(findings.spreads["regions"])) == (REGIONS[391895], REGIONS[7])
    assert findings.spreads["boxes"] == findings.spreads["regions"] and findings.spreads["captions"].total() == 0
    assert "line 2" in findings.problem and "0 x 60" in findings.problem
    text = finds(capsys, path)
    assert "bottom-up-tsv" in text and findings.problem in text and "2 in all" in text


def test_captions_words_splits_and_vocabulary_of_annotations(tmp_path):
    sentences = [{"tokens": ["x"], "raw": "A red bus."}] * 5
    images = [image_of(7, sentences=sentences), image_of(12), image_of(391895, split="dev")]
    findings = inspect_data(write_karpathy(tmp_path / "split.json", images))
    assert (findings.num_images, dict(findings.splits), findings.num_problems) == (2, {"train": 2}, 1)
    assert (min(findings.spreads["captions"]), max(findings.spreads["captions"])) == (2, 5)
    assert (min(findings.spreads["words"]), max(findings.spreads["words"])) == (1, 4)
    assert any("3 words" in line and "training captions" in line for line in findings.lines())  # a, red, bus
    assert "dev" in findings.problem


def test_a_converted_folder_says_of_what_it_was_made_and_whether_it_has_changed(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv")
    convert_features([path], tmp_path / "out")
    text = prints(capsys, "inspect", tmp_path / "out")
    assert "regions.tsv" in text and "3 images" in text and "no problem" in text
    [shard] = (tmp_path / "out").glob("*.arrow")
    content = shard.read_bytes()
    shard.write_bytes(content[:-8] + bytes(8))
    assert shard.name in inspect_data(tmp_path / "out").problem


def test_a_row_of_a_saved_dataset_that_breaks_the_contract_is_named(tmp_path):
    features = np.zeros((2, 4), np.float16)
    rows = {
        "image_id": [1, 2],
        "visual_features": [features, features + np.float16([0, np.nan, 0, 0])],
        "visual_boxes": [np.array([[0, 0, 1, 1]] * 2, np.float32)] * 2,
        "captions": [["a dog"], ["a cat", "a big cat"]],
    }
    part = Dataset.from_dict(rows, features=caption_features(4))
    DatasetDict({"train": part.select([0]), "test": part}).save_to_disk(str(tmp_path / "saved"))
    findings = inspect_data(tmp_path / "saved")
    assert (findings.num_images, findings.num_problems) == (2, 1)
    assert "split test, row 1" in findings.problem and "nan" in findings.problem
    assert dict(findings.splits) == {"train": 1, "test": 1}


def test_models_and_runs(run, captioner, tmp_path, capsys):
    assert "vision encoder" in prints(capsys, "inspect", captioner)
    text = prints(capsys, "inspect", run)
    assert "training run" in text and "1 epoch;" in text and "best model" in text
    text = prints(capsys, "inspect", run / "best")
    assert "ngsan" in text and "feature dimension" in text and "weights" in text
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "ngsan"}))
    assert "no weights" in fails(capsys, "inspect", tmp_path)


def test_folders_of_images(tmp_path, capsys):
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for name, size in (("1.png", (10, 20)), ("more/2.jpg", (30, 40)), ("more/3.png", (16, 18))):
        Image.new("RGB", size).save(photos / name)
    (photos / "notes.txt").write_text("not an image")
    findings = inspect_images(photos)
    assert (findings.num_images, findings.num_problems, findings.spreads["captions"].total()) == (3, 0, 0)
    assert sorted(findings.spreads["widths"])[::2] == [10, 30] and max(findings.spreads["heights"]) == 40
    (photos / "1.png").write_bytes(b"no image")
    (photos / "more" / "4.png").symlink_to(photos / "gone")
    findings = inspect_images(photos)
    assert (findings.num_images, findings.num_problems) == (2, 2) and "1.png" in findings.problem
    assert "BytesIO" not in findings.problem
    text = finds(capsys, f"images:{photos}")
    assert "folder of images" in text and "1.png" in text and "2 in all" in text


def test_folders_of_videos(tmp_path, capsys):
    pytest.importorskip("av")
    for name in ("1.mp4", "2.mkv"):
        write_clip(tmp_path / name, 8)
    (tmp_path / "metadata.csv").write_text("file_name,caption,split\n1.mp4,a dog,train\n2.mkv,a cat,test\n")
    for place in (tmp_path, f"videos:{tmp_path}"):
        text = prints(capsys, "inspect", place)
        assert "2 videos" in text and "train 1, test 1" in text and "width in pixels: 32" in text
    (tmp_path / "2.mkv").write_bytes(b"no video")
    assert "1 videos" in (text := finds(capsys, tmp_path)) and "2.mkv" in text


def test_search_indexes(tmp_path, capsys):
    written(tmp_path / "index", leave_out=[1])
    text = finds(capsys, tmp_path / "index")
    assert "search index" in text and "3 images of 5 in photos" in text and "1 of 3" in text
    written(tmp_path / "index")
    text = prints(capsys, "inspect", tmp_path / "index")
    assert "5 images of 5" in text and "some/model" in text and "no problem" in text
    embeddings = tmp_path / "index" / "shard-000002" / "embeddings.npy"
    embeddings.write_bytes(embeddings.read_bytes()[:-2])
    assert "shard-000002" in fails(capsys, "inspect", tmp_path / "index")
