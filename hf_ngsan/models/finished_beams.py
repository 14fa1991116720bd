"""Beam search in which finished captions compete for beams, as in RSTNet's released code."""

import torch
from transformers.generation import GenerationConfig, LogitsProcessor, LogitsProcessorList


class CompetingFinishedBeams(LogitsProcessor):
    """Continues a finished caption with padding, at no cost, so that it stays a beam while it is among the best.

    Beam search without an end token then equals the release's. transformers' own sets finished captions aside and
    continues with as many beams as before, and finds captions that are at least as probable.

    Args:
        eos_token_ids (`list[int]`): end tokens.
        pad_token_id (`int`): padding token.
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


def competing_finished_beams(given: dict, defaults: GenerationConfig) -> dict:
    """Returns arguments of `generate()` that replace given ones and let finished captions compete."""
    settings = given.get("generation_config") or defaults
    end = given.get("eos_token_id", settings.eos_token_id)
    ends = [end] if isinstance(end, int) else list(end or [])
    compete = CompetingFinishedBeams(ends, given.get("pad_token_id", settings.pad_token_id))
    return {
        "eos_token_id": None,
        "logits_processor": LogitsProcessorList([*(given.get("logits_processor") or []), compete]),
    }


__all__ = ["CompetingFinishedBeams", "competing_finished_beams"]
