"""Contrastive losses between images and captions, and the diversity penalty of attention heads."""

import torch


def pair_losses(
    similarities: torch.Tensor,
    is_own: torch.Tensor,
    loss: str = "hardest",
    margin: float = 0.2,
    temperature: float = 0.07,
    hardest_negatives: int = 1,
    negated_positives: bool = False,
) -> torch.Tensor:
    """Returns the loss of each pair of a text and its image.

    With s the similarities of B images and M texts, and for each pair of an image i and a text t of its own the
    negatives t' of other images and i' != i, the loss of a pair is

    - `"hardest"`: max_t' [m - s_it + s_it']_+ + max_i' [m - s_it + s_i't]_+ (eq. 6 of Faghri et al. 2018, VSE++; eq. 4
      of Park et al. 2020), or the sum over the n hardest in place of the maximum;
    - `"all"`: the same with sums over t' and i' in place of the maxima (eq. 5, ibid.);
    - `"info_nce"`: half of -log(exp(s_it / T) / (exp(s_it / T) + sum_t' exp(s_it' / T))) and half of the same over i'
      (van den Oord et al. 2018; Radford et al. 2021).

    Texts of the same image are never negatives of each other's pairs.

    Args:
        similarities (`torch.FloatTensor` of shape `(B, M)`).
        is_own (`torch.BoolTensor` of shape `(B, M)`): which texts belong to which images; each to one.
        loss: `"hardest"`, `"all"` or `"info_nce"`.
        margin: m.
        temperature: T.
        hardest_negatives: n.
        negated_positives: whether `"hardest"` takes -s_it for one more negative, on both sides. The released code of
            Park et al. 2020 does: a pair whose similarity is negative may be its own hardest negative.

    Returns:
        `(M,)`.
    """
    image_of = is_own.long().argmax(0)
    pairs = torch.arange(len(image_of), device=similarities.device)
    positives = similarities[image_of, pairs]
    if loss == "info_nce":
        others = is_own[image_of].index_put((pairs, pairs), torch.tensor(False, device=similarities.device))
        over_texts = (similarities[image_of] / temperature).masked_fill(others, -torch.inf)
        over_images = similarities.mT / temperature
        positives = positives / temperature
        return (over_texts.logsumexp(-1) + over_images.logsumexp(-1)) / 2 - positives
    others = similarities.masked_fill(is_own, -torch.inf)
    other_texts, other_images = others[image_of], others.mT
    if loss == "hardest" and negated_positives:
        other_texts = other_texts.index_put((pairs, pairs), -positives)
        other_images = other_images.index_put((pairs, image_of), -positives)
    of_texts, of_images = (
        torch.relu(margin - positives[:, None] + negatives) for negatives in (other_texts, other_images)
    )
    if loss == "hardest" and hardest_negatives == 1:
        return of_texts.amax(-1) + of_images.amax(-1)
    if loss == "hardest":
        of_texts, of_images = (
            of_pair.topk(min(hardest_negatives, of_pair.shape[-1]))[0] for of_pair in (of_texts, of_images)
        )
    return of_texts.sum(-1) + of_images.sum(-1)


def diversity_penalty(attention: torch.Tensor, squared: bool = True) -> torch.Tensor:
    """Returns ||A A^T - I||_F^2 for the attention maps A of each row (eq. 5 of Park et al. 2020).

    Args:
        attention (`torch.FloatTensor` of shape `(B, heads, positions)`).
        squared: `False` for the norm itself, sqrt(||A A^T - I||_F^2 + 1e-10), which the released code computes.

    Returns:
        `(B,)`.
    """
    attention = attention.float()
    difference = attention @ attention.mT - torch.eye(attention.shape[1], device=attention.device)
    squares = difference.square().sum((1, 2))
    return squares if squared else (squares + 1e-10).sqrt()


__all__ = ["diversity_penalty", "pair_losses"]
