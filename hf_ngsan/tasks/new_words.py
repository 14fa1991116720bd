"""Words of the captions that a trained model is fine-tuned on, which its vocabulary lacks."""

import logging
from collections.abc import Iterable, Sequence
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

    Known words keep their ids and weights. The rows of a new word in embeddings and classifier are the mean of those of
    the `NEIGHBOURS` known words that are most similar in a text encoder, if its package is installed and the words are
    English, and of all known words otherwise. Vocabularies of subwords, and `min_count=None`, stay as they are.
    """
    known = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))  # in one order in every process
    words = [] if min_count is None else add_words(tokenizer, captions, min_count)
    if not words:
        return []
    model.resize_token_embeddings(max(model.config.vocab_size, len(tokenizer)), mean_resizing=False)
    language_model = getattr(getattr(model.base_model, "decoder", None), "language_model", None)
    if language_model is not None:
        align(language_model, tokenizer)
    places, sources = ids_of(tokenizer, words), [ids_of(tokenizer, known)] * len(words)
    how = "all known words"
    if language_of(tokenizer) == ENGLISH:
        try:
            sources = [ids_of(tokenizer, near) for near in nearest_words(words, known)]
            how = f"the {NEIGHBOURS} known words nearest to each in {TEXT_ENCODER}"
        except MissingBackboneError:
            pass
    heads = [model.get_input_embeddings(), model.get_output_embeddings(), getattr(language_model, "lm_head", None)]
    with torch.no_grad():
        for weight in (weight for head in heads if head is not None for weight in head.parameters()):
            weight[places] = torch.stack([weight[near].mean(0) for near in sources])
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


def ids_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int]:
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[word] for word in words]


@torch.inference_mode()
def nearest_words(words: Sequence[str], known: Sequence[str]) -> list[list[str]]:
    """Returns the `NEIGHBOURS` known words that are most similar to each word: cosines of mean-pooled states."""
    folder = find_text_encoder(TEXT_ENCODER)
    with quiet_loading():
        encoder = AutoModel.from_pretrained(folder, trust_remote_code=False).eval()  # nosec B615  # installed, no code
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # nosec B615

    def embed(texts: Sequence[str]) -> torch.Tensor:
        states = []
        for start in range(0, len(texts), 256):
            inputs = tokenizer(list(texts[start : start + 256]), padding=True, truncation=True, return_tensors="pt")
            mask = inputs["attention_mask"][..., None]
            states.append((encoder(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(states), dim=-1)

    near = (embed(words) @ embed(known).T).topk(min(NEIGHBOURS, len(known))).indices
    return [[known[place] for place in places] for places in near.tolist()]
