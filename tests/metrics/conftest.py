import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class MetricReference:
    """Values of the official evaluation on known captions."""

    def __init__(self, data):
        self.folder, self.coco = data / "metric_reference", data / "coco_val2017"

    def read(self, name):
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def captions_path(self, name):
        folder = self.folder if name.endswith("refs") else self.coco
        return folder / f"captions_{name}.json"

    def captions(self, name, tokenized=None):
        """Captions by image id; tokenized captions if a table from annotation id to text is given."""
        annotations = json.loads(self.captions_path(name).read_text(encoding="utf-8"))["annotations"]
        images = {}
        for row in sorted(annotations, key=lambda row: (row["image_id"], row["id"])):
            text = row["caption"] if tokenized is None else tokenized[str(row["id"])]
            images.setdefault(row["image_id"], []).append(text)
        return images


@pytest.fixture(scope="session")
def metric_reference():
    data = Path(os.environ.get("HF_NGSAN_TEST_DATA", ""), "data")
    if "HF_NGSAN_TEST_DATA" not in os.environ or not (data / "metric_reference").is_dir():
        pytest.skip("HF_NGSAN_TEST_DATA does not name a folder with data/metric_reference")
    return MetricReference(data)


@pytest.fixture(scope="session")
def java():
    """pycocoevalcap and a Java that can run it."""
    if shutil.which("java") is None:
        pytest.skip("there is no java on the PATH")
    return pytest.importorskip("pycocoevalcap", reason="pycocoevalcap (the eval extra) is not installed")


def load_benchmark(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def cider_benchmark():
    return load_benchmark("cider_reward")


@pytest.fixture(scope="session")
def retrieval_benchmark():
    return load_benchmark("retrieval_ranks")
