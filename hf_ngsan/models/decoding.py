"""Diverse and constrained beam search, for the argument `custom_generate` of transformers' `generate()`.

`model.generate(**inputs, custom_generate=diverse_beam_search, num_beams=6, num_beam_groups=3)` runs no remote code.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from transformers.generation import GenerateBeamEncoderDecoderOutput

from .processing_captioning import TOKENIZING

NEVER = float("-inf")


class StepwiseDecoder:
    """Extends sequences `(rows, length)` word by word, with the cache that `generate()` has prepared, if any."""

    def __init__(self, model: Any, sequences: torch.Tensor, model_kwargs: dict) -> None:
        self.model = model
        self.sequences = sequences
        self.kwargs = model_kwargs
        self.is_first = True

    def step(self) -> Any:
        """Returns the outputs of the model for the words that are not cached, or for all words without a cache."""
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
        """Returns log-probabilities `(rows, vocab_size)` of the next word, processed as in beam search."""
        return logits_processor(self.sequences, self.step().logits[:, -1].float().log_softmax(-1))

    def choose(self, rows: torch.Tensor, words: torch.Tensor) -> None:
        """Continues the sequences in `rows` by one word each; `rows` and `words` have an entry for each new row."""
        self.sequences = self.sequences[rows]
        self.append(words)
        cache = self.kwargs.get("cache", self.kwargs.get("past_key_values"))
        if cache is not None:
            cache.reorder_cache(rows)

    def append(self, words: torch.Tensor) -> None:
        """Continues every sequence by one word."""
        self.sequences = torch.cat([self.sequences, words[:, None]], dim=1)


class Kept(NamedTuple):
    """Beams that continue, as `(images, size)` tensors: their previous beams, next words and scores."""

    beams: torch.Tensor
    words: torch.Tensor
    scores: torch.Tensor


class EndedCaptions:
    """The best `size` finished captions of each image, by the rules of transformers' beam search.

    `is_open` `(images,)` states whether better captions are possible. `scores` `(images, size)` are the scores of the
    captions, the best first; minus infinity marks a missing caption.
    """

    def __init__(
        self, images: int, size: int, input_ids: torch.Tensor, generation_config: Any, stopping_criteria: Any
    ) -> None:
        self.size = size
        self.prefix_length = input_ids.shape[1]
        self.settings = generation_config
        self.stopping_criteria = stopping_criteria
        self.padding = generation_config.pad_token_id or 0
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
        """Collects (or drops) captions that end with their next word, and returns the best beams that continue.

        Sequences are `(images, beams, length)`. The log-probabilities `sums` of their continuations, and the values
        `ranking` that choose the beams, are `(images, beams, vocab_size)`.
        """
        vocab_size = ranking.shape[-1]
        number = min(self.most_candidates, ranking[0].numel())
        values, places = ranking.flatten(1).topk(number)
        beams, words = places // vocab_size, places % vocab_size
        scores = sums.flatten(1).gather(1, places)
        longer = torch.cat([sequences.take_along_dim(beams[..., None], 1), words[..., None]], dim=-1)
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
        self.sequences = torch.cat([self.sequences, sequences], dim=1).take_along_dim(order[..., None], 1)

    def close(self, running: torch.Tensor, length: int) -> None:
        """Closes the images for which no beam, with these scores `(images, beams)`, can become one of the best."""
        longest = length
        if self.settings.early_stopping == "never" and self.settings.length_penalty > 0:
            longest = self.settings.max_length
        best = running.amax(-1)
        is_full = self.scores[:, -1] > NEVER
        is_worse = self.value(best, longest) <= self.scores[:, -1]
        has_enough = is_full if self.settings.early_stopping is True else is_full & is_worse
        self.is_open &= (best > NEVER) & ~has_enough

    def best(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns sequences `(images, size, max_length)` and scores; the last one is repeated if too few have ended."""
        last = (self.scores > NEVER).sum(-1, keepdim=True).clamp(min=1) - 1
        order = torch.arange(self.size, device=last.device).expand_as(self.scores).minimum(last)
        return self.sequences.take_along_dim(order[..., None], 1), self.scores.gather(1, order)


def log_probabilities_of_start(images: int, beams: int, size: int, device: torch.device) -> torch.Tensor:
    """Returns scores `(images, beams)`: 0 for the first of every `size` beams, -inf for its identical copies."""
    scores = torch.full((images, beams), NEVER, device=device)
    scores[:, ::size] = 0
    return scores


# Among 0, 0.5, 1, 1.5, 2, 3 and 5, it gives the largest sum of CIDEr-D of three greedy groups on Flickr8k.
DIVERSITY_PENALTY = 1.5
NOT_SUPPORTED = ("do_sample", "output_scores", "output_logits", "output_attentions", "output_hidden_states")


