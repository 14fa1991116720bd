"""Training of dual encoders of transformers: their losses, large batches in parts, resumed runs."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from hf_ngsan.guests import DualEncoder, dual_encoder_of
from hf_ngsan.tasks import RetrievalConfig, train
from hf_ngsan.tasks.retrieval import pairs_of_guest
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.contrastive import Contrastive
from hf_ngsan.training.task import Update
from tests.guests.tiny import DUAL_ENCODERS, photos, tiny
from tests.tables import each_row

SPEC = "scenes:size=16,validation=4,images=true,image_size=32"
CAPTIONS = ["a red ball", "two dog on the photo", "the blue cat", "it"]


def tiny_encoder(name: str) -> DualEncoder:
    model, processor = tiny(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return dual_encoder_of(model, processor)


def batch_of(encoder: DualEncoder, captions: int = 1) -> dict[str, torch.Tensor]:
    images = [photos(1, seed)[0] for seed in range(4)]
    texts = [[CAPTIONS[(image + step) % 4] for step in range(captions)] for image in range(4)]
    return {**pairs_of_guest(encoder, images, texts), "row_index": torch.arange(4)}


def gradients(encoder: DualEncoder) -> dict[str, torch.Tensor]:
    return {name: item.grad.clone() for name, item in encoder.model.named_parameters() if item.grad is not None}


@each_row("name", DUAL_ENCODERS)
def test_the_loss_and_its_gradient_are_the_models_own(name):
    encoder = tiny_encoder(name)
    batch = batch_of(encoder)
    inputs = {key: value for key, value in batch.items() if key != "row_index"}
    loss = encoder.model(**inputs, return_loss=True).loss
    loss.backward()
    expected = gradients(encoder)
    objective = Contrastive(None, encoder.pair_losses, encoder.loss_parameters)
    (prepared,) = objective.prepare(encoder.model, [MicroBatch(batch, 4)], Update(0, 0, one_process=True))
    torch.testing.assert_close(prepared["losses"].mean(), loss.detach(), rtol=1e-6, atol=1e-6)
    encoder.model.zero_grad()
    (objective.loss(encoder.model, prepared)[0] / objective.weight(prepared)).backward()
    actual = gradients(encoder)
    assert actual.keys() == expected.keys()
    assert {"logit_scale", "temperature"} & actual.keys()
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=1e-4, atol=1e-5)


@each_row("name", ["clip", "align"])
def test_texts_of_one_image_are_not_negatives_of_each_other(name):
    """Compares with a loop over pairs, each without the other captions of its image."""
    encoder = tiny_encoder(name)
    cosines = torch.randn(2, 5, generator=torch.Generator().manual_seed(1)) / 3
    is_own = torch.tensor([[True, True, False, False, False], [False, False, True, True, True]])
    with torch.no_grad():
        actual = encoder.pair_losses(cosines, is_own)
        for text in range(5):
            image = int(is_own[:, text].long().argmax())
            kept = [text, *(other for other in range(5) if not is_own[image, other])]
            if name == "clip":
                logits, smoothing = cosines * encoder.model.logit_scale.exp(), 0.0
            else:
                logits, smoothing = cosines / encoder.model.temperature, 0.1
            over_texts = cross_entropy(logits[image, kept][None], torch.tensor([0]), label_smoothing=smoothing)
            over_images = cross_entropy(logits[:, text][None], torch.tensor([image]), label_smoothing=smoothing)
            torch.testing.assert_close(actual[text], (over_texts + over_images) / 2, rtol=1e-5, atol=1e-6)


def sections(start: Path, folder: Path, **training) -> dict:
    return {
        "model": {"init_from": str(start)},
        "data": {"spec": SPEC},
        "training": {
            "epochs": 2, "batch_size": 8, "learning_rate": 0.003, "warmup_epochs": 0, "schedule": "constant",
            "tracker": None, "num_threads": 1, "output_dir": str(folder), **training,
        },
    }  # fmt: skip


def config_of(start: Path, folder: Path, lora=(), **training) -> RetrievalConfig:
    return RetrievalConfig.from_dict({**sections(start, folder, **training), "lora": dict(lora)})


@each_row(("own_loss", "lora"), [(True, {}), (False, {}), (True, {"rank": 2})])
def test_a_frozen_scale_stays_as_it_is(guest, tmp_path, own_loss, lora):
    train(config_of(guest("siglip"), tmp_path / "run", lora, freeze=["logit_scale"], own_loss=own_loss, epochs=1))
    before, after = (load_file(item / "model.safetensors") for item in (guest("siglip"), tmp_path / "run" / "last"))
    assert torch.equal(before["logit_scale"], after["logit_scale"])
    assert torch.equal(before["logit_bias"], after["logit_bias"]) == bool(lora or not own_loss)
