import math

import pytest
import torch

from hf_ngsan.tasks.captioning import freeze_encoder
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.self_critical import SelfCritical, SelfCriticalSettings
from hf_ngsan.training.task import Update
from tests.extraction.tiny import BACKBONE
from tests.models.tiny import tiny_captioner
from tests.tables import each_row

from .toy_policy import (
    END,
    LONGEST,
    WORDS,
    ToyRewards,
    all_captions,
    log_probabilities,
    toy_captioner,
    toy_image,
    toy_policy,
)

GROUPS, IMAGES = 60, 150


def exact_gradient(model, **policy) -> torch.Tensor:
    """The gradient of the negative expected reward: the sum over all captions of -p r grad log p."""
    log_p = log_probabilities(model, all_captions(), **policy)
    assert sum(value.exp().item() for value in log_p.values()) == pytest.approx(1.0, abs=1e-5)
    rewards = ToyRewards()
    loss = -sum(value.exp().detach() * rewards.of(caption) * value for caption, value in log_p.items())
    return flat_gradient(model, loss)


def flat_gradient(model, loss) -> torch.Tensor:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    pairs = zip(gradients, trained, strict=True)
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for g, p in pairs]).double()


def estimates(model, objective) -> torch.Tensor:
    """Independent estimates of the gradient, each the mean of many images."""
    image = toy_image(IMAGES)
    gradients = []
    for group in range(GROUPS):
        prepared = objective.prepare_batch(model, {**image, "row_index": torch.arange(IMAGES)}, Update(3, group))
        loss, _ = objective.loss(model, prepared)
        gradients.append(flat_gradient(model, loss / objective.weight(prepared)))
    return torch.stack(gradients)


def self_critical(policy=(), **settings):
    settings = SelfCriticalSettings(**{"samples_per_image": 3, "max_new_tokens": LONGEST, **settings})
    return SelfCritical(ToyRewards(), settings, toy_policy(**dict(policy)))


def assert_mean_is(samples: torch.Tensor, expected: torch.Tensor):
    """Within 3 standard errors: few coordinates deviate more, none by much, and not all in one direction."""
    error = samples.std(0) / math.sqrt(len(samples))
    moves = error > 1e-7
    assert moves.sum() > 100
    torch.testing.assert_close(samples.mean(0)[~moves], expected[~moves], rtol=0, atol=1e-5)
    z = (samples.mean(0) - expected)[moves] / error[moves]
    assert (z.abs() <= 3).double().mean() >= 0.98
    assert z.abs().max() <= 4.5
    direction = expected / expected.norm()
    along = samples @ direction
    assert abs(along.mean() - expected.norm()) <= 3 * along.std() / math.sqrt(len(samples))


TEMPERED = {"temperature": 0.7, "top_p": 0.8}
SLOW = [("leave_one_out", 1.0, TEMPERED), ("greedy", 1.0, TEMPERED), ("mean", 2 / 3, {})]