@torch.no_grad()
def diverse_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    num_beam_groups: int = 2,
    diversity_penalty: float = DIVERSITY_PENALTY,
    **model_kwargs: Any,
) -> Any:
    """Searches with groups of beams; each group avoids the words that earlier groups choose at the same step.

    Diverse beam search (Vijayakumar et al. 2016) with Hamming diversity: if n beams of earlier groups chose a word, its
    log-probability decreases by `n * diversity_penalty` when a group chooses its beams. The scores of beams do not
    include the penalty, and end tokens have none. With any penalty, a group returns other captions than earlier groups.

    Args:
        model, ..., model_kwargs: as passed by `generate()`; `num_beams` counts the beams of all groups.
        num_beam_groups: number of groups; it must divide `num_beams`.
        diversity_penalty: what a word loses for each beam of an earlier group that chooses it.

    Returns:
        Sequences `(batch_size * num_return_sequences, length)`, or with `return_dict_in_generate` an output with
        `sequences` and `sequences_scores`: for each image the best of every group, then their second best and so on.
    """
    check_settings("diverse_beam_search", generation_config)
    beams = generation_config.num_beams
    if num_beam_groups < 1 or beams % num_beam_groups or not 0 <= diversity_penalty < float("inf"):
        values = f"num_beams is {beams}, num_beam_groups {num_beam_groups} and diversity_penalty {diversity_penalty}"
        raise ValueError(f"{values}; num_beams must be a multiple of num_beam_groups, and the penalty at least 0.")
    decoder = StepwiseDecoder(model, input_ids, model_kwargs)
    images, size = len(input_ids) // beams, beams // num_beam_groups
    returned = -(-generation_config.num_return_sequences // num_beam_groups)  # by each group
    first_rows = torch.arange(images, device=input_ids.device)[:, None] * beams
    ended = [
        EndedCaptions(images, size, input_ids, generation_config, stopping_criteria) for _ in range(num_beam_groups)
    ]
    scores = log_probabilities_of_start(images, beams, size, input_ids.device).view(images, num_beam_groups, size)
    while any(bool(group.is_open.any()) for group in ended):
        log_probs = decoder.log_probs(logits_processor).view(images, num_beam_groups, size, -1)
        sequences = decoder.sequences.view(images, num_beam_groups, size, -1)
        times_chosen = torch.zeros_like(log_probs[:, 0, 0])
        rows, words = [], []
        for number, group in enumerate(ended):
            sums = scores[:, number, :, None] + log_probs[:, number]
            sums = without_captions_of(ended[:number], returned, sequences[:, number], sums)
            kept = group.advance(sequences[:, number], sums, sums - diversity_penalty * times_chosen[:, None])
            scores[:, number] = kept.scores
            times_chosen.scatter_add_(1, kept.words, kept.scores.isfinite().float())
            times_chosen[:, group.padding] = 0  # padding is not a word
            rows.append(first_rows + number * size + kept.beams)
            words.append(kept.words)
        decoder.choose(torch.stack(rows, dim=1).flatten(), torch.stack(words, dim=1).flatten())
        for number, group in enumerate(ended):
            group.close(scores[:, number], decoder.sequences.shape[1])
    best = [group.best() for group in ended]
    captions, caption_scores = (torch.stack(parts, dim=2) for parts in zip(*best, strict=True))
    return answer(captions.flatten(1, 2), caption_scores.flatten(1, 2), input_ids.shape[1], generation_config)


def without_captions_of(
    groups: Sequence[EndedCaptions], number: int, beams: torch.Tensor, sums: torch.Tensor
) -> torch.Tensor:
    """Returns the scores `sums` of continuations, with -inf for the best `number` captions of other groups."""
    length, times_found = beams.shape[-1], torch.zeros_like(sums)
    for group in groups:
        captions, is_caption = group.sequences[:, None, :number], (group.scores > NEVER)[:, None, :number]
        continues = (captions[..., :length] == beams[:, :, None]).all(-1) & is_caption
        times_found.scatter_add_(-1, captions[..., length].expand_as(continues), continues.to(sums.dtype))
    without_repeated = sums.masked_fill(times_found > 0, NEVER)
    # A duplicate is better than no caption if a finished caption can only be padded (`finished_beams`).
    return torch.where((without_repeated > NEVER).flatten(1).any(-1)[:, None, None], without_repeated, sums)


@torch.no_grad()
def constrained_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    required_words: Sequence[Sequence[int]] = (),
    **model_kwargs: Any,
) -> Any:
    """Searches for the most probable captions that contain all required words, in any order.

    Grid beam search (Hokamp and Liu 2017) for single words: for each k, the captions with k of the required words
    compete for `num_beams` separate beams; only captions with all words may end. Raises a ValueError if there is none.

    Args:
        required_words: for each required word, a list of token ids, such as its forms; one of them is enough.
    """
    check_settings("constrained_beam_search", generation_config)
    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    is_required = table_of_words(required_words, vocab_size).to(input_ids.device).unique(dim=0)
    beams, banks = generation_config.num_beams, len(is_required) + 1
    images = len(input_ids) // beams
    input_ids, model_kwargs = model._expand_inputs_for_generation(
        input_ids=input_ids, expand_size=banks, is_encoder_decoder=model.config.is_encoder_decoder, **model_kwargs
    )
    decoder = StepwiseDecoder(model, input_ids, model_kwargs)
    first_rows = torch.arange(images, device=input_ids.device)[:, None] * banks * beams
    ended = EndedCaptions(images, beams, input_ids, generation_config, stopping_criteria)
    scores = log_probabilities_of_start(images, banks * beams, banks * beams, input_ids.device)
    # The bank of a row is the number of required words that it contains, including those in its prefix.
    begun = is_required[:, input_ids].any(-1).sum(0).view(images, -1)[:, :1]
    scores = scores.gather(1, (torch.arange(banks * beams, device=scores.device) - begun * beams) % (banks * beams))
    while bool(ended.is_open.any()):
        sums = scores[..., None] + decoder.log_probs(logits_processor).view(images, banks * beams, -1)
        has = is_required[:, decoder.sequences].any(-1)  # (required words, rows)
        gained = (~has).float().T @ is_required.float()  # number of required words that each next word adds to a row
        number_of_words = (has.sum(0)[:, None] + gained).view_as(sums)
        sequences = decoder.sequences.view(images, banks * beams, -1)
        kept = []
        for bank in range(banks):
            in_bank = sums.masked_fill(number_of_words != bank, NEVER)
            kept.append(ended.advance(sequences, in_bank, in_bank, may_end=bank == banks - 1))
        scores = torch.cat([in_bank.scores for in_bank in kept], dim=1)
        rows = torch.cat([first_rows + in_bank.beams for in_bank in kept], dim=1)
        decoder.choose(rows.flatten(), torch.cat([in_bank.words for in_bank in kept], dim=1).flatten())
        ended.close(scores, decoder.sequences.shape[1])
    if not bool((ended.scores[:, 0] > NEVER).all()):
        raise ValueError(
            f"No caption of at most {generation_config.max_length - ended.prefix_length} new tokens contains all "
            f"{len(is_required)} required words; increase max_new_tokens, or require fewer words."
        )
    return answer(*ended.best(), ended.prefix_length, generation_config)


