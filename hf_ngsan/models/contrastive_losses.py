"""Contrastive losses of a dual encoder (triplets or cross-entropy), and the diversity penalty of attention heads."""

from typing import Any

import torch

from .configuration_contrastive import LOSSES, ContrastiveSettings
from .configuration_hub import check_choice

PAIR_SETTINGS = ("loss", "margin", "temperature", "hardest_negatives", "negated_positives")  # of `pair_losses`


def losses_of(settings: ContrastiveSettings, similarities: torch.Tensor, is_own: torch.Tensor) -> torch.Tensor:
    """Returns [`pair_losses`] with the settings of a model or training."""
    return pair_losses(similarities, is_own, **{name: getattr(settings, name) for name in PAIR_SETTINGS})


def penalties_of(settings: ContrastiveSettings, image: Any, text: Any) -> dict[str, torch.Tensor]:
    """Returns the [`diversity_penalty`] `(rows,)` of each side whose last attentions are maps of heads."""
    penalties = {}
    for side, outputs in (("image", image), ("text", text)):
        attentions = getattr(outputs, "attentions", None)
        if settings.diversity_weight and attentions is not None and attentions[-1].ndim == 3:
            penalties[side] = diversity_penalty(attentions[-1], settings.squared_diversity)
    return penalties


def pair_losses(
    similarities: torch.Tensor,
    is_own: torch.Tensor,
    loss: str = "hardest",
    margin: float = 0.2,
    temperature: float = 0.07,
    hardest_negatives: int = 1,
    negated_positives: bool = False,
) -> torch.Tensor:
    """Returns the loss `(M,)` of each pair of a text and its image, from similarities `(B, M)`.

    With s the similarities of B images and M texts, the negatives of a pair of an image i and one of its texts t are
    the texts t' of other images and the images i' != i. The loss of the pair is

    - `"hardest"`: max_t' [m - s_it + s_it']_+ + max_i' [m - s_it + s_i't]_+ (eq. 6 of Faghri et al. 2018, VSE++; eq. 4
      of Park et al. 2020), or the sum over the n hardest instead of the maximum;
    - `"all"`: the same with sums over t' and i' instead of the maxima (eq. 5 of Faghri et al.);
    - `"info_nce"`: half of -log(exp(s_it / T) / (exp(s_it / T) + sum_t' exp(s_it' / T))) and half of the same over i'
      (van den Oord et al. 2018; Radford et al. 2021).

    Args:
        is_own (`torch.BoolTensor` of shape `(B, M)`): which texts belong to which images; each belongs to one.
        loss, margin, temperature, hardest_negatives: the loss, m, T and n above.
        negated_positives: whether -s_it is one more negative on both sides for `"hardest"`, as in the authors' release.
    """
    check_choice("loss", loss, LOSSES)
    image_of = is_own.long().argmax(0)
    pairs = torch.arange(len(image_of), device=similarities.device)
    positives = similarities[image_of, pairs]
    if loss == "info_nce":
        is_ignored = is_own[image_of].index_put((pairs, pairs), torch.tensor(False, device=similarities.device))
        over_texts = (similarities[image_of] / temperature).masked_fill(is_ignored, -torch.inf)
        over_images = similarities.mT / temperature
        positives = positives / temperature
        return (over_texts.logsumexp(-1) + over_images.logsumexp(-1)) / 2 - positives
    negatives = similarities.masked_fill(is_own, -torch.inf)
    other_texts, other_images = negatives[image_of], negatives.mT
    if loss == "hardest" and negated_positives:
        other_texts = other_texts.index_put((pairs, pairs), -positives)
        other_images = other_images.index_put((pairs, image_of), -positives)
    losses = [torch.relu(margin - positives[:, None] + negatives) for negatives in (other_texts, other_images)]
    if loss == "hardest" and hardest_negatives == 1:
        return losses[0].amax(-1) + losses[1].amax(-1)
    if loss == "hardest":
        losses = [side.topk(min(hardest_negatives, side.shape[-1]))[0] for side in losses]
    return losses[0].sum(-1) + losses[1].sum(-1)


def diversity_penalty(attention: torch.Tensor, squared: bool = True) -> torch.Tensor:
    """Returns ||A A^T - I||_F^2, `(B,)`, for the attention maps A `(B, heads, positions)` (eq. 5 of Park et al. 2020).

    `squared=False` takes the norm itself, sqrt(||A A^T - I||_F^2 + 1e-10), which the released code computes.
    """
    attention = attention.float()
    difference = attention @ attention.mT - torch.eye(attention.shape[1], device=attention.device)
    squares = difference.square().sum((1, 2))
    return squares if squared else (squares + 1e-10).sqrt()
