"""A byte-pair tokenizer that both languages of a translation share."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .errors import DataError
from .vocabulary import SPECIAL_TOKENS, as_pretrained

MIN_SUBWORDS = len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())
"""Number of the special tokens and bytes, which every vocabulary has."""


def build_subword_tokenizer(
    sentences: Iterable[str], *, vocab_size: int = 10_000, max_length: int = 256
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer by byte-pair encoding (Sennrich et al. 2016) over bytes, so that no text is unknown.

    Words and punctuation are separated first, as in GPT-2. Decoding gives the text back, in Unicode's form NFC. Ids:
    `<pad>` 0, `<s>` 1, `</s>` 2, `<unk>` 3, then 256 bytes and the merges. A sequence is encoded as `tokens </s>`;
    special tokens within a text are text.

    Args:
        sentences: of all languages, of the training split only.
        vocab_size: maximal number of subwords and special tokens.
        max_length: the tokenizer's `model_max_length`, in tokens.

    Returns:
        `transformers.PreTrainedTokenizerFast`.

    Raises:
        DataError: the vocabulary is smaller than `MIN_SUBWORDS`.
    """
    if vocab_size < MIN_SUBWORDS:
        raise DataError(f"vocab_size is {vocab_size}; special tokens and bytes alone are {MIN_SUBWORDS}.")
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    end = SPECIAL_TOKENS["eos_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, backend.token_to_id(end))]
    )
    return as_pretrained(backend, max_length, split_special_tokens=True, **SPECIAL_TOKENS)
