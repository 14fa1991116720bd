"""Parts of RSTNet with the options of the authors' release, which [`RSTNetConfig.from_release`] sets."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation import GenerationConfig, LogitsProcessor, LogitsProcessorList

from .attention import FeedForward, MultiHeadAttention
from .positions import sinusoids

MIN_WEIGHT = 1e-6  # minimum weight of a pair of cells before the logarithm: log 1e-6 = -13.8
WAVELENGTH = 10000.0  # longest wavelength of grid embeddings, divided by 2 pi; as in Vaswani et al. 2017


class GridAttention(MultiHeadAttention):
    """Attention with optional embeddings of rows and columns for keys, not for values (`grid_position_embedding`)."""

    def project_source(self, source: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> Sequence[torch.Tensor]:
        """Takes one input for keys and values, or a pair: with embeddings for keys, and without them for values."""
        if not isinstance(source, tuple) or source[0] is source[1]:
            return super().project_source(source[0] if isinstance(source, tuple) else source)
        return self.k_proj(source[0]), self.v_proj(source[1])


def grid_positions(rows: int, columns: int, channels: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns embeddings `(rows * columns, channels)` of the cells of a grid, row by row.

    Rows and columns are counted from 1 and scaled so that the last is 2 pi. Each has half of the channels, with
    alternating sines and cosines of wavelengths up to 10000 * 2 pi.
    """
    half = channels // 2
    steps = torch.arange(half, dtype=torch.float32, device=device)
    wavelengths = WAVELENGTH ** (2 * torch.div(steps, 2, rounding_mode="floor") / half)

    def codes(number: int) -> torch.Tensor:
        places = torch.arange(1, number + 1, dtype=torch.float32, device=device) / (number + 1e-6) * (2 * math.pi)
        angles = places[:, None] / wavelengths
        return torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=-1).flatten(1)

    row_codes, column_codes = codes(rows), codes(columns)
    row_codes, column_codes = (axis.expand(rows, columns, half) for axis in (row_codes[:, None], column_codes[None]))
    return torch.cat([row_codes, column_codes], dim=-1).flatten(0, 1)


def grid_shape(config: Any, number: int) -> tuple[int, int]:
    """Returns rows and columns of a grid with `number` visual tokens: `grid_size`, or a square."""
    side = int(math.sqrt(number))  # unlike math.isqrt, torch.compile can trace this with dynamic sizes
    rows, columns = config.grid_size or (side, side)
    if rows * columns != number:
        raise ValueError(f"{number} visual tokens are not {rows} x {columns} cells; pass visual_boxes or set grid_size")
    return rows, columns


def positions_of_grid(config: Any, states: torch.Tensor) -> torch.Tensor | None:
    """Returns the embeddings `(num_regions, hidden_size)` of the cells; `None` if the model has none."""
    if not config.grid_position_embedding:
        return None
    shape = grid_shape(config, states.shape[1])
    return grid_positions(*shape, config.hidden_size, device=states.device).to(states.dtype)


