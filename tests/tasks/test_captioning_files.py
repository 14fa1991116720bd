"""Captions of files by ONNX graphs: unreadable files are reported in order; scores are mean log-probabilities."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.tasks.captioning_files import caption_files

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "red", "ball"]
LOGITS = np.arange(30.0).reshape(5, 6) % 7
LOG_PROBABILITIES = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))


class Graphs:
    """Captions every image as "red ball", with the same probabilities."""

    settings = {"image": {"height": 8, "width": 8}}
    decoding = {"eos_token_ids": [2]}
    words = SimpleNamespace(vocabulary=WORDS, special={0, 1, 2}, decode=lambda ids: ["red ball"] * len(ids))

    def prepare(self, images):
        return {"sizes": np.array([image.size for image in images])}

    def encode(self, inputs):
        return inputs

    def generate(self, inputs, **search):
        return np.array([[1, 4, 5, 2, 0]] * len(inputs["sizes"]))

    def log_probabilities(self, inputs, ids):
        return np.broadcast_to(LOG_PROBABILITIES[: ids.shape[1]], (*ids.shape, 6))


def test_files_are_captioned_in_their_order_and_bad_ones_are_told(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "0.jpg")
    (tmp_path / "2.png").write_bytes(b"no image")
    Image.new("RGBA", (20, 20)).save(tmp_path / "3.png")
    paths = [str(tmp_path / name) for name in ("0.jpg", "1.png", "2.png", "3.png")]
    actual = list(caption_files(Graphs(), paths, batch_size=3, with_scores=True))
    assert [result.name for result in actual] == paths
    assert [result.caption for result in actual] == ["red ball", None, None, "red ball"]
    assert "1.png" in actual[1].error and "2.png" in actual[2].error and actual[0].error is None
    first, second, end = LOG_PROBABILITIES[0, 4], LOG_PROBABILITIES[1, 5], LOG_PROBABILITIES[2, 2]
    assert actual[3].score == pytest.approx((first + second + end) / 3)
    assert actual[3].words == [("red", pytest.approx(first)), ("ball", pytest.approx(second))]
