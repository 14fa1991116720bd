"""Losses of the dual encoder against loops and the released code; tests/training has more tests of its objective."""

import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.models.contrastive_losses import diversity_penalty, pair_losses
from tests.golden import golden_folder
from tests.tables import each_row


@each_row("number", [1, 2, 3, 9])
def test_hardest_negatives_are_the_first_of_a_sorted_list(number):
    generator = torch.Generator().manual_seed(number)
    similarities = torch.randn(4, 8, generator=generator).double()
    is_own = torch.arange(4)[:, None] == torch.arange(8) // 2
    losses = pair_losses(similarities, is_own, hardest_negatives=number, margin=0.5)
    for text in range(8):
        image = text // 2
        positive = similarities[image, text].item()
        texts = sorted((similarities[image, other].item() for other in range(8) if other // 2 != image), reverse=True)
        images = sorted((similarities[other, text].item() for other in range(4) if other != image), reverse=True)
        expected = sum(max(0, 0.5 - positive + value) for value in [*texts[:number], *images[:number]])
        assert losses[text].item() == pytest.approx(expected)
    everything = pair_losses(similarities, is_own, loss="all", margin=0.5)
    assert torch.allclose(losses, everything) == (number == 9)


@each_row("squared", [True, False])
def test_diversity_is_the_distance_of_heads_from_orthogonal_ones(squared):
    attention = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    penalties = diversity_penalty(attention, squared)
    for row in range(2):
        total = 0.0
        for entry in range(3):
            for other in range(3):
                product = sum(attention[row, entry, at] * attention[row, other, at] for at in range(5)).item()
                total += (product - (entry == other)) ** 2
        assert penalties[row].item() == pytest.approx(total if squared else (total + 1e-10) ** 0.5, rel=1e-5)
    sharp = torch.eye(5)[None, :3]
    assert diversity_penalty(sharp, squared).item() == pytest.approx(0 if squared else 1e-5)


@each_row("release", ["2.1.4", "2.6.0"])
def test_losses_of_the_released_code(release):
    recorded = load_file(golden_folder("mhsan") / f"io_sru-{release}.safetensors")
    similarities = recorded["main.image_embedding"] @ recorded["main.text_embedding"].T
    is_own = torch.eye(len(similarities), dtype=torch.bool)
    for name, settings in {
        "hard_negative": {"negated_positives": True},
        "hard_negative_nmax2": {"hardest_negatives": 2, "margin": 0.3, "negated_positives": True},
        "all_negatives": {"loss": "all"},
    }.items():
        loss = pair_losses(similarities, is_own, **settings).sum()
        torch.testing.assert_close(loss, recorded[f"loss.{name}"], atol=1e-5, rtol=1e-5)
    for side in ("image", "text"):
        penalty = 0.1 * diversity_penalty(recorded[f"main.{side}_attention"], squared=False).mean()
        torch.testing.assert_close(penalty, recorded[f"loss.diversity_{side}"], atol=1e-5, rtol=1e-5)


def test_a_positive_pair_is_its_own_negative_only_as_released():
    """The released code negates positives, so that a dissimilar pair is its own hardest negative."""
    recorded = load_file(golden_folder("mhsan") / "metrics.safetensors")
    similarities = recorded["hardneg.images"] @ recorded["hardneg.captions"].T
    is_own = torch.eye(len(similarities), dtype=torch.bool)
    loss = pair_losses(similarities, is_own).sum()
    torch.testing.assert_close(loss, recorded["hardneg.loss_if_positives_were_excluded"], atol=1e-5, rtol=1e-5)
    loss = pair_losses(similarities, is_own, negated_positives=True).sum()
    torch.testing.assert_close(loss, recorded["hardneg.loss"], atol=1e-5, rtol=1e-5)
    loss = pair_losses(similarities, is_own, loss="all").sum()
    torch.testing.assert_close(loss, recorded["hardneg.all_negatives_loss"], atol=1e-5, rtol=1e-5)
