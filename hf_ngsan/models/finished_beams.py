"""Beam search in which finished captions compete with the others for the beams, as RSTNet was released."""

import torch
from transformers.generation import GenerationConfig, LogitsProcessor, LogitsProcessorList


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


def competing_finished_beams(given: dict, defaults: GenerationConfig) -> dict:
    """Returns arguments of `generate()`, to be put in place of given ones, that let finished captions compete."""
    settings = given.get("generation_config") or defaults
    end = given.get("eos_token_id", settings.eos_token_id)
    ends = [end] if isinstance(end, int) else list(end or [])
    compete = CompetingFinishedBeams(ends, given.get("pad_token_id", settings.pad_token_id))
    return {
        "eos_token_id": None,
        "logits_processor": LogitsProcessorList([*(given.get("logits_processor") or []), compete]),
    }


__all__ = ["CompetingFinishedBeams", "competing_finished_beams"]