@pytest.mark.parametrize(
    ("baseline", "share", "policy"),
    [("leave_one_out", 1.0, {}), *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
)
def test_the_estimate_is_the_gradient_of_the_expected_reward(baseline, share, policy):
    model = toy_captioner()
    actual = estimates(model, self_critical(policy=policy, baseline=baseline))
    assert_mean_is(actual, share * exact_gradient(model, **policy))


def greedy_caption(model) -> tuple[int, ...]:
    """The caption of greedy search, by enumeration of one more word at a time."""
    caption: tuple[int, ...] = ()
    while END not in caption and len(caption) < LONGEST:
        options = log_probabilities(model, [(*caption, word) for word in (END, *WORDS)])
        caption = max(options, key=lambda option: options[option].item())
    return caption


def test_baselines_are_those_of_the_definitions():
    model, rewards = toy_captioner(), ToyRewards()
    batch = {**toy_image(4), "row_index": torch.arange(4)}
    baselines = {
        "greedy": lambda image, reward: rewards.of(greedy_caption(model)),
        "mean": lambda image, reward: sum(image) / 3,
        "leave_one_out": lambda image, reward: (sum(image) - reward) / 2,
    }
    for baseline, expected in baselines.items():
        prepared = self_critical(baseline=baseline).prepare_batch(model, batch, Update(0, 0))
        worth = [rewards.of([word for word in ids if word >= 0]) for ids in prepared["labels"].tolist()]
        for row, reward in enumerate(worth):
            image = worth[row // 3 * 3 : row // 3 * 3 + 3]
            assert prepared["advantages"][row].item() == pytest.approx(reward - expected(image, reward), abs=1e-5)


def test_beams_are_the_likeliest_captions_and_none_twice():
    model, batch = toy_captioner(), {**toy_image(2), "row_index": torch.arange(2)}
    labels = self_critical(decoding="beam").prepare_batch(model, batch, Update(0, 0))["labels"]
    beams = [tuple(word for word in ids if word >= 0) for ids in labels.tolist()]
    assert len(set(beams[:3])) == 3 and beams[:3] == beams[3:]


def test_dropout_changes_log_probabilities_and_nothing_else():
    model, batch = toy_captioner(), {**toy_image(4), "row_index": torch.arange(4)}
    losses, labels = {}, {}
    for dropout in (False, True):
        objective = self_critical(dropout=dropout)
        prepared = objective.prepare_batch(model, batch, Update(0, 0))
        labels[dropout] = prepared["labels"]
        losses[dropout] = [objective.loss(model, prepared)[0].item() for _ in range(2)]
        assert not model.training
    assert torch.equal(labels[False], labels[True])
    assert losses[False][0] == pytest.approx(losses[False][1])
    assert len({losses[False][0], *losses[True]}) == 3


def test_statistics_are_sums_over_slow_loops():
    model = toy_captioner(vocab_size=8)
    bad = {WORDS[1]}
    settings = SelfCriticalSettings(samples_per_image=3, max_new_tokens=LONGEST, baseline="mean")
    objective = SelfCritical(ToyRewards(), settings, toy_policy(), bad)
    batch = {**toy_image(50), "row_index": torch.arange(50)}
    prepared = objective.prepare_batch(model, batch, Update(1, 2))
    captions = [[word for word in row if word != -100] for row in prepared["labels"].tolist()]
    texts = [[word for word in caption if word != END] for caption in captions]
    rewards = [ToyRewards().of(caption) for caption in captions]
    expected = {
        "samples": 150,
        "words": sum(map(len, texts)),
        "bad_endings": sum(
            END not in caption or bool(text and text[-1] in bad) for caption, text in zip(captions, texts, strict=True)
        ),
        "reward": sum(rewards),
    }
    _, sums = objective.loss(model, prepared)
    assert 0 < expected["bad_endings"] < 150
    assert {name: float(sums[name]) for name in expected} == pytest.approx(expected, rel=1e-5)
    sums = {name: value.item() for name, value in sums.items()}
    summary = objective.summary(sums)
    advantages = torch.tensor(rewards, dtype=torch.double).view(50, 3)
    advantages = advantages - advantages.mean(1, keepdim=True)
    assert summary["advantage_spread"] == pytest.approx(advantages.std(correction=0).item(), rel=1e-4)
    assert summary["caption_length"] == pytest.approx(expected["words"] / 150)
    assert "bad endings" in objective.describe(summary)


@each_row("kind", ["features", "pixels", "pixels and a frozen backbone"])
@each_row(
    ("one_process", "micro_batches", "settings", "times"),
    [
        *[(True, 1, {}, 1), (False, 1, {}, 2), (True, 2, {}, 4), (True, 1, {"dropout": True}, 2)],
        *[(False, 2, {"freeze_encoder": True}, 2), (False, 1, {"freeze_encoder": True, "dropout": True}, 1)],
    ],
)
def test_images_are_encoded_once_where_the_loss_can_have_their_states(
    kind, one_process, micro_batches, settings, times
):
    if kind == "features":
        model, images = toy_captioner(), {**toy_image(4), "attention_mask": torch.tensor([[1, 1], [1, 0]] * 2)}
    else:
        vision = {"backbone_config": BACKBONE, "grid_size": [2, 2], "frozen": kind != "pixels"}
        model = tiny_captioner(vision_config=vision, visual_feature_size=8)
        images = {"pixel_values": torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    if "freeze_encoder" in settings:
        freeze_encoder(model)
    images["row_index"] = torch.arange(4)
    size, calls = 4 // micro_batches, []
    batches = [
        MicroBatch({name: tensor[start : start + size] for name, tensor in images.items()}, size)
        for start in range(0, 4, size)
    ]
    objective = self_critical(**settings)
    hook = model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    prepared = objective.prepare(model, batches, Update(0, 0, one_process=one_process))
    losses = [objective.loss(model, inputs)[0] for inputs in prepared]
    hook.remove()
    assert len(calls) == times
    if "dropout" not in settings:
        plain = self_critical()
        expected = flat_gradient(model, plain.loss(model, plain.prepare_batch(model, images, Update(0, 0)))[0])
        torch.testing.assert_close(flat_gradient(model, sum(losses)), expected, rtol=1e-4, atol=1e-5)
        assert expected.abs().max() > 0.01


HEALTHY = {"reward": 1.0, "bad_endings": 0.01, "reference_log_likelihood": -2.0}


@each_row(
    ("last", "words"),
    [
        ({"reward": 1.2}, []),
        ({"bad_endings": 0.06}, ["6.0%"]),
        ({"reward": 1.2, "reference_log_likelihood": -5.0}, ["20.1 times less"]),
        ({"reward": 0.9, "reference_log_likelihood": -5.0}, []),
        ({"reward": 1.2, "bad_endings": 0.5, "reference_log_likelihood": -5.0}, ["50.0%", "20.1 times less"]),
    ],
)
def test_warnings_tell_of_bad_endings_and_of_an_exploited_reward_only(last, words):
    messages = self_critical().warnings([HEALTHY, {**HEALTHY, **last}])
    assert len(messages) == len(words)
    assert all(word in warning for word, warning in zip(words, messages, strict=True))
