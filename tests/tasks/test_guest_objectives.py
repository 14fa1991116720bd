"""Objectives for captioners of transformers: their losses, their probabilities, and one encoding per image."""

import pytest
import torch

from hf_ngsan.data.collator import IGNORED_LABEL
from hf_ngsan.guests.captioners import guest_of, image_text_processor
from hf_ngsan.models.text_scores import token_log_probabilities
from hf_ngsan.tasks.captioning_models import GuestSelfCritical, GuestTeacherForcing
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.self_critical import SelfCriticalSettings
from hf_ngsan.training.objectives.self_critical_rewards import TextRewards
from hf_ngsan.training.task import Update
from tests.guests.tiny import CAPTIONERS, photos, tiny
from tests.tables import each_row

CAPTIONS = [["a red ball", "the cat on it"], ["two dog in the photo", None]]
REFERENCES = [["a red ball on the left", "the ball"], ["two dog in the photo"], ["a cat"], ["the dog on the right"]]
REMEMBERED = ("blip", "git", "vit_gpt2", "blip2", "llava")


def tiny_guest(name: str):
    model, processor = tiny(name)
    parts = list(processor) if isinstance(processor, tuple) else [processor]
    guest = guest_of(model, image_text_processor("", parts))
    return guest, guest.batch([photos(1, seed)[0] for seed in range(2)], CAPTIONS)


def critical(guest, **settings) -> GuestSelfCritical:
    settings = SelfCriticalSettings(**{"samples_per_image": 3, "max_new_tokens": 5, **settings})
    rewards = TextRewards(REFERENCES, guest.text_of, guest.end_token_id, weights={"cider_d": 1.0})
    return GuestSelfCritical(guest, rewards, settings)


def prepared(objective, batch, **update) -> dict:
    batches = [MicroBatch({**batch, "row_index": torch.tensor([0, 1])}, 2)]
    return objective.prepare(objective.guest.model, batches, Update(0, 1, **update))[0]


def gradients(objective, inputs) -> list[torch.Tensor]:
    model = objective.guest.model
    loss, _ = objective.loss(model, inputs)
    actual = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros(1) if item is None else item for item in actual]


def own_loss(guest, visual, labels) -> torch.Tensor:
    """The model's loss, with each image repeated for each of its captions."""
    inputs = guest.with_captions(visual, labels)
    if "pixel_values" in inputs:
        inputs["pixel_values"] = inputs["pixel_values"].repeat_interleave(len(labels) // 2, dim=0)
    if guest.model.config.is_encoder_decoder:
        return guest.model(**inputs, labels=labels).loss
    last = labels[:, -1:]
    full = {"input_ids": last.clamp(min=0), "attention_mask": (last != IGNORED_LABEL).long()}
    full |= {name: torch.full_like(last, value) for name, value in guest.beside_words.items() if name in inputs}
    inputs |= {name: torch.cat([inputs[name], value.to(inputs[name].dtype)], dim=1) for name, value in full.items()}
    before = labels.new_full((len(labels), inputs["input_ids"].shape[1] - labels.shape[1]), IGNORED_LABEL)
    return guest.model(**inputs, labels=torch.cat([before, labels], dim=1)).loss


@each_row("name", CAPTIONERS)
def test_the_loss_is_the_models_own(name):
    guest, batch = tiny_guest(name)
    labels = batch.pop("labels")
    objective = GuestTeacherForcing(guest)
    inputs = objective.prepare_batch(guest.model, {**batch, "labels": labels}, Update(0, 0))
    with torch.no_grad():
        loss = objective.loss(guest.model, inputs)[0] / objective.weight(inputs)
        torch.testing.assert_close(loss, own_loss(guest, batch, labels), rtol=1e-6, atol=1e-6)


def test_label_smoothing_is_that_of_the_model_unless_another_is_set():
    guest, batch = tiny_guest("blip")
    guest.model.config.text_config.label_smoothing = guest.model.text_decoder.label_smoothing = 0.1
    objective = GuestTeacherForcing(guest)
    inputs = objective.prepare_batch(guest.model, batch, Update(0, 0))
    with torch.no_grad():
        loss = objective.loss(guest.model, inputs)[0] / objective.weight(inputs)
        visual = {"pixel_values": batch["pixel_values"]}
        torch.testing.assert_close(loss, own_loss(guest, visual, batch["labels"]), rtol=1e-6, atol=1e-6)
    assert GuestTeacherForcing(guest, 0.3).label_smoothing == 0.3
    assert GuestTeacherForcing(guest, 0.0).label_smoothing == 0.0


@each_row("name", CAPTIONERS)
def test_samples_have_the_probabilities_with_which_the_model_writes_them(name):
    guest, batch = tiny_guest(name)
    objective = critical(guest, baseline="greedy")
    inputs = prepared(objective, batch)
    labels = inputs["labels"]
    samples = labels.masked_fill(labels == IGNORED_LABEL, objective.policy.pad_token_id)
    visual = {name: item for name, item in batch.items() if name != "labels"}
    before = guest.before_captions(visual).repeat_interleave(3, dim=0)
    with torch.no_grad():
        logits = objective.logits(guest.model, without_targets(inputs)).float()
    actual = logits.log_softmax(-1).gather(-1, samples[..., None]).squeeze(-1)
    expected = token_log_probabilities(guest.model, visual, torch.cat([before, samples], dim=1))
    is_word = labels != IGNORED_LABEL
    torch.testing.assert_close(actual[is_word], expected[is_word], rtol=1e-4, atol=1e-5)


def without_targets(inputs: dict) -> dict:
    return {name: item for name, item in inputs.items() if name not in ("labels", "advantages", "statistics")}


@each_row("name", CAPTIONERS)
def test_the_greedy_caption_is_that_of_generate(name):
    guest, batch = tiny_guest(name)
    objective = critical(guest, baseline="greedy")
    visual = {name: item for name, item in batch.items() if name != "labels"}
    encoded, _ = objective.encode(guest.model, visual, False)
    samples, greedy = objective.draw_captions(guest.model, encoded, torch.arange(2), Update(0, 1))
    assert len(samples) == 6
    greedily = {"max_new_tokens": 5, "do_sample": False, "num_beams": 1}
    plain = guest.model.generate(**visual, **greedily, suppress_tokens=list(objective.policy.suppressed_tokens))
    plain = plain[:, guest.before_captions(visual).shape[1] :]
    end = objective.policy.eos_token_id
    assert [cut(row, end) for row in greedy.tolist()] == [cut(row, end) for row in plain.tolist()]


def cut(row: list[int], end: int) -> list[int]:
    return row[: row.index(end)] if end in row else row


@each_row("baseline", ["greedy", "leave_one_out"])
@each_row("name", REMEMBERED)
def test_the_gradient_is_the_same_from_one_encoding_as_from_a_new_one(name, baseline):
    guest, batch = tiny_guest(name)
    objective = critical(guest, baseline=baseline)
    once = gradients(objective, prepared(objective, batch, one_process=True))
    again = gradients(objective, prepared(objective, batch))
    assert any(item.abs().max() > 1e-3 for item in once)
    for first, second in zip(once, again, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_rewards_are_of_the_words_of_decoded_captions():
    guest, _ = tiny_guest("blip")
    rewards = TextRewards(REFERENCES, guest.text_of, guest.end_token_id, weights={"cider_d": 1.0})
    full = guest.caption_ids("two dog in the photo")
    samples = torch.tensor([full, [*full[:-1], 0]])
    complete, without_end = rewards(samples, torch.tensor([1, 1])).tolist()
    assert complete == pytest.approx(10.0)
    assert 0 < without_end < complete
