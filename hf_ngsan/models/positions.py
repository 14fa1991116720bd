"""Positions of RSTNet: sinusoids or a table for words, and codes of the rows and columns of a grid."""

import math

import torch
from torch import nn
from transformers import initialization as init
from transformers.configuration_utils import PreTrainedConfig

from .geometry import sinusoids

WAVELENGTH = 10000.0
"""Longest wavelength of codes over 2 pi, as in Vaswani et al. 2017."""


class WordPositions(nn.Module):
    """Codes of the positions of words, added to embeddings that are not scaled.

    With `config.position_embedding = "sinusoidal"` they are the sinusoids of Vaswani et al. 2017, which have no end;
    with `"table"` a fixed table in the checkpoint, as in the authors' release: row 0 for padding, row t for the t-th
    word, up to `config.max_position_embeddings` words.
    """

    table: torch.Tensor | None

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.max_length = config.max_position_embeddings
        self.register_buffer("table", self.initial_table() if config.position_embedding == "table" else None)

    def initial_table(self) -> torch.Tensor:
        rows = sinusoids(torch.arange(self.max_length + 1), self.hidden_size)
        rows[0] = 0.0
        return rows

    @torch.no_grad()
    def initialize(self) -> None:
        if self.table is not None:
            init.copy_(self.table, self.initial_table())

    def forward(
        self, position_ids: torch.Tensor, attention_mask: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """
        Args:
            position_ids (`torch.LongTensor` of shape `(batch_size or 1, length)`): counted from 0.
            attention_mask (`torch.Tensor`, *optional*): if `(batch_size, at least length)`, 1 = word, 0 = padding.
            dtype (`torch.dtype`): of the result.

        Returns:
            `torch.FloatTensor` of shape `(batch_size or 1, length, hidden_size)`.

        Raises:
            ValueError: there are more words than the table has rows.
        """
        if self.table is None:
            return sinusoids(position_ids, self.hidden_size).to(dtype)
        if not torch.compiler.is_compiling() and int(position_ids.max()) >= self.max_length:
            raise ValueError(
                f"A caption of {int(position_ids.max()) + 1} tokens is longer than the model's table of positions "
                f"(max_position_embeddings={self.max_length}); give a smaller max_new_tokens, or shorter captions."
            )
        rows = position_ids + 1
        mask = current_mask(attention_mask, position_ids.shape[-1])
        return self.table[rows if mask is None else rows * (mask != 0)].to(dtype)


def current_mask(attention_mask: torch.Tensor | None, length: int) -> torch.Tensor | None:
    """Returns which of the last `length` tokens are real, `(batch_size, length)`; `None` if the mask does not say."""
    if attention_mask is None or attention_mask.ndim != 2:
        return None
    return attention_mask[:, -length:]


def grid_positions(rows: int, columns: int, channels: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns codes `(rows * columns, channels)` of the cells of a grid, row by row.

    Row and column numbers, counted from 1 and divided by their number, so that the last is 2 pi, have sines and cosines
    in turn, of wavelengths up to 10000 * 2 pi: first those of the row, then those of the column, half of the channels
    each.
    """
    half = channels // 2
    steps = torch.arange(half, dtype=torch.float32, device=device)
    wavelengths = WAVELENGTH ** (2 * torch.div(steps, 2, rounding_mode="floor") / half)

    def codes(number: int) -> torch.Tensor:
        places = torch.arange(1, number + 1, dtype=torch.float32, device=device) / (number + 1e-6) * (2 * math.pi)
        angles = places[:, None] / wavelengths
        return torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=-1).flatten(1)

    of_row, of_column = codes(rows), codes(columns)
    both = torch.cat([of_row[:, None].expand(rows, columns, half), of_column[None].expand(rows, columns, half)], dim=-1)
    return both.flatten(0, 1)
