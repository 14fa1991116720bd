"""Weights that are not finite are refused, and scores that are not."""

import shutil

import pytest
import torch

from hf_ngsan.loading.models import ModelFolderError, load_captioner
from hf_ngsan.models.text_scores import text_scores

from ..models.tiny import tiny_captioner, tiny_processor


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioner")
    tiny_captioner().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


def test_weights_that_are_not_finite(captioner, tmp_path, capsys):
    model = tiny_captioner()
    next(model.parameters()).data.flatten()[3] = float("nan")
    copy = shutil.copytree(captioner, tmp_path / "changed")
    model.save_pretrained(copy)
    with pytest.raises(ModelFolderError, match="are not finite"):
        load_captioner(copy)


def test_scores_that_are_not_finite(captioner):
    model, processor = load_captioner(captioner)
    for weights in model.parameters():
        weights.data *= 1e20
    size = model.config.visual_feature_size
    inputs = {"visual_features": torch.ones(1, 3, size), "visual_boxes": torch.tensor([[[0, 0, 1, 1.0]] * 3])}
    with pytest.raises(RuntimeError, match="not finite"):
        text_scores(model, processor.tokenizer, inputs, torch.tensor([[1, 5, 6, 2]]))
