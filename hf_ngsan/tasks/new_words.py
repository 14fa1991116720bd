"""Adds new words of the training captions to the vocabulary of a trained model before fine-tuning."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..data.collator import IGNORED_LABEL
from ..data.vocabulary import add_words
from ..models.text_encoders import find_text_encoder
from .new_models import unknown_share

logger = logging.getLogger(__name__)

DECAY = 2.0  # weight of a row's squared change, per occurrence of the word; with less, other captions get the word too
SPECIAL_PIECES = {"pad_token": "pad", "bos_token": "cls", "eos_token": "sep", "unk_token": "unk"}


def learn_new_words(
    model: Any, tokenizer: PreTrainedTokenizerBase, captions: Sequence[str], min_count: int | None
) -> list[str]:
    """Adds words that occur at least `min_count` times in captions to the vocabulary of a model; returns them.

    Known words keep ids and weights. A new word is initialized as the mean of all known words, in embeddings and
    classifier; [`fit_new_words`] then fits it. Subword vocabularies do not change, and none with `min_count=None`.
    """
    unknown_share(captions, tokenizer)
    known = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    model.new_words = words = [] if min_count is None else add_words(tokenizer, captions, min_count)
    if not words:
        return []
    model.resize_token_embeddings(max(model.config.vocab_size, len(tokenizer)), mean_resizing=False)
    language_model = getattr(getattr(model.base_model, "decoder", None), "language_model", None)
    if language_model is not None:
        align(language_model, tokenizer)
    heads = [model.get_input_embeddings(), model.get_output_embeddings(), getattr(language_model, "lm_head", None)]
    new = tokenizer.convert_tokens_to_ids(words)
    for weight in (weight for head in heads if head is not None for weight in head.parameters()):
        weight.data[new] = weight.data[known].mean(0)
    logger.info("%d new words: %s", len(words), ", ".join(words[:30]) + ", ..." * (len(words) > 30))
    return words


@torch.no_grad()
def fit_new_words(model: Any, tokenizer: PreTrainedTokenizerBase, batches: Iterable[Any]) -> None:
    """Fits the new words of a captioner to their occurrences in captions; `batches` have `labels`.

    The embedding of a new word is copied from the known word that the captioner predicts most often in its place, and
    so is its classifier row. The rows then minimize the cross-entropy of all words of the captions, with all other
    weights fixed: "weight imprinting" (Qi et al. 2018) as a regression.
    """
    first, classifier, parts = len(tokenizer) - len(model.new_words), model.get_output_embeddings(), []
    expected = torch.zeros(len(model.new_words), first, device=model.device)
    for batch in batches:
        inputs = {name: value.to(model.device) for name, value in batch.items() if name != "caption_weights"}
        labels = inputs.pop("labels")
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
        states = model.model(**inputs, use_cache=False).last_hidden_state[labels != IGNORED_LABEL]
        logits, labels = classifier(states)[:, :first], labels[labels != IGNORED_LABEL]
        is_new = labels >= first
        expected.index_add_(0, labels[is_new] - first, logits[is_new].softmax(-1))
        known = logits.gather(1, labels.clamp(max=first - 1)[:, None])[:, 0]  # used where the label is a known word
        parts.append((states, logits.logsumexp(-1), known, labels))
    states, rest, known, labels = map(torch.cat, zip(*parts, strict=True))
    new, is_new = labels[labels >= first].unique(), labels >= first
    if not len(new):  # all of them are in the truncated parts of long captions
        return
    expected[:, tokenizer.all_special_ids] = 0
    nearest, rows = expected[new - first].argmax(-1), list(classifier.parameters())
    for weight in {model.get_input_embeddings().weight, *rows}:
        weight.data[new] = weight.data[nearest]
    fitted, places = [row.data[new].requires_grad_() for row in rows], torch.searchsorted(new, labels)
    start, decay = fitted[0].detach().clone(), DECAY / len(labels) * places[is_new].bincount()[:, None]
    optimizer = torch.optim.LBFGS(fitted, max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = functional.linear(states, *fitted)
        right = torch.where(is_new, logits.gather(1, places[:, None])[:, 0], known)
        value = (torch.logaddexp(rest, logits.logsumexp(-1)) - right).mean() + (decay * (fitted[0] - start) ** 2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    for row, values in zip(rows, fitted, strict=True):
        row.data[new] = values.data


def align(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Aligns the words of a tokenizer with the word pieces of a language model's pretrained text encoder, if any."""
    if model.config.language_tokenization != "word_pieces" or model.config.pretrained_text_encoder is None:
        return
    source = find_text_encoder(model.config.pretrained_text_encoder)
    pieces: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)  # nosec B615  # the user chose it
    special = {getattr(tokenizer, name): getattr(pieces, f"{other}_token_id") for name, other in SPECIAL_PIECES.items()}

    def pieces_of(word: str) -> list[int]:
        if special.get(word) is not None:
            return [special[word]]
        # with a space, as inside a caption: byte-level tokenizers split the first word of a text differently
        return pieces(f" {word}", add_special_tokens=False)["input_ids"] or [pieces.unk_token_id]

    vocabulary = tokenizer.get_vocab()
    model.align_vocabulary(sorted(vocabulary, key=vocabulary.__getitem__), pieces_of)
