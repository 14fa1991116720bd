"""Beam search in which finished captions compete with the others for the beams, as RSTNet was released."""

import torch
from transformers.generation import LogitsProcessor


class CompetingFinishedBeams(LogitsProcessor):
    """Continues a finished caption with padding, at no cost, so that it stays among the beams while it is good enough.

    Beam search that knows of no end token then does what the release does. transformers' own puts finished captions
    aside and searches on with as many beams as before, which finds others, never less probable ones.

    Args:
        eos_token_ids (`list[int]`): what ends a caption.
        pad_token_id (`int`): what follows.
    """

    def __init__(self, eos_token_ids: list[int], pad_token_id: int):
        self.eos_token_ids = eos_token_ids
        self.pad_token_id = pad_token_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Takes sequences `(rows, length)` and log-probabilities `(rows, vocab_size)`; returns these, changed."""
        ends = torch.tensor(self.eos_token_ids, device=input_ids.device)
        finished = torch.isin(input_ids[:, 1:], ends).any(-1, keepdim=True)
        only_padding = torch.full_like(scores, -float("inf"))
        only_padding[:, self.pad_token_id] = 0
        return torch.where(finished, only_padding, scores)


__all__ = ["CompetingFinishedBeams"]
