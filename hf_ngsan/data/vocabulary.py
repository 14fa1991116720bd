"""A word-level tokenizer of captions.

```python
words_of("A dog's ball, on the T-shirt.")  # ["a", "dog's", "ball", "on", "the", "t-shirt"]
```
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .contract import refuse_long_caption
from .errors import DataError

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

NORMALIZER = normalizers.Sequence(
    [
        normalizers.NFKC(),
        normalizers.Lowercase(),
        normalizers.Replace(Regex("[‘’`´]"), "'"),
        normalizers.Replace(Regex(r"[^\w\s'-]|_"), " "),
        normalizers.Replace(Regex(r"(?<!\w)['-]+|['-]+(?!\w)"), " "),
        normalizers.Strip(),
    ]
)


def words_of(caption: str) -> list[str]:
    """Returns the words of a caption, lower-cased and without punctuation; raises a DataError if it is too long."""
    refuse_long_caption(len(caption), "a caption")
    return NORMALIZER.normalize_str(caption).split()


def build_tokenizer(captions: Iterable[str], *, min_count: int = 5, max_length: int = 64) -> PreTrainedTokenizerFast:
    """Builds a tokenizer whose words are those of the training captions.

    Text is lower-cased and loses its punctuation, apart from apostrophes and hyphens within a word. Ids: `<pad>` 0,
    `<s>` 1, `</s>` 2, `<unk>` 3, then the words, the most frequent first and equally frequent ones by alphabet.
    A sequence is encoded as `<s> words </s>`.

    Args:
        captions: strings, of the training split only.
        min_count: words seen less often become `<unk>`.
        max_length: the tokenizer's `model_max_length`, in tokens.

    Returns:
        `transformers.PreTrainedTokenizerFast`.

    Raises:
        DataError: something other than strings, or no word that is frequent enough.
    """
    if isinstance(captions, str):
        raise DataError(f"captions is one string, {captions!r}; build_tokenizer takes an iterable of strings.")
    counts: Counter[str] = Counter()
    for index, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise DataError(f"captions[{index}] is {caption!r}; build_tokenizer takes an iterable of strings.")
        counts.update(words_of(caption))
    words = sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )
    if not words:
        raise DataError(
            f"No word is seen {min_count} times among {len(counts)} different words of the captions; lower min_count."
        )
    return make_tokenizer([*SPECIAL_TOKENS.values(), *words], max_length=max_length)


def make_tokenizer(
    words: Sequence[str], special_tokens: Mapping[str, str] = SPECIAL_TOKENS, *, max_length: int = 64
) -> PreTrainedTokenizerFast:
    """Makes the tokenizer of a vocabulary.

    Args:
        words: the vocabulary in the order of its ids, special tokens included.
        special_tokens: names of the padding, start, end and unknown token, by `pad_token`, `bos_token`, `eos_token` and
            `unk_token`.
        max_length: the tokenizer's `model_max_length`, in tokens.
    """
    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=special_tokens["unk_token"]))
    backend.normalizer = NORMALIZER
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    start, end = special_tokens["bos_token"], special_tokens["eos_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(token, vocabulary[token]) for token in (start, end)]
    )
    return as_pretrained(backend, max_length, **special_tokens)


def as_pretrained(backend: Tokenizer, max_length: int, **options: Any) -> PreTrainedTokenizerFast:
    """Returns a tokenizer of transformers; options are its special tokens and other settings."""
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


def with_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Returns texts, with the unknown token for a text without words, such as a lone full stop."""
    words = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [text if ids else tokenizer.unk_token for text, ids in zip(texts, words, strict=True)]
