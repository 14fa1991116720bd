"""The diversity of heads over a dataset is the mean over its images and captions."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_ngsan.tasks.retrieval_search import measure_head_diversity
from tests.models.mhsan.tiny import tiny_model, tiny_processor
from tests.models.tiny import FEATURE_SIZE

ROWS = Dataset.from_list(
    [
        {
            "image_id": number,
            "visual_features": np.random.default_rng(number).standard_normal((4 + number, FEATURE_SIZE)).tolist(),
            "captions": ["a red ball left of a ring"] * (number + 1),
        }
        for number in range(3)
    ]
)


def penalty(weights):
    return float((weights @ weights.T - torch.eye(len(weights))).square().sum())


def test_it_is_the_mean_over_single_images_and_captions():
    model, processor = tiny_model(), tiny_processor()
    found = measure_head_diversity(model, processor, ROWS, batch_size=2)
    penalties = []
    with torch.no_grad():
        for row in ROWS:
            features = torch.tensor(row["visual_features"])[None]
            penalties.append(penalty(model.get_image_features(visual_features=features).attentions[-1][0]))
    assert found["image_diversity_penalty"] == pytest.approx(np.mean(penalties), abs=1e-5)
    assert {"image_head_overlap", "text_diversity_penalty", "text_head_overlap"} < found.keys()
    assert all(0 <= found[f"{side}_head_overlap"] <= 1 for side in ("image", "text"))


def test_a_side_with_one_head_or_none():
    found = measure_head_diversity(tiny_model(num_image_heads=1, num_text_heads=0), tiny_processor(), ROWS)
    assert found.keys() == {"image_diversity_penalty"}
