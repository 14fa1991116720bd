import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from hf_ngsan.models.modeling_mhsan import pair_losses
from hf_ngsan.tasks import RetrievalTask, train
from hf_ngsan.training import ConfigError
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.contrastive import Contrastive, ContrastiveSettings, RowDropout, hashed
from hf_ngsan.training.task import Update
from tests.tables import each_row

from ...tasks.tiny_retrieval import tiny_training_config

LOSSES = ("hardest", "all", "info_nce")


def loss_by_loops(images, texts, image_rows, text_rows, settings) -> list[float]:
    """The formulae of `Contrastive`, one pair and one negative at a time."""
    values = []
    for text, row in enumerate(text_rows.tolist()):
        image = image_rows.tolist().index(row)
        own = float(images[image] @ texts[text])
        over_texts = [float(images[image] @ texts[t]) for t in range(len(texts)) if int(text_rows[t]) != row]
        over_images = [float(images[i] @ texts[text]) for i in range(len(images)) if int(image_rows[i]) != row]
        if settings.loss == "info_nce":
            halves = []
            for others in (over_texts, over_images):
                scores = [math.exp(value / settings.temperature) for value in (own, *others)]
                halves.append(-math.log(scores[0] / sum(scores)) / 2)
            values.append(sum(halves))
            continue
        excesses = [
            [max(settings.margin - own + value, 0.0) for value in others] for others in (over_texts, over_images)
        ]
        reduce = sum if settings.loss == "all" else lambda values: max(values, default=0.0)
        values.append(sum(reduce(others) for others in excesses))
    return values


def losses_of(images, texts, image_rows, text_rows, settings) -> torch.Tensor:
    return pair_losses(
        images @ texts.mT,
        image_rows[:, None] == text_rows,
        loss=settings.loss,
        margin=settings.margin,
        temperature=settings.temperature,
    )


@each_row("texts_per_image", [1, 3])
@each_row("loss", LOSSES)
def test_losses_are_the_formulae(loss, texts_per_image):
    generator = torch.Generator().manual_seed(texts_per_image)
    image_rows = torch.tensor([7, 2, 30, 11])
    text_rows = image_rows.repeat_interleave(texts_per_image)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(number, 5, generator=generator).double(), dim=-1)
        for number in (4, len(text_rows))
    )
    settings = ContrastiveSettings(loss=loss, margin=0.3, temperature=0.2)
    expected = loss_by_loops(images, texts, image_rows, text_rows, settings)
    assert losses_of(images, texts, image_rows, text_rows, settings).tolist() == pytest.approx(expected, abs=1e-12)
    assert max(expected) > 0


@each_row("loss", LOSSES)
def test_one_image_alone_has_no_negative_and_no_loss(loss):
    images, texts, rows = torch.ones(1, 3), torch.rand(2, 3, requires_grad=True), torch.tensor([5])
    losses = losses_of(images, texts, rows, rows.repeat(2), ContrastiveSettings(loss=loss))
    losses.sum().backward()
    assert losses.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert torch.isfinite(texts.grad).all()


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.of_images, self.of_texts = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)

    def forward(self, pixels, words):
        self.calls += 1
        return ModelOutput(image_embeds=self.of_images(pixels), text_embeds=self.of_texts(words))


@each_row("loss", LOSSES)
@each_row(("cuts", "one_process", "calls"), [([4], True, 1), ([4], False, 4), ([1, 3], True, 4), ([2, 1, 1], False, 8)])
def test_gradients_are_those_of_the_whole_batch(loss, cuts, one_process, calls):
    torch.manual_seed(0)
    model, settings = Linear(), ContrastiveSettings(loss=loss)
    pixels, words, rows = torch.randn(4, 6), torch.randn(8, 6), torch.tensor([3, 9, 4, 0])
    losses = losses_of(model.of_images(pixels), model.of_texts(words), rows, rows.repeat_interleave(2), settings)
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


def weights(folder) -> torch.Tensor:
    state = load_file(folder / "last" / "model.safetensors")
    return torch.cat([state[name].double().flatten() for name in sorted(state)])


DATA = {"spec": "scenes:size=41,validation=12,seed=4"}
DROPPING = {"dropout": 0.3}
"""Dropout masks must not depend on how a batch is cut."""


@pytest.mark.parametrize(
    ("loss", "captions"),
    [
        pytest.param(loss, captions, marks=[pytest.mark.slow] * ((loss, captions) != ("hardest", 2)))
        for loss in LOSSES
        for captions in (1, 2)
    ],
)
def test_any_number_of_accumulation_steps_gives_the_same_weights(tmp_path, loss, captions):
    runs = {"start": {"learning_rate": 0.0}}
    runs |= {str(steps): {"gradient_accumulation_steps": steps} for steps in (1, 3, 8)}
    for name, training in runs.items():
        data = {**DATA, "captions_per_image": captions}
        sections = {"model": DROPPING, "data": data, "contrastive": {"loss": loss}}
        config = tiny_training_config(tmp_path / name, training={"epochs": 1, **training}, **sections)
        assert train(config).history[-1]["step"] == 6
    start, one, *others = (weights(tmp_path / name) for name in runs)
    for other in others:
        torch.testing.assert_close(other, one, rtol=0, atol=1e-3)
    assert float((one - start).abs().max()) > 0.02


