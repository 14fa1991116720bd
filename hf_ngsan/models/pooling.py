"""Pooling of many positions - cells of an image, words of a caption - into one vector."""

from collections.abc import Callable

import torch
from torch import nn


class MultiHeadPooling(nn.Module):
    """Weighted sums of positions, one for each head, side by side: eq. 1 and 2 of Park et al. 2020.

    M = softmax(W_a act(W_b V^T)) over the positions, F = M V.

    Args:
        size: dimension d of a position.
        hidden_size: d_a.
        num_heads: r.
        activation: `torch.relu` for images, `torch.tanh` for texts.
        dropout: rate on the inputs of W_b.
    """

    def __init__(
        self, size: int, hidden_size: int, num_heads: int, activation: Callable[..., torch.Tensor], dropout: float
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(size, hidden_size, bias=False)
        self.scores = nn.Linear(hidden_size, num_heads, bias=False)
        self.activation = activation

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the heads, `(batch_size, num_heads * size)`, and their weights, `(batch_size, num_heads, length)`.

        Args:
            states: `(batch_size, length, size)`.
            mask: `(batch_size, length)`, 1 = real, 0 = padding.
        """
        scores = self.scores(self.activation(self.hidden(self.dropout(states)))).mT
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        return (weights @ states).flatten(1), weights


class AttentionReduction(nn.Module):
    """Weighted sums of positions, one a glimpse, joined and projected: eq. 4 and 5 of Yu et al. 2019.

    Args:
        size: dimension of a position.
        hidden_size: hidden units of the network that scores positions.
        num_glimpses: weighted sums.
        output_size: dimension of the result.
        dropout: rate on the hidden units.
    """

    def __init__(self, size: int, hidden_size: int, num_glimpses: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(hidden_size, num_glimpses)
        self.out_proj = nn.Linear(num_glimpses * size, output_size)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the result, `(batch_size, output_size)`, and the weights, `(batch_size, num_glimpses, length)`.

        Args:
            states: `(batch_size, length, size)`.
            mask: `(batch_size, length)`, 1 = real, 0 = padding. Where all is padding the weights are equal.
        """
        scores = self.scores(self.dropout(torch.relu(self.hidden(states)))).mT.float()
        weights = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min).softmax(-1).to(states.dtype)
        return self.out_proj((weights @ states).flatten(1)), weights


def selective_pooling(states: torch.Tensor, mask: torch.Tensor | None, number: int) -> torch.Tensor:
    """Returns half the mean of the largest plus half the mean of the smallest values of each channel.

    Selective spatial pooling (Durand et al. 2017, eq. 3), as in the baseline of Park et al. 2020.

    Args:
        states: `(batch_size, length, size)`.
        mask: `(batch_size, length)`, 1 = real, 0 = padding.
        number: maximal number of values of each kind.

    Returns:
        `(batch_size, size)`.
    """
    real = states.new_ones(states.shape[:2]) if mask is None else mask.to(states.dtype)
    padding = (real == 0)[..., None]
    places = torch.arange(states.shape[1], device=states.device)
    counted = (places < real.sum(1, keepdim=True).clamp(max=number))[..., None]
    halves = []
    for sign in (1, -1):
        ordered = (sign * states).masked_fill(padding, -torch.inf).sort(dim=1, descending=True).values
        halves.append(sign * ordered.masked_fill(~counted, 0).sum(1) / counted.sum(1))
    return (halves[0] + halves[1]) / 2


def last_states(states: torch.Tensor, mask: torch.Tensor, bidirectional: bool) -> torch.Tensor:
    """Returns the hidden state after the last word; for the backward direction, the one after the first word.

    Args:
        states: `(batch_size, length, size)`.
        mask: `(batch_size, length)`, 1 = real, 0 = padding.
        bidirectional: whether the second half of the channels reads backwards.

    Returns:
        `(batch_size, size)`.
    """
    rows, length = torch.arange(len(states), device=states.device), states.shape[1]
    real = (mask != 0).long()
    last = states[rows, length - 1 - real.flip(1).argmax(1)]
    if not bidirectional:
        return last
    first = states[rows, real.argmax(1)]
    return torch.cat([last.chunk(2, dim=-1)[0], first.chunk(2, dim=-1)[1]], dim=-1)


def mean_of_words(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean of real positions, `(batch_size, size)`."""
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


__all__ = ["AttentionReduction", "MultiHeadPooling", "last_states", "mean_of_words", "selective_pooling"]
