"""The captioner in transformers' own trainer, unchanged."""

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_processor

CAPTIONS = ["a red ball", "the box is near the ring", "two balls", "a ring and a large box"]


@pytest.fixture
def rows() -> list[dict]:
    images = random_images([5, 2, 3, 4])
    apart = [one_image(images, row) for row in range(4)]
    arrays = [{name: row[name][0].numpy() for name in ("visual_features", "visual_boxes")} for row in apart]
    return [{**row, "captions": caption} for row, caption in zip(arrays, CAPTIONS, strict=True)]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    return tiny_processor()(**{name: [row[name] for row in rows] for name in rows[0]})


def train(rows: list[dict], folder, **options) -> Seq2SeqTrainer:
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder),
        remove_unused_columns=False,
        predict_with_generate=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    model = tiny_captioner(dropout=0, attention_dropout=0)
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=collate)
    trainer.train()
    return trainer


def test_trainer_learns_the_captions_and_generates(rows, tmp_path):
    trainer = train(rows, tmp_path, max_steps=60, learning_rate=3e-3, per_device_train_batch_size=4)
    losses = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    prediction = trainer.predict(rows, num_beams=2, max_new_tokens=8)
    assert prediction.metrics["test_loss"] < losses[0] / 2
    text = tiny_processor().batch_decode(prediction.predictions.clip(min=0), skip_special_tokens=True)
    assert text[0] == "a red ball"


def test_accumulated_gradients_are_those_of_the_whole_batch(rows, tmp_path):
    """The loss is per word of the whole batch, though its parts have different numbers of words."""
    options = {
        "max_steps": 1,
        "learning_rate": 0.1,
        "optim": "sgd",
        "max_grad_norm": 0,
        "lr_scheduler_type": "constant",
    }
    weights = []
    for size, steps in ((4, 1), (2, 2), (1, 4)):
        torch.manual_seed(0)
        trainer = train(
            rows, tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=steps, seed=3, **options
        )
        weights.append([parameter.detach() for parameter in trainer.model.parameters()])
    for accumulated in weights[1:]:
        torch.testing.assert_close(accumulated, weights[0], rtol=1e-4, atol=1e-5)
