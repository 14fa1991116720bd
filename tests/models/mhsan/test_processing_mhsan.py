"""The processor of the dual encoder: texts, features, and errors."""

import pytest
import torch

from tests.models.mhsan.tiny import tiny_processor


def test_texts_and_features_are_padded():
    batch = tiny_processor()(text=["red ball", "a blue box"], visual_features=[torch.ones(3, 12), torch.ones(2, 12)])
    assert batch["input_ids"].tolist() == [[5, 8, 0], [4, 6, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["visual_features"].shape == (2, 3, 12)
    assert batch["visual_attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_a_long_text_is_cut_only_if_asked_for():
    processor = tiny_processor()
    processor.tokenizer.model_max_length = 3
    with pytest.raises(ValueError, match=r"Text 1 .* 4 .* 3"):
        processor(text=["a ball", "a red ball near"])
    assert processor(text=["a red ball near"], truncation=True)["input_ids"].shape == (1, 3)
    assert processor(text=["a red"], truncation=True, max_length=1)["input_ids"].shape == (1, 1)
    assert processor.tokenizer.backend_tokenizer.truncation is None
