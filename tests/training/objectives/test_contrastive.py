import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from hf_ngsan.models.contrastive_losses import pair_losses
from hf_ngsan.tasks import train
from hf_ngsan.training import ConfigError
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.contrastive import Contrastive, ContrastiveSettings, RowDropout
from hf_ngsan.training.task import Update
from tests.tables import each_row

from ...tasks.tiny_retrieval import tiny_training_config

LOSSES = ("hardest", "all", "info_nce")


def loss_by_loops(similarities, image_rows, text_rows, settings) -> list[float]:
    """The formulas of `pair_losses`, one pair and one negative at a time."""
    values, rows = [], image_rows.tolist()
    for text, row in enumerate(text_rows.tolist()):
        positive = float(similarities[rows.index(row), text])
        over_texts = [float(similarities[rows.index(row), t]) for t in range(len(text_rows)) if text_rows[t] != row]
        over_images = [float(similarities[i, text]) for i in range(len(rows)) if rows[i] != row]
        if settings.loss == "info_nce":
            sums = [
                sum(math.exp((x - positive) / settings.temperature) for x in over) for over in (over_texts, over_images)
            ]
            values.append(sum(math.log(1 + total) for total in sums) / 2)
            continue
        reduce = sum if settings.loss == "all" else max
        excesses = [[max(settings.margin - positive + x, 0.0) for x in over] for over in (over_texts, over_images)]
        values.append(sum(reduce([*others, 0.0]) for others in excesses))
    return values


def losses_of(similarities, image_rows, text_rows, settings) -> torch.Tensor:
    options = {"loss": settings.loss, "margin": settings.margin, "temperature": settings.temperature}
    return pair_losses(similarities, image_rows[:, None] == text_rows, **options)


@each_row("texts_per_image", [1, 3])
@each_row("rows", [[7, 2, 30, 11], [5]])
@each_row("loss", LOSSES)
def test_losses_are_the_formulae_and_one_image_alone_has_none(loss, rows, texts_per_image):
    image_rows = torch.tensor(rows)
    text_rows = image_rows.repeat_interleave(texts_per_image)
    similarities = torch.randn(len(rows), len(text_rows)).double().requires_grad_()
    settings = ContrastiveSettings(loss=loss, margin=0.3, temperature=0.2)
    expected = loss_by_loops(similarities.detach(), image_rows, text_rows, settings)
    losses = losses_of(similarities, image_rows, text_rows, settings)
    assert losses.tolist() == pytest.approx(expected, abs=1e-12)
    assert (max(expected) > 0) == (len(rows) > 1)
    losses.sum().backward()
    assert similarities.grad.isfinite().all()


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.image_layer, self.text_layer = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)

    def forward(self, pixels, words):
        self.calls += 1
        return ModelOutput(image_embeds=self.image_layer(pixels), text_embeds=self.text_layer(words))


@each_row("loss", LOSSES)
@each_row(("cuts", "one_process", "calls"), [([4], True, 1), ([4], False, 4), ([1, 3], True, 4), ([2, 1, 1], False, 8)])
@each_row("reduction", ["mean", "sum"])
def test_gradients_are_those_of_the_whole_batch(loss, cuts, one_process, calls, reduction):
    torch.manual_seed(0)
    model, settings = Linear(), ContrastiveSettings(loss=loss, loss_reduction=reduction)
    pixels, words, rows = torch.randn(4, 6), torch.randn(8, 6), torch.tensor([3, 9, 4, 0])
    similarities = model.image_layer(pixels) @ model.text_layer(words).mT
    losses = losses_of(similarities, rows, rows.repeat_interleave(2), settings)
    if reduction == "sum":
        losses = losses * len(losses)  # the loop divides by the number of pairs
    expected = torch.autograd.grad(losses.sum(), list(model.parameters()))

    batches, start = [], 0
    for size in cuts:
        end = start + size
        inputs = {"pixels": pixels[start:end], "words": words[2 * start : 2 * end], "row_index": rows[start:end]}
        batches.append(MicroBatch(inputs, size))
        start = end
    if not one_process:
        batches.append(MicroBatch({"pixels": pixels[:1], "words": words[:2], "row_index": rows[:1]}, 0))
    objective = Contrastive(settings)
    sums = {}
    for prepared in objective.prepare(model, batches, Update(0, 0, one_process=one_process)):
        loss, statistics = objective.loss(model, prepared)
        loss.backward()
        sums |= {name: sums.get(name, 0.0) + value for name, value in statistics.items()}
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
    assert model.calls == calls
    summary = objective.summary({name: float(value) for name, value in sums.items()})
    assert summary["loss"] == pytest.approx(float(losses.mean().detach()), rel=1e-5)
    assert 0 <= summary["batch_recall"] <= 1
    assert summary["chance_recall"] == pytest.approx(1 / 4)


