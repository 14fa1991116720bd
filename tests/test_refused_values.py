"""Values that would give a wrong result without a message are refused by the public functions that take them."""

import numpy as np
import pytest
import torch

from hf_ngsan.data import CaptionCollator, EpochSampler
from hf_ngsan.metrics import CaptionMetrics, CiderD, DocumentFrequency
from hf_ngsan.metrics.comparison import compare
from hf_ngsan.metrics.registry import METRICS
from hf_ngsan.models.contrastive_losses import pair_losses
from hf_ngsan.models.geometry import relative_geometry
from hf_ngsan.models.modeling_vision import in_groups_of_one_size
from hf_ngsan.tasks import load_training_config, train
from hf_ngsan.tasks.captioning_analysis import change_boxes
from tests.tables import each_row

BOXES = np.array([[0.1, 0.1, 0.2, 0.2], [0.5, 0.5, 0.6, 0.6]])


def train_with(section: str, **values) -> None:
    config = load_training_config("ngsan/scenes", [])
    vars(getattr(config, section)).update(values)
    train(config)


@each_row(
    "call",
    [
        lambda: in_groups_of_one_size(dict, torch.zeros(3, 3, 4, 4), torch.ones(1, 4, 4), None),
        lambda: in_groups_of_one_size(dict, torch.zeros(3, 3, 4, 4), torch.ones(3, 2, 2), None),
        lambda: compare(np.append(np.ones(29), np.nan)),
        lambda: train_with("training", schedule="cosin"),
        lambda: train_with("data", captions_per_image=-1),
        lambda: CaptionCollator(dict, captions_per_image=0),
        lambda: CaptionCollator(dict, max_caption_length=-1),
        lambda: EpochSampler(10, 2, seed=0, start_batch=-1),
        lambda: EpochSampler(10, 2, seed=0, num_processes=2, process_index=2),
        lambda: pair_losses(torch.eye(2), torch.eye(2).bool(), loss="infonce"),
        lambda: relative_geometry(torch.tensor(BOXES[None]), "sign"),
        lambda: change_boxes(BOXES, "swapp"),
    ],
)
def test_values_without_a_sense_are_refused(call):
    with pytest.raises(ValueError):
        call()


def test_a_registered_metric_keeps_its_document_frequencies(monkeypatch):
    frequencies = DocumentFrequency.from_captions([["a dog runs"], ["two dogs run"], ["a cat"]])
    monkeypatch.setitem(METRICS, "with_frequencies", lambda: CiderD(document_frequency=frequencies))
    texts = {"predictions": ["a dog", "a cat"], "references": [["a dog runs"], ["a cat sits"]]}
    expected = CiderD(document_frequency=frequencies).compute(**texts)
    assert CaptionMetrics(metrics=["with_frequencies"]).compute(**texts) == expected
    with pytest.raises(ValueError):
        CaptionMetrics(metrics=["cider_d", "with_frequencies"]).compute(**texts)
