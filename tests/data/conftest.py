import json

import datasets
import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache for one test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


class CocoFolder:
    """A small COCO layout that a test can change before it is written."""

    def __init__(self, directory):
        self.directory = directory
        self.instances = {
            "images": [{"id": 7, "width": 200, "height": 100}, {"id": 3, "width": 100, "height": 100}],
            "categories": [{"id": 90, "name": "cat"}, {"id": 5, "name": "dog"}, {"id": 17, "name": "bird"}],
            "annotations": [
                {"id": 1, "image_id": 7, "category_id": 5, "bbox": [20, 10, 100, 50]},
                {"id": 2, "image_id": 3, "category_id": 17, "bbox": [0, 0, 100, 100]},
                {"id": 3, "image_id": 7, "category_id": 90, "bbox": [150, 50, 50, 50]},
            ],
        }
        self.captions = {
            "annotations": [
                {"id": 12, "image_id": 7, "caption": "A dog."},
                {"id": 11, "image_id": 7, "caption": "  A cat\nand a\t dog. \n"},
                {"id": 10, "image_id": 3, "caption": "A bird"},
            ]
        }

    def write(self, split="train"):
        self.directory.mkdir(exist_ok=True)
        for kind in ("instances", "captions"):
            path = self.directory / f"{kind}_{split}.json"
            path.write_text(json.dumps(getattr(self, kind)), encoding="utf-8")
        return self.directory


@pytest.fixture
def coco_folder(tmp_path):
    return CocoFolder(tmp_path / "layout")