def test_the_best_model_is_the_one_with_the_lowest_score(tmp_path, monkeypatch):
    metric = "text_to_image_median_rank"
    scores = iter([3.0, 2.0, 2.5])
    monkeypatch.setattr(RetrievalTask, "evaluate", lambda *arguments: {metric: next(scores)})
    result = train(tiny_training_config(tmp_path / "run", training={"epochs": 3}, evaluation={"metric": metric}))
    assert (result.best_score, result.best_epoch) == (2.0, 2)
    assert all("images_per_second" in entry for entry in result.history)


def test_a_short_last_batch_is_left_out_where_asked(tmp_path):
    training = {"epochs": 1, "drop_last": True}
    config = tiny_training_config(tmp_path / "run", data=DATA, training={**training, "batch_size": 12})
    assert train(config).history[-1]["step"] == 3
    with pytest.raises(ConfigError, match=r"batch_size.* 41 images"):
        train(tiny_training_config(tmp_path / "none", data=DATA, training={**training, "batch_size": 42}))


def splitmix64(state: int) -> int:
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def test_the_hash_is_splitmix64():
    numbers = [0, 1, 12345, 2**40 + 7, -1, -(2**50)]
    expected = [splitmix64(number % 2**64) for number in numbers]
    assert [number % 2**64 for number in hashed(torch.tensor(numbers)).tolist()] == expected


def drop(rows, shape, p=0.4, seed=3, step=5):
    with RowDropout(torch.tensor(rows), seed, step):
        return functional.dropout(torch.ones(shape), p)


def test_a_rows_mask_does_not_depend_on_the_rows_beside_it_or_on_padding():
    whole = drop([4, 7, 9], (3, 6, 5))
    assert torch.equal(drop([9, 4], (2, 6, 5)), whole[[2, 0]])
    assert torch.equal(drop([7], (1, 4, 5)), whole[1:2, :4])
    assert torch.equal(drop([4, 7, 9], (3, 6, 5)), whole)


def test_masks_differ_between_rows_updates_seeds_calls_and_parts_of_a_row():
    masks = [drop([4], (1, 64)), drop([5], (1, 64)), drop([4], (1, 64), step=6), drop([4], (1, 64), seed=4)]
    with RowDropout(torch.tensor([4]), 3, 5):
        first, second = (functional.dropout(torch.ones(2, 64), 0.4) for _ in range(2))
    masks += [second[:1], first[1:]]
    assert torch.equal(first[:1], masks[0])
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 6


def test_values_are_kept_with_probability_one_minus_p_and_scaled():
    kept = drop(list(range(200)), (200, 500), p=0.3)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((kept > 0).float().mean()) == pytest.approx(0.7, abs=0.01)
    means = (kept > 0).float().mean(0)
    assert float(means.std()) == pytest.approx((0.3 * 0.7 / 200) ** 0.5, rel=0.2)
    everything = drop([1, 2], (2, 8), p=1.0)
    assert torch.equal(everything, torch.zeros(2, 8))


def test_modules_drop_in_training_mode_only_and_in_place_where_asked():
    states = torch.ones(2, 50)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        assert torch.equal(nn.Dropout(0.5).eval()(states), states)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        dropped = nn.Dropout(0.5, inplace=True)(states)
    assert dropped is states
    assert torch.equal(dropped, drop([1, 2], (2, 50), p=0.5, seed=0, step=0))


@each_row(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"is_causal": True}),
        (None, {"scale": 0.3}),
        ("bool", {}),
        ("float", {}),
        ("float", {"scale": 2}),
    ],
)
def test_attention_is_softmax_with_a_mask_of_its_own(mask, options):
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=generator).double()
    allowed = torch.rand(5, 5, generator=generator) > 0.3
    allowed |= torch.eye(5, dtype=torch.bool)
    bias = {None: None, "bool": allowed, "float": torch.randn(5, 5, generator=generator).double()}[mask]
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        dropped = functional.scaled_dot_product_attention(query, key, value, bias, dropout_p=0.5, **options)
    identity = torch.eye(5).double().expand(2, 4, 5, 5)
    weights = functional.scaled_dot_product_attention(query, key, identity, bias, **options)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        expected = functional.dropout(weights, 0.5) @ value
    torch.testing.assert_close(dropped, expected)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        plain = functional.scaled_dot_product_attention(query, key, value, bias, **options)
    torch.testing.assert_close(plain, weights @ value)


def test_tensors_that_are_not_of_rows_take_the_masks_of_the_generator():
    states = torch.ones(5, 40)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        torch.manual_seed(1)
        ours = functional.dropout(states, 0.5)
    torch.manual_seed(1)
    assert torch.equal(ours, functional.dropout(states, 0.5))
