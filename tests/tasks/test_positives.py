"""Right answers by COCO's ids become places among the rows."""

import json

import numpy as np
import pytest
from datasets import Dataset

from hf_ngsan.data.errors import DataError
from hf_ngsan.tasks import PairEmbeddings
from hf_ngsan.tasks.retrieval_search import read_positives

ROWS = Dataset.from_dict({"image_id": [9, 4], "captions": [["a dog", "a dog"], ["a  cat sits", "a dog"]]})
ANNOTATIONS = [(70, 4, "a cat sits "), (71, 9, "a dog"), (72, 9, "a dog"), (73, 4, "a dog"), (74, 5, "elsewhere")]


@pytest.fixture
def files(tmp_path):
    def write(image_to_text, text_to_image):
        coco = {"annotations": [{"id": key, "image_id": of, "caption": text} for key, of, text in ANNOTATIONS]}
        contents = {"i2t.json": image_to_text, "t2i.json": text_to_image, "captions.json": coco}
        for name, content in contents.items():
            (tmp_path / name).write_text(json.dumps(content))
        return [tmp_path / name for name in contents]

    return write


def test_ids_become_places(files):
    positives = read_positives(*files({"9": [71, 72, 73], "4": [70]}, {"73": [4, 9], "71": [9]}), ROWS)
    assert positives.image_to_text == {0: [0, 1, 3], 1: [2]}
    assert positives.text_to_image == {3: [1, 0], 0: [0]}
    images, captions = np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.float32)
    scores = PairEmbeddings(images, captions, np.array([0, 0, 1, 1])).map_at_r(positives)
    # image 0 finds captions 0, 3 (right) and 1 (right); image 1 finds caption 1 first (wrong)
    assert scores == pytest.approx({"image_to_text_map_at_r": 50.0, "text_to_image_map_at_r": 100.0})


def test_what_the_rows_do_not_have(files):
    for image_to_text, named in (({"5": [71]}, "5"), ({"9": [74]}, "74")):
        with pytest.raises(DataError, match=named):
            read_positives(*files(image_to_text, {"71": [9]}), ROWS)
