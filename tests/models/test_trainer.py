"""Every captioner in the unchanged trainer of transformers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

from tests.models import tiny
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.models.tiny import one_image, random_images, tiny_processor

CAPTIONS = [
    *["a red ball", "the box is near the ring", "two balls", "a ring and a large box"],
    *["the blue ball is left of the ring", "a small box", "two rings above the box", "a green ball on a box"],
]
CAPTIONERS = {"ngsan": tiny, "rstnet": rstnet, "spatial_captioner": spatial_captioner}


@pytest.fixture(params=["ngsan", *(pytest.param(name, marks=pytest.mark.slow) for name in [*CAPTIONERS][1:])])
def new_captioner(request) -> Callable[[], PreTrainedModel]:
    """Makes the same captioner without dropout in every call."""
    return lambda: CAPTIONERS[request.param].tiny_captioner(dropout=0, attention_dropout=0)


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    images = random_images([5, 2, 3, 4, 4, 1, 6, 2])
    apart = [one_image(images, row) for row in range(len(CAPTIONS))]
    arrays = [{name: row[name][0].numpy() for name in ("visual_features", "visual_boxes")} for row in apart]
    return [{**row, "captions": caption} for row, caption in zip(arrays, CAPTIONS, strict=True)]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    return tiny_processor()(**{name: [row[name] for row in rows] for name in rows[0]})


def trainer_of(model, rows: list[dict], folder: Path, **options) -> Seq2SeqTrainer:
    options |= {"save_strategy": "no", "lr_scheduler_type": "constant", "report_to": [], "disable_tqdm": True}
    options |= {"remove_unused_columns": False, "predict_with_generate": True, "use_cpu": True}
    arguments = Seq2SeqTrainingArguments(output_dir=str(folder), **options)
    return Seq2SeqTrainer(model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=collate)


def test_accumulated_gradients_are_those_of_the_whole_batch(new_captioner, rows, tmp_path):
    """The loss is per word of the complete batch, although its parts have different numbers of words."""
    options = {"max_steps": 1, "learning_rate": 0.1, "optim": "sgd", "max_grad_norm": 0}
    weights = []
    for size, steps in ((8, 1), (1, 8)):
        model = new_captioner()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        accumulation = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        trainer_of(model, rows, tmp_path, seed=3, **accumulation, **options).train()
        weights.append([parameter.detach() for parameter in model.parameters()])
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-6)
    assert max(float((new - old).abs().max()) for new, old in zip(weights[0], before, strict=True)) > 1e-3
