"""Splits text of any language into words or characters, for vocabularies, metrics and fingerprints.

English follows the rules of the field, such as the Penn Treebank tokenizer of the COCO evaluation for metrics. Other
languages use Unicode words (UAX 29): runs of letters between spaces and runs of katakana; Chinese, Thai and the rest of
Japanese are split into single characters.

```python
segment("Ein Hund, 3.5 kg")  # ["ein", "hund", "3.5", "kg"]
segment("一只狗在草地上跑", "characters")  # ["一", "只", "狗", "在", "草", "地", "上", "跑"]
```
"""

from functools import cache
from typing import Any, Literal

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

ENGLISH = "en"
Units = Literal["words", "characters"]
UNITS = ("words", "characters", "subwords")
"""Units into which a vocabulary can split captions; metrics count words or characters."""
TURKIC = ("tr", "az")
"""Languages in which the capital letters of i and ı are İ and I."""

CONTENT = r"\p{L}\p{M}\p{N}\p{So}"
"""Letters, their marks, digits, and symbols such as emoji: these occur in words but not in punctuation."""
SKIN_TONES = "\U0001f3fb-\U0001f3ff"
INVISIBLE = "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
"""Soft hyphens, and marks of the direction of text; not the joiners within words and emoji."""
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
"""Letters of scripts without spaces between words."""
FINAL_SIGMA = Regex(r"(?<=[\p{L}\p{M}])σ(?!'?[\p{L}\p{M}])")
"""A sigma at the end of a word; its lower case is ς."""


@cache
def plain(language: str = ENGLISH) -> normalizers.Normalizer:
    """Returns the normalizer to the lower case of a language, without invisible characters."""
    capitals = [("İ", "i"), ("I", "ı")] if language.partition("-")[0] in TURKIC else []
    return normalizers.Sequence(
        [
            normalizers.NFC(),
            *(normalizers.Replace(capital, letter) for capital, letter in capitals),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(INVISIBLE), ""),
            normalizers.Replace(Regex("[‘’`´]"), "'"),
            normalizers.Replace(FINAL_SIGMA, "ς"),
        ]
    )


@cache
def without_punctuation(language: str = ENGLISH) -> normalizers.Normalizer:
    """Returns the normalizer for character tokens: punctuation outside of words and numbers becomes a space."""
    return normalizers.Sequence(
        [
            plain(language),
            normalizers.Replace(Regex(r"(?<!\p{L})'|'(?!\p{L})"), " "),
            normalizers.Replace(Regex(r"(?<!\p{N})[.,]|[.,](?!\p{N})"), " "),
            normalizers.Replace(Regex(rf"[^{CONTENT}\u200c\u200d'.,{SKIN_TONES}]+"), " "),
            normalizers.Strip(),
        ]
    )


WORDS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"(?y{w})\X"), "isolated"),
        pre_tokenizers.Split(Regex(rf"^[^{CONTENT}]+$"), "removed"),
    ]
)
CHARACTERS = pre_tokenizers.Split(Regex(r"\X"), "isolated")


def segment(text: str, units: Units = "words", language: str = ENGLISH) -> list[str]:
    """Returns the words (UAX 29) or the characters (grapheme clusters) of a text, in lower case, without punctuation.

    Spaces do not count as characters. The language determines how letters are lower-cased.
    """
    if units == "words":
        return [word for word, _ in WORDS.pre_tokenize_str(plain(language).normalize_str(text))]
    characters = CHARACTERS.pre_tokenize_str(without_punctuation(language).normalize_str(text))
    return [character for character, _ in characters if character != " "]


def joining_words() -> decoders.Decoder:
    """Returns the decoder that puts spaces between words, but none next to words of scripts without spaces."""
    return decoders.Sequence(
        [
            decoders.Replace(Regex("^"), " "),
            decoders.Fuse(),
            decoders.Replace(Regex(rf"(?<={UNSPACED}) | (?={UNSPACED})"), ""),
            decoders.Strip(" ", 1, 0),
        ]
    )


def language_of(tokenizer: Any) -> str:
    """Returns the language of the captions that a tokenizer was made for; English if the tokenizer names none."""
    return getattr(tokenizer, "init_kwargs", {}).get("language") or ENGLISH


def caption_units(language: str) -> str:
    """Returns the tokenizer of metrics: "ptb" (Penn Treebank) for English, "words-tr" for Turkish, else "words"."""
    code = language.partition("-")[0]
    return "ptb" if code == ENGLISH else f"words-{code}" if code in TURKIC else "words"
