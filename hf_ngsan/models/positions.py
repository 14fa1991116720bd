"""Positions of tokens, and sinusoids of positions (Vaswani et al. 2017, section 3.5)."""

import torch
from transformers.cache_utils import Cache


def sinusoids(values: torch.Tensor, channels: int) -> torch.Tensor:
    """Returns sine and cosine features of Vaswani et al. 2017, section 3.5: wavelengths from 2 pi to 10000 * 2 pi.

    Values of any shape become float32 `(*values.shape, channels)`: first the sines, then the cosines.
    """
    exponents = torch.arange(0, channels, 2, device=values.device, dtype=torch.float32) / channels
    angles = values.float()[..., None] * torch.pow(10000.0, -exponents)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def token_positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """Returns positions `(batch_size, length)` that count the tokens of a mask, 0 up to the first token."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_of_tokens(
    states: torch.Tensor, attention_mask: torch.Tensor | None = None, cache: Cache | None = None
) -> torch.Tensor:
    """Returns positions `(batch_size or 1, length)` of tokens `(batch_size, length, …)` after those in the cache."""
    length = states.shape[1]
    if attention_mask is not None and attention_mask.ndim == 2:
        return token_positions(attention_mask)[:, -length:]
    past_length = 0 if cache is None else cache.get_seq_length()
    return torch.arange(length, device=states.device)[None] + past_length


def sinusoidal_positions(states: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
    """Returns sinusoids of the positions of tokens, to be added to their states `(batch_size, length, hidden_size)`."""
    return sinusoids(positions_of_tokens(states, attention_mask), states.shape[-1]).to(states.dtype)