def sinusoidal_geometry(geometry: torch.Tensor, channels: int) -> torch.Tensor:
    """Returns a fixed embedding `(B, N, N, channels)` of relative geometry `(B, N, N, 4)`, as released.

    Each of the four features, multiplied by 100, has `channels / 8` wavelengths; all sines precede all cosines.
    """
    features = geometry * 100.0
    steps = torch.arange(channels // 8, device=geometry.device, dtype=torch.float32) / (channels / 8)
    # Angles are so large that another order of operations would change the sines visibly by rounding.
    angles = (features[..., None] * (1.0 / torch.pow(1000.0, steps))).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class WordPositions(nn.Module):
    """Embeddings of the positions of words, added to unscaled word embeddings.

    They are the sinusoids of Vaswani et al. 2017 for any length. With `config.position_embedding = "table"`, they are a
    fixed table in the checkpoint, as in the authors' release: row 0 for padding, row t for the t-th word.
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

    def initialize(self) -> None:
        if self.table is not None:
            init.copy_(self.table, self.initial_table())

    def forward(
        self, position_ids: torch.Tensor, attention_mask: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """Returns embeddings `(batch_size or 1, length, hidden_size)` of positions, counted from 0."""
        if self.table is None:
            return sinusoids(position_ids, self.hidden_size).to(dtype)
        words = (position_ids if attention_mask is None else attention_mask).shape[-1]  # needs no GPU synchronization
        if words > self.max_length and not torch.compiler.is_compiling() and int(position_ids.max()) >= self.max_length:
            raise ValueError(
                f"A caption of {int(position_ids.max()) + 1} tokens is longer than the model's table of positions, "
                f"max_position_embeddings={self.max_length}."
            )
        rows = position_ids + 1
        mask = current_mask(attention_mask, position_ids.shape[-1])
        return self.table[rows if mask is None else rows * (mask != 0)].to(dtype)


def current_mask(attention_mask: torch.Tensor | None, length: int) -> torch.Tensor | None:
    """Returns which of the last `length` tokens are real, `(batch_size, length)`, or `None` for other masks."""
    if attention_mask is None or attention_mask.ndim != 2:
        return None
    return attention_mask[:, -length:]


class ResidualNorm(nn.Module):
    """LayerNorm(x + sublayer); or, as released, LayerNorm(x + LayerNorm(x' + sublayer)) with zeros at padding."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.residual_dropout)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.outer_norm = nn.LayerNorm(config.hidden_size) if config.double_residual else None

    def forward(
        self,
        hidden_states: torch.Tensor,
        attended: torch.Tensor,
        token_mask: torch.Tensor | None = None,
        inner: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Takes x, the output of the sublayer, the mask of real tokens, and x', which defaults to x."""
        if self.outer_norm is None:
            return self.norm(hidden_states + self.dropout(attended))
        states = self.norm((hidden_states if inner is None else inner) + self.dropout(attended))
        states = self.outer_norm(hidden_states + self.dropout(states))
        return states if token_mask is None else states * token_mask[..., None].to(states.dtype)


class MaskedFeedForward(nn.Module):
    """Feed-forward block with residual connection and normalization; as released, with zeros at padding."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.feed_forward = FeedForward(config)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.residual_dropout)
        self.zeros_at_padding = config.double_residual

    def forward(self, hidden_states: torch.Tensor, token_mask: torch.Tensor | None = None) -> torch.Tensor:
        states = self.norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))
        if token_mask is None or not self.zeros_at_padding:
            return states
        return states * token_mask[..., None].to(states.dtype)


class CompetingFinishedBeams(LogitsProcessor):
    """Continues finished captions with padding at log-probability 0; they keep a beam while among the best."""

    def __init__(self, eos_token_ids: torch.Tensor, pad_token_id: int):
        self.eos_token_ids = eos_token_ids  # on the device, because a copy at every word would synchronize
        self.pad_token_id = pad_token_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        finished = torch.isin(input_ids[:, 1:], self.eos_token_ids).any(-1, keepdim=True)
        only_padding = torch.full_like(scores, -float("inf"))
        only_padding[:, self.pad_token_id] = 0
        return torch.where(finished, only_padding, scores)


def competing_finished_beams(arguments: Mapping, defaults: GenerationConfig, device: torch.device) -> dict:
    """Returns arguments that make finished captions compete in `generate()`, as released, and replace the others."""
    settings = arguments.get("generation_config") or defaults
    end = arguments.get("eos_token_id", settings.eos_token_id)
    ends = torch.tensor([end] if isinstance(end, int) else list(end or []), dtype=torch.long, device=device)
    compete = CompetingFinishedBeams(ends, arguments.get("pad_token_id", settings.pad_token_id))
    processors = LogitsProcessorList([*(arguments.get("logits_processor") or []), compete])
    return {"eos_token_id": None, "logits_processor": processors}
