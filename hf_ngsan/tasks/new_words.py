"""Words of the captions that a trained model is fine-tuned on, which its vocabulary lacks."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from ..data.vocabulary import add_words
from ..languages import ENGLISH, language_of
from ..loading.models import quiet_loading
from ..models.configuration_hub import MissingBackboneError
from ..models.text_encoders import find_text_encoder

logger = logging.getLogger(__name__)

TEXT_ENCODER = "all-minilm-l6-v2"
NEIGHBOURS = 5
MOST_NAMED = 30  # words in the log
SPECIAL_PIECES = {"pad_token": "pad", "bos_token": "cls", "eos_token": "sep", "unk_token": "unk"}
"""Special tokens of captions, and the equivalent ones of a text encoder."""


def learn_new_words(
    model: Any, tokenizer: PreTrainedTokenizerBase, captions: Iterable[str], min_count: int | None
) -> list[str]:
    """Adds the words that captions have `min_count` times or more to the vocabulary of a model; returns them.

    Known words keep ids and weights. A new word begins, in embeddings and classifier, as the mean of the `NEIGHBOURS`
    known words that are most similar in a text encoder, if it is English and the encoder's package is installed, else
    of all known words. Vocabularies of subwords stay as they are, and all with `min_count=None`.
    """
    known = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))  # in one order in every process
    words = [] if min_count is None else add_words(tokenizer, captions, min_count)
    if not words:
        return []
    model.resize_token_embeddings(max(model.config.vocab_size, len(tokenizer)), mean_resizing=False)
    language_model = getattr(getattr(model.base_model, "decoder", None), "language_model", None)
    if language_model is not None:
        align(language_model, tokenizer)
    sources, how = [known] * len(words), "all known words"
    if language_of(tokenizer) == ENGLISH:
        with suppress(MissingBackboneError):
            sources = nearest_words(words, known)
            how = f"the {NEIGHBOURS} known words nearest to each in {TEXT_ENCODER}"
    heads = [model.get_input_embeddings(), model.get_output_embeddings(), getattr(language_model, "lm_head", None)]
    vocabulary = tokenizer.get_vocab()
    for word, near in zip(words, sources, strict=True):
        rows = [vocabulary[one] for one in near]
        for weight in (weight for head in heads if head is not None for weight in head.parameters()):
            weight.data[vocabulary[word]] = weight.data[rows].mean(0)
    named = ", ".join(words[:MOST_NAMED]) + (", ..." if len(words) > MOST_NAMED else "")
    logger.info("%d new words, which begin as the mean of %s: %s", len(words), how, named)
    return words


def align(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Aligns the words of a tokenizer with the word pieces of a language model's pretrained text encoder, if any."""
    if model.config.language_tokenization != "word_pieces" or model.config.pretrained_text_encoder is None:
        return
    source = find_text_encoder(model.config.pretrained_text_encoder)
    pieces: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)  # nosec B615  # the user's choice
    special = {getattr(tokenizer, name): getattr(pieces, f"{other}_token_id") for name, other in SPECIAL_PIECES.items()}

    def pieces_of(word: str) -> list[int]:
        if special.get(word) is not None:
            return [special[word]]
        # with a space, as within a caption: byte-level tokenizers split the first word of a text differently
        return pieces(f" {word}", add_special_tokens=False)["input_ids"] or [pieces.unk_token_id]

    vocabulary = tokenizer.get_vocab()
    model.align_vocabulary(sorted(vocabulary, key=vocabulary.__getitem__), pieces_of)


@torch.inference_mode()
def nearest_words(words: Sequence[str], known: Sequence[str]) -> list[list[str]]:
    """Returns the `NEIGHBOURS` known words that are most similar to each word: cosines of mean-pooled states."""
    folder = find_text_encoder(TEXT_ENCODER)
    with quiet_loading():
        encoder = AutoModel.from_pretrained(folder, trust_remote_code=False).eval()  # nosec B615  # installed, no code
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # nosec B615

    def embed(texts: Sequence[str]) -> torch.Tensor:
        inputs = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        states = encoder(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
        return torch.nn.functional.normalize(states.sum(1), dim=-1)  # as that of the mean

    of_known = torch.cat([embed(known[start : start + 256]) for start in range(0, len(known), 256)])
    nearest = (embed(words) @ of_known.T).topk(min(NEIGHBOURS, len(known))).indices
    return [[known[place] for place in places] for places in nearest.tolist()]
