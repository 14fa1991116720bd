"""Shared parts of searches: a captioner that runs word by word, and the finished captions.

```python
decoder = StepwiseDecoder(model, input_ids, model_kwargs)
decoder.append(decoder.step().logits[:, -1].argmax(-1))  # a step of greedy search
```
"""

from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

NEVER = float("-inf")


class StepwiseDecoder:
    """Runs a captioner word by word, with the cache that `generate()` has prepared, if any.

    Args:
        model: a captioner.
        sequences (`torch.LongTensor` of shape `(rows, length)`): the beginnings of captions.
        model_kwargs: further inputs of the model.
    """

    def __init__(self, model: Any, sequences: torch.Tensor, model_kwargs: dict) -> None:
        self.model = model
        self.sequences = sequences
        self.kwargs = model_kwargs
        self.is_first = True

    @property
    def length(self) -> int:
        return self.sequences.shape[1]

    def step(self) -> Any:
        """Returns the outputs of the model for the words that it has not seen, or for all without a cache."""
        whole = self.is_first or not self.kwargs.get("use_cache")
        inputs = self.model.prepare_inputs_for_generation(
            self.sequences, next_sequence_length=None if whole else 1, is_first_iteration=self.is_first, **self.kwargs
        )
        outputs = self.model(**inputs, return_dict=True)
        self.is_first = False
        self.kwargs = self.model._update_model_kwargs_for_generation(
            outputs, self.kwargs, is_encoder_decoder=self.model.config.is_encoder_decoder
        )
        return outputs

    def log_probs(self, logits_processor: Any) -> torch.Tensor:
        """Returns log-probabilities `(rows, vocab_size)` of the next word, as beam search has them."""
        return logits_processor(self.sequences, self.step().logits[:, -1].float().log_softmax(-1))

    def choose(self, rows: torch.Tensor, words: torch.Tensor) -> None:
        """Continues some of the sequences by one word each; `rows` and `words` have as many entries as before."""
        self.sequences = self.sequences[rows]
        self.append(words)
        cache = self.kwargs.get("cache", self.kwargs.get("past_key_values"))
        if cache is not None:
            cache.reorder_cache(rows)

    def append(self, words: torch.Tensor) -> None:
        """Continues every sequence by one word."""
        self.sequences = torch.cat([self.sequences, words[:, None]], dim=1)


class Kept(NamedTuple):
    """Beams that continue: their previous beams, next words and scores; `(images, size)` each."""

    beams: torch.Tensor
    words: torch.Tensor
    scores: torch.Tensor


class EndedCaptions:
    """The best finished captions of each image, by the rules of transformers' beam search.

    Args:
        images: number of images.
        size: beams that continue, and captions that are kept, of each image.
        input_ids (`torch.LongTensor` of shape `(rows, length)`): the beginnings of captions.
        generation_config, stopping_criteria: as `generate()` gives them.

    Attributes:
        is_open (`torch.BoolTensor` of shape `(images,)`): whether better captions may be found.
        scores (`torch.FloatTensor` of shape `(images, size)`): scores, the best first; minus infinity for none.
    """

    def __init__(
        self, images: int, size: int, input_ids: torch.Tensor, generation_config: Any, stopping_criteria: Any
    ) -> None:
        self.size = size
        self.prefix_length = input_ids.shape[1]
        self.settings = generation_config
        self.stopping_criteria = stopping_criteria
        self.padding = padding_of(generation_config)
        ends = generation_config.eos_token_id
        number_of_ends = len(ends) if isinstance(ends, list) else int(ends is not None)
        self.most_candidates = max(2, 1 + number_of_ends) * size  # enough for beams that do not end
        self.is_open = torch.ones(images, dtype=torch.bool, device=input_ids.device)
        self.scores = torch.full((images, size), NEVER, device=input_ids.device)
        self.sequences = input_ids.new_full((images, size, generation_config.max_length), self.padding)

    def value(self, score: torch.Tensor, length: int) -> torch.Tensor:
        """Returns the score of a caption: log-probability / (number of new tokens) ** length_penalty."""
        return score / (length - self.prefix_length) ** self.settings.length_penalty

    def advance(self, sequences: torch.Tensor, sums: torch.Tensor, ranking: torch.Tensor, may_end: bool = True) -> Kept:
        """Takes the captions that end with their next word, and continues the best others.

        Args:
            sequences (`torch.LongTensor` of shape `(images, beams, length)`).
            sums (`torch.FloatTensor` of shape `(images, beams, vocab_size)`): log-probabilities of their continuations.
            ranking: scores for the choice of beams, of the same shape.
            may_end: whether captions that end are taken, or dropped.
        """
        vocab_size = ranking.shape[-1]
        number = min(self.most_candidates, ranking[0].numel())
        values, places = ranking.flatten(1).topk(number)
        beams, words = places // vocab_size, places % vocab_size
        scores = sums.flatten(1).gather(1, places)
        longer = torch.cat([take_rows(sequences, beams), words[..., None]], dim=-1)
        ends = self.stopping_criteria(longer.flatten(0, 1), None).view_as(words)
        if may_end:
            self.take(scores.masked_fill(~ends, NEVER)[:, : self.size], longer[:, : self.size])
        values, order = values.masked_fill(ends, NEVER).topk(self.size)
        scores = scores.gather(1, order).masked_fill(values == NEVER, NEVER)
        return Kept(beams.gather(1, order), words.gather(1, order), scores)

    def take(self, scores: torch.Tensor, sequences: torch.Tensor) -> None:
        values = self.value(scores, sequences.shape[-1]).masked_fill(~self.is_open[:, None], NEVER)
        sequences = pad(sequences, (0, self.sequences.shape[-1] - sequences.shape[-1]), value=self.padding)
        self.scores, order = torch.cat([self.scores, values], dim=1).topk(self.size)
        self.sequences = take_rows(torch.cat([self.sequences, sequences], dim=1), order)

    def close(self, running: torch.Tensor, length: int) -> None:
        """Closes the images of which no beam, with these scores `(images, beams)`, can become one of the best."""
        longest = length
        if self.settings.early_stopping == "never" and self.settings.length_penalty > 0:
            longest = self.settings.max_length
        best = running.amax(-1)
        is_full = self.scores[:, -1] > NEVER
        is_worse = self.value(best, longest) <= self.scores[:, -1]
        has_enough = is_full if self.settings.early_stopping is True else is_full & is_worse
        self.is_open &= (best > NEVER) & ~has_enough

    def best(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns sequences `(images, size, max_length)` and scores; where fewer have ended, the last one again."""
        last = (self.scores > NEVER).sum(-1, keepdim=True).clamp(min=1) - 1
        order = torch.arange(self.size, device=last.device).expand_as(self.scores).minimum(last)
        return take_rows(self.sequences, order), self.scores.gather(1, order)


def take_rows(sequences: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Returns of `(images, all_rows, length)` those with the indices `(images, rows)`."""
    return sequences.gather(1, rows[..., None].expand(-1, -1, sequences.shape[-1]))


def log_probabilities_of_start(images: int, beams: int, size: int, device: torch.device) -> torch.Tensor:
    """Returns scores `(images, beams)`: 0 for the first of every `size` beams, -inf for its still equal copies."""
    scores = torch.full((images, beams), NEVER, device=device)
    scores[:, ::size] = 0
    return scores


def padding_of(generation_config: Any) -> int:
    return generation_config.pad_token_id or 0


__all__ = ["NEVER", "EndedCaptions", "Kept", "StepwiseDecoder", "log_probabilities_of_start", "padding_of"]
