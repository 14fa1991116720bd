"""VQA accuracy with the official normalisation of answers (Antol et al. 2015, Goyal et al. 2017) and its quirks."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

MARKS = (*';/[]"{}()=+\\_-><@`,?!',)
DIGITS_WITH_COMMA = re.compile(r"\d,\d")
PERIOD = re.compile(r"\.(?!\d)")
MAX_PERIODS = 32
"""The official code passes `re.UNICODE` (= 32) to `re.sub` as the number of replacements."""
ARTICLES = ("a", "an", "the")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DIGIT_OF_WORD = {"none": "0", **{word: str(number) for number, word in enumerate(NUMBERS)}}
ENOUGH_PEOPLE = 3  # number of people that must give an answer for full accuracy (Antol et al. 2015)
SCORES_OF_COUNTS = (0.0, 0.3, 0.6, 0.9, 1.0)  # soft targets in MCAN's released code for answers given by 0 to 4 people

WITHOUT_APOSTROPHE = """
    ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's how'd how'll how's
    I'm I've isn't it'd it'll ma'am mightn't might've mustn't must've needn't not've o'clock oughtn't shan't should've
    shouldn't somebody'll somebody's someone'd someone'll someone's something'd something'll that's there'd there're
    there's they'd they'll they're they've wasn't we've weren't what'll what're what's what've when's where'd where's
    where've who'd who'll who's who've why'll why're why's won't would've wouldn't y'all you'd you'll you're you've
""".split()  # noqa: SIM905
"""Contractions that are also recognised without their apostrophe."""
TWO_APOSTROPHES = """
    couldn't've hadn't've he'd've I'd've it'd've mightn't've she'd've shouldn't've somebody'd've someone'd've
    something'd've there'd've they'd've we'd've who'd've wouldn't've y'all'd've you'd've
""".split()  # noqa: SIM905
"""Contractions that are also recognised with only one of two apostrophes."""
ODD = {
    **{"let's": "let's", "she's": "she's", "ow's'at": "'ow's'at", "'ows'at": "'ow's'at", "'ow'sat": "'ow's'at"},
    **{"somebody'd": "somebodyd", "twas": "'twas", "yall'll": "y'all'll", "y'allll": "y'all'll"},
    **{"yall'd've": "y'all'd've", "y'alld've": "y'all'd've", "y'all'dve": "y'all'd've"},
}

CONTRACTIONS = {word.replace("'", ""): word for word in WITHOUT_APOSTROPHE}
"""The official table from typed forms to contractions with their apostrophes."""
for word in TWO_APOSTROPHES:
    first, second, third = word.rsplit("'", 2)
    CONTRACTIONS |= {f"{first}{second}'{third}": word, f"{first}'{second}{third}": word}
CONTRACTIONS |= ODD


def without_marks(answer: str) -> str:
    """Removes punctuation marks or replaces them by spaces.

    A mark is removed if it is next to a space anywhere in the answer, or if the answer has a comma between digits
    (1,000); otherwise it becomes a space. The first 32 periods that are not followed by a digit are removed.
    """
    cleaned, has_number = answer, DIGITS_WITH_COMMA.search(answer) is not None
    for mark in MARKS:
        beside_blank = f"{mark} " in answer or f" {mark}" in answer
        cleaned = cleaned.replace(mark, "" if beside_blank or has_number else " ")
    return PERIOD.sub("", cleaned, count=MAX_PERIODS)


@lru_cache(maxsize=2**16)
def normalize_answer(answer: str) -> str:
    """Normalises an answer like the official evaluation.

    Punctuation is removed, letters are lower-cased, numbers up to ten become digits, articles are dropped, and
    contractions are completed.

    Example:

    ```python
    >>> from hf_ngsan.metrics.vqa import normalize_answer
    >>> [normalize_answer(answer) for answer in ("The red one.", "1,000", "black/white", "dont know")]
    ['red 1', '1000', 'black white', "don't know"]

    ```
    """
    words = [DIGIT_OF_WORD.get(word, word) for word in without_marks(tidy(answer)).lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def tidy(answer: str) -> str:
    return answer.replace("\n", " ").replace("\t", " ").strip()


def vqa_accuracy(answer: str, human_answers: Sequence[str]) -> float:
    """Returns the accuracy of an answer, in [0, 1]: the mean over people of min(1, n / 3).

    n is the number of *other* people who gave this answer; VQA has ten people. All answers are normalised first, unless
    all people gave the same answer: then they are compared unchanged, as in the official evaluation. With a single
    human answer, such as a class, the accuracy is 0 or 1.
    """
    answer, people = tidy(answer), [tidy(human_answer) for human_answer in human_answers]
    if len(set(people)) > 1:
        answer, people = normalize_answer(answer), [normalize_answer(human_answer) for human_answer in people]
    agreeing = people.count(answer)
    if len(people) == 1:
        return float(agreeing)
    others = [agreeing - (human_answer == answer) for human_answer in people]
    return sum(min(1.0, number / ENOUGH_PEOPLE) for number in others) / len(people)


def answer_scores(human_answers: Iterable[str]) -> dict[str, float]:
    """Returns a score in [0, 1] for each normalised answer: 0.3, 0.6, 0.9, 1 for 1, 2, 3, 4 or more people.

    These are the soft targets of MCAN's released code. The only answer of a classification has the score 1.
    """
    counts = Counter(map(normalize_answer, human_answers))
    if sum(counts.values()) == 1:
        return dict.fromkeys(counts, 1.0)
    return {answer: SCORES_OF_COUNTS[min(number, 4)] for answer, number in counts.items()}
