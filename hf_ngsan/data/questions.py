"""A word-level tokenizer of questions that splits words as MCAN's released code does.

```python
words_of_question("What's on the man's T-shirt?")  # ["whats", "on", "the", "mans", "t", "shirt"]
```
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from .errors import DataError
from .vocabulary import as_pretrained

PADDING, UNKNOWN = "<pad>", "<unk>"
NORMALIZER = normalizers.Sequence(
    [
        normalizers.Lowercase(),
        normalizers.Replace(Regex(r"""[.,'!?"()*#:;]"""), ""),
        normalizers.Replace(Regex("[-/]"), " "),
    ]
)


def words_of_question(question: str) -> list[str]:
    """Returns the words of a question: lower-cased, apostrophes and other marks deleted, split at hyphens."""
    return NORMALIZER.normalize_str(question).split()


def build_question_tokenizer(
    questions: Iterable[str], *, min_count: int = 1, max_length: int = 14
) -> PreTrainedTokenizerFast:
    """Builds a tokenizer whose words are those of the training questions.

    Ids: `<pad>` 0, `<unk>` 1, then the words in the order in which they first occur, as in the released code.

    Args:
        questions: strings, of the training split only.
        min_count: words seen less often become `<unk>`.
        max_length: the tokenizer's `model_max_length`: longer questions are cut.

    Returns:
        `transformers.PreTrainedTokenizerFast`, which adds no tokens.

    Raises:
        DataError: no word is frequent enough.
    """
    counts = Counter(word for question in questions for word in words_of_question(question))
    words = [word for word, count in counts.items() if count >= min_count and word not in (PADDING, UNKNOWN)]
    if not words:
        raise DataError(
            f"No word is seen {min_count} times among {len(counts)} different words of the questions; lower min_count."
        )
    return make_question_tokenizer([PADDING, UNKNOWN, *words], max_length=max_length)


def make_question_tokenizer(words: Sequence[str], *, max_length: int = 14) -> PreTrainedTokenizerFast:
    """Makes the tokenizer of a vocabulary.

    Args:
        words: the vocabulary in the order of its ids, `<pad>` and `<unk>` included.
        max_length: the tokenizer's `model_max_length`, in words.
    """
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    backend.normalizer = NORMALIZER
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return as_pretrained(backend, max_length, pad_token=PADDING, unk_token=UNKNOWN)