DATA = {"spec": "scenes:size=41,validation=12,seed=4"}


@pytest.mark.parametrize("loss", ["hardest", pytest.param("info_nce", marks=pytest.mark.slow)])
def test_any_number_of_accumulation_steps_gives_the_same_weights(tmp_path, loss):
    """Dropout masks must not depend on how a batch is split either."""
    actual = []
    for number, training in enumerate(
        [{"learning_rate": 0.0}, *({"gradient_accumulation_steps": n} for n in (1, 3, 8))]
    ):
        data, contrastive = {**DATA, "captions_per_image": 2}, {"loss": loss}
        sections = {"model": {"dropout": 0.3}, "data": data, "contrastive": contrastive}
        folder = tmp_path / str(number)
        assert (
            train(tiny_training_config(folder, training={"epochs": 1, **training}, **sections)).history[-1]["step"] == 6
        )
        state = load_file(folder / "last" / "model.safetensors")
        actual.append(torch.cat([state[name].double().flatten() for name in sorted(state)]))
    start, item, *others = actual
    for other in others:
        torch.testing.assert_close(other, item, rtol=0, atol=1e-3)
    assert float((item - start).abs().max()) > 0.02


def test_a_short_last_batch_is_left_out_where_asked(tmp_path):
    training = {"epochs": 1, "drop_last": True}
    config = tiny_training_config(tmp_path / "run", data=DATA, training={**training, "batch_size": 12})
    assert train(config).history[-1]["step"] == 3
    with pytest.raises(ConfigError, match=r"batch_size.* 41 images"):
        train(tiny_training_config(tmp_path / "none", data=DATA, training={**training, "batch_size": 42}))


def drop(rows, shape, p=0.4, seed=3, step=5):
    with RowDropout(torch.tensor(rows), seed, step):
        return functional.dropout(torch.ones(shape), p)


def test_a_rows_mask_depends_on_update_row_and_call_and_not_on_the_rows_beside_it_or_on_padding():
    full = drop([4, 7, 9], (3, 6, 5))
    assert torch.equal(drop([4, 7, 9], (3, 6, 5)), full)
    assert torch.equal(drop([9, 4], (2, 6, 5)), full[[2, 0]])
    assert torch.equal(drop([7], (1, 4, 5)), full[1:2, :4])
    masks = [drop([4], (1, 64)), drop([5], (1, 64)), drop([4], (1, 64), step=6), drop([4], (1, 64), seed=4)]
    with RowDropout(torch.tensor([4]), 3, 5):
        first, second = (functional.dropout(torch.ones(2, 64), 0.4) for _ in range(2))
    masks += [second[:1], first[1:]]
    assert torch.equal(first[:1], masks[0])
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 6


def test_modules_drop_in_training_mode_only_in_place_where_asked_and_other_tensors_by_the_generator():
    states = torch.ones(2, 50)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        assert torch.equal(nn.Dropout(0.5).eval()(states), states)
        dropped = nn.Dropout(0.5, inplace=True)(states)
        torch.manual_seed(1)
        plain = functional.dropout(torch.ones(5, 40), 0.5)
    assert dropped is states
    assert torch.equal(dropped, drop([1, 2], (2, 50), p=0.5, seed=0, step=0))
    torch.manual_seed(1)
    assert torch.equal(plain, functional.dropout(torch.ones(5, 40), 0.5))


def test_layers_are_not_computed_again_with_other_masks():
    model = Linear()
    model.is_gradient_checkpointing = True
    with pytest.raises(ValueError, match="checkpointing"):
        Contrastive().prepare(model, [], Update(0, 0))


@each_row(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": "bool"}, {"mask": "float", "scale": 2}, {"enable_gqa": True}],
)
def test_attention_is_softmax_with_a_mask_of_its_own(options):
    options, generator = dict(options), torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=generator).double()
    heads = 2 if "enable_gqa" in options else 4
    key, value = key[:, :heads], value[:, :heads]
    allowed = (torch.rand(5, 5, generator=generator) > 0.3) | torch.eye(5, dtype=torch.bool)
    masks = {None: None, "bool": allowed, "float": torch.randn(5, 5, generator=generator).double()}
    bias, attention = masks[options.pop("mask", None)], functional.scaled_dot_product_attention
    weights = attention(query, key, torch.eye(5).double().expand(2, heads, 5, 5), bias, **options)
    actual = []
    for compute in (
        lambda: attention(query, key, value, bias, dropout_p=0.5, **options),
        lambda: functional.dropout(weights, 0.5) @ value.repeat_interleave(4 // heads, 1),
        lambda: attention(query, key, value, bias, **options),
    ):
        with RowDropout(torch.tensor([1, 2]), 0, 0):
            actual.append(compute())
    torch.testing.assert_close(actual[0], actual[1])
    torch.testing.assert_close(actual[2], weights @ value.repeat_interleave(4 // heads, 1))