def table_of_words(required_words: Sequence[Sequence[int]], vocab_size: int) -> torch.Tensor:
    """Returns a table `(required words, vocab_size)`, true for the tokens of each word."""
    table = torch.zeros(len(required_words), vocab_size, dtype=torch.bool)
    for number, ids in enumerate(required_words):
        if not ids or min(ids) < 0 or max(ids) >= vocab_size:
            raise ValueError(f"required_words[{number}] is {ids!r:.60}; give a list of ids from 0 to {vocab_size - 1}.")
        table[number, list(ids)] = True
    return table


def check_settings(search: str, generation_config: Any) -> None:
    """Raises a ValueError for settings of `generate()` that these searches do not support."""
    settings = [f"{name}=True" for name in NOT_SUPPORTED if getattr(generation_config, name, None)]
    if generation_config.cache_implementation not in (None, "dynamic"):
        settings.append(f"cache_implementation={generation_config.cache_implementation!r}")
    if settings:
        raise ValueError(f"{search} does not support {settings[0]}; leave it out.")


def answer(sequences: torch.Tensor, scores: torch.Tensor, prefix_length: int, generation_config: Any) -> Any:
    """Returns the result of `generate()`: `num_return_sequences` of the captions `(images, captions, max_length)`."""
    number = generation_config.num_return_sequences
    sequences, scores = sequences[:, :number].flatten(0, 1), scores[:, :number].flatten()
    is_used = (sequences != (generation_config.pad_token_id or 0)).any(0)
    is_used[:prefix_length] = True
    trimmed: Any = sequences[:, : int(is_used.nonzero().max()) + 1]
    if generation_config.return_dict_in_generate:
        return GenerateBeamEncoderDecoderOutput(sequences=trimmed, sequences_scores=scores)
    return trimmed


SEARCHES = {  # by the option of a pipeline that selects them
    "num_beam_groups": diverse_beam_search,
    "required_words": constrained_beam_search,
}


def with_search(options: Mapping[str, Any], processor: Any) -> dict[str, Any]:
    """Returns arguments of `generate()` for the search that an option selects (see `SEARCHES`).

    `required_words` are strings, or lists of alternative strings; `forbidden_words` are strings, for any search.
    """
    options = dict(options)
    if forbidden := options.pop("forbidden_words", None):
        forbidden_ids = [id_of_word(word, processor) for word in forbidden]
        options["suppress_tokens"] = [*(options.get("suppress_tokens") or ()), *forbidden_ids]
    names = [name for name in SEARCHES if options.get(name) is not None]
    if not names or options.get("custom_generate") is not None:
        return options
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} select different searches; use one of them.")
    arguments = {**options, "custom_generate": SEARCHES[names[0]]}
    if names == ["required_words"]:
        forms = [[word] if isinstance(word, str) else word for word in options["required_words"]]
        arguments["required_words"] = [[id_of_word(word, processor) for word in alternatives] for alternatives in forms]
    return arguments


def id_of_word(word: str, processor: Any) -> int:
    with TOKENIZING:
        ids = processor.tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] in processor.tokenizer.all_special_ids:
        raise ValueError(f"The word {word!r} is not a single word of the vocabulary; choose another.")
    return ids[0]
