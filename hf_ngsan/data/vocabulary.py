"""Tokenizers: words of captions, words of questions (split as in MCAN's released code), and subwords that both
languages of a translation share.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..languages import CHARACTERS, ENGLISH, UNITS, WORDS, caption_units, joining_words, plain, without_punctuation
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
PADDING, UNKNOWN = SPECIAL_TOKENS["pad_token"], SPECIAL_TOKENS["unk_token"]  # special tokens of questions
QUESTION_NORMALIZER = normalizers.Sequence(
    [
        normalizers.Lowercase(),
        normalizers.Replace(Regex(r"""[.,'!?"()*#:;]"""), ""),
        normalizers.Replace(Regex("[-/]"), " "),
    ]
)


def words_of(caption: str) -> list[str]:
    """Returns the words of a caption, lower-cased and without punctuation."""
    return NORMALIZER.normalize_str(caption).split()


def build_tokenizer(
    captions: Iterable[str],
    *,
    min_count: int = 5,
    max_length: int = 64,
    units: str = "words",
    language: str = ENGLISH,
    vocab_size: int = 10_000,
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer with the words, characters or subwords of the training captions.

    Text is lower-cased, and punctuation is removed except apostrophes and hyphens within English words. Ids: `<pad>` 0,
    `<s>` 1, `</s>` 2, `<unk>` 3, then the words or characters by descending frequency (ties in alphabetical order), or
    the characters and merges of subwords. A sequence is encoded as `<s> words </s>`.

    Args:
        captions: strings of the training split only.
        min_count: rarer words and characters become `<unk>`.
        max_length: the tokenizer's `model_max_length`, in tokens.
        units: `words` (for other languages than English: Unicode words, UAX 29, see [`~hf_ngsan.languages.segment`]),
            `characters` (grapheme clusters and spaces), or `subwords` (byte-pair encoding, Sennrich et al. 2016).
        language: a code such as `en`, `de` or `zh`. It determines lower case and the words for metrics, for all units.
        vocab_size: maximum number of subwords and special tokens.

    Returns:
        `transformers.PreTrainedTokenizerFast`; its `init_kwargs` have the `language`, except English, and the `units`,
        except words.

    Raises:
        DataError: `captions` is a string, no word is frequent enough, or the units are unknown.
    """
    if isinstance(captions, str):
        raise DataError(f"captions is one string, {captions!r}; build_tokenizer needs an iterable of strings.")
    if units not in UNITS:
        raise DataError(f"units is {units!r}; it must be one of {', '.join(UNITS)}.")
    texts = list(captions)
    is_english = caption_units(language) == "ptb"
    if units == "subwords":
        backend = train_subwords(texts, vocab_size, language)
    else:
        backend = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
        if units == "characters":
            backend.normalizer, backend.pre_tokenizer = without_punctuation(language), CHARACTERS
            backend.decoder = decoders.Fuse()
        elif is_english:
            backend.normalizer, backend.pre_tokenizer = NORMALIZER, pre_tokenizers.WhitespaceSplit()
        else:
            backend.normalizer, backend.pre_tokenizer = plain(language), WORDS
            backend.decoder = joining_words()
        words, counts = words_by_frequency(backend, texts, min_count)
        refuse_empty(words, counts, min_count)
        vocabulary = {word: index for index, word in enumerate([*SPECIAL_TOKENS.values(), *words])}
        backend.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
    options = ({} if is_english else {"language": language}) | ({} if units == "words" else {"units": units})
    return with_ends(backend, max_length, options)


def words_by_frequency(backend: Tokenizer, texts: Iterable[str], min_count: int) -> tuple[list[str], Counter[str]]:
    """Returns the frequent words of texts, by descending frequency, and the count of every word."""
    split, normalize = backend.pre_tokenizer.pre_tokenize_str, backend.normalizer.normalize_str
    counts = Counter(word for text in texts for word, _ in split(normalize(text)))
    frequent = (word for word, count in counts.items() if count >= min_count)
    return sorted(frequent, key=lambda word: (-counts[word], word)), counts


def add_words(tokenizer: Any, captions: Iterable[str], min_count: int) -> list[str]:
    """Adds the frequent words of captions to a vocabulary (except subwords), and returns the new words."""
    backend, vocabulary = tokenizer.backend_tokenizer, tokenizer.get_vocab()
    if not isinstance(backend.model, models.WordLevel):
        return []
    words = [word for word in words_by_frequency(backend, captions, min_count)[0] if word not in vocabulary]
    first = max(vocabulary.values()) + 1
    vocabulary |= {word: index for index, word in enumerate(words, start=first)}
    backend.model = models.WordLevel(vocabulary, unk_token=tokenizer.unk_token)
    return words


def train_subwords(texts: Iterable[str], vocab_size: int, language: str) -> Tokenizer:
    """Learns merges of characters; `▁` marks the beginning of a word."""
    backend = Tokenizer(models.BPE(unk_token=UNKNOWN))
    backend.normalizer = without_punctuation(language)
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    learn_merges(backend, texts, vocab_size=vocab_size, limit_alphabet=vocab_size - len(SPECIAL_TOKENS))
    return backend


def learn_merges(backend: Tokenizer, texts: Iterable[str], **options: Any) -> None:
    special_tokens = list(SPECIAL_TOKENS.values())
    trainer = trainers.BpeTrainer(min_frequency=2, special_tokens=special_tokens, show_progress=False, **options)
    backend.train_from_iterator(texts, trainer)


def with_ends(
    backend: Tokenizer, max_length: int, options: Mapping[str, Any], special_tokens: Mapping[str, str] = SPECIAL_TOKENS
) -> PreTrainedTokenizerFast:
    """Returns a transformers tokenizer that encodes text as `<s> tokens </s>`."""
    start, end = special_tokens["bos_token"], special_tokens["eos_token"]
    ends = [(token, backend.token_to_id(token)) for token in (start, end)]
    backend.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=ends)
    return as_pretrained(backend, max_length, **special_tokens, **options)


def refuse_empty(words: Sequence[str], counts: Counter[str], min_count: int) -> None:
    if not words:
        raise DataError(f"None of {len(counts)} different words occurs {min_count} times; lower min_count.")


def as_pretrained(backend: Tokenizer, max_length: int, **options: Any) -> PreTrainedTokenizerFast:
    """Returns a transformers tokenizer; `options` are its special tokens and other settings."""
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


def with_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Returns texts; a text without words, such as a single full stop, becomes the unknown token."""
    words = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [text if ids else tokenizer.unk_token for text, ids in zip(texts, words, strict=True)]


def words_of_question(question: str) -> list[str]:
    """Returns the words of a question: lower-cased, apostrophes and other marks deleted, split at hyphens."""
    return QUESTION_NORMALIZER.normalize_str(question).split()


def build_question_tokenizer(
    questions: Iterable[str], *, min_count: int = 1, max_length: int = 14
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer with the words of the training questions.

    Ids: `<pad>` 0, `<unk>` 1, then the words in order of first occurrence, as in the released code.

    Args:
        questions: strings of the training split only.
        min_count: rarer words become `<unk>`; raises a DataError if no word is frequent enough.
        max_length: the tokenizer's `model_max_length`; longer questions are truncated.
    """
    counts = Counter(word for question in questions for word in words_of_question(question))
    words = [word for word, count in counts.items() if count >= min_count and word not in (PADDING, UNKNOWN)]
    refuse_empty(words, counts, min_count)
    return make_question_tokenizer([PADDING, UNKNOWN, *words], max_length=max_length)


def make_question_tokenizer(words: Sequence[str], *, max_length: int = 14) -> PreTrainedTokenizerFast:
    """Makes a tokenizer from a vocabulary: words in the order of their ids, including `<pad>` and `<unk>`."""
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    backend.normalizer = QUESTION_NORMALIZER
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return as_pretrained(backend, max_length, pad_token=PADDING, unk_token=UNKNOWN)


def build_subword_tokenizer(
    sentences: Iterable[str], *, vocab_size: int = 10_000, max_length: int = 256
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer with byte-level byte-pair encoding (Sennrich et al. 2016), so that no text is unknown.

    Words and punctuation are separated first, as in GPT-2. Decoding returns the original text in Unicode form NFC. Ids:
    `<pad>` 0, `<s>` 1, `</s>` 2, `<unk>` 3, then 256 bytes and the merges. A sequence is encoded as `tokens </s>`;
    special tokens inside a text are treated as text.

    Args:
        sentences: strings of all languages, of the training split only.
        vocab_size: maximum number of subwords and special tokens, at least `MIN_SUBWORDS`.
        max_length: the tokenizer's `model_max_length`, in tokens.
    """
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learn_merges(backend, sentences, vocab_size=vocab_size, initial_alphabet=alphabet)
    end = SPECIAL_TOKENS["eos_token"]
    ends = [(end, backend.token_to_id(end))]
    backend.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=ends)
    return as_pretrained(backend, max_length, split_special_tokens=True, **SPECIAL_TOKENS)
