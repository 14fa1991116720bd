"""Words and characters of other languages, in tokenizers and in metrics."""

import pytest
import regex
from sacrebleu.metrics import BLEU
from transformers import AutoTokenizer

from hf_ngsan.data import build_tokenizer
from hf_ngsan.languages import caption_units, language_of, segment
from hf_ngsan.metrics import CaptionMetrics
from tests.tables import each_row

WORDS = {
    "Ein Hund's Ball, 3.14 läuft!": ["ein", "hund's", "ball", "3.14", "läuft"],
    "一只狗在草地上,跑 with iPhone。": ["一", "只", "狗", "在", "草", "地", "上", "跑", "with", "iphone"],
    "كلب يجري في الحَديقة، سريعًا؟": ["كلب", "يجري", "في", "الحَديقة", "سريعًا"],
    "\u202bمرحبا\u202c بالعالم": ["مرحبا", "بالعالم"],
    "👩‍👩‍👧 lacht 👍🏽 🇩🇪 ❤️!": ["👩‍👩‍👧", "lacht", "👍🏽", "🇩🇪", "❤️"],
    "カタカナと": ["カタカナ", "と"],
    "नमस्ते दुनिया": ["नमस्ते", "दुनिया"],
    "می‌خواهم": ["می‌خواهم"],
    " ,.! ": [],
}


def test_words_are_those_of_unicode():
    for text, words in WORDS.items():
        assert segment(text) == words, text
        # from another implementation of UAX 29, which separates the same punctuation
        others = [
            word for word in regex.split(r"(?wV1)\b", text.lower()) if regex.search(r"[\p{L}\p{M}\p{N}\p{So}]", word)
        ]
        if "\u202b" not in text:
            assert others == words, text


def test_characters_are_what_a_reader_sees():
    assert segment("น้ำ 👩‍👩‍👧 ok, é", "characters") == ["น้ำ", "👩‍👩‍👧", "o", "k", "é"]


@each_row(
    ("language", "text", "expected"),
    [
        ("tr", "İki IŞIK, DİYARBAKIR'DA I\u0307Z", "iki ışık diyarbakır'da iz"),
        ("az-Latn", "IŞIQ İLƏ", "ışıq ilə"),
        ("de", "Ich IRRE MICH", "ich irre mich"),
        ("el", "Ο ΣΟΦΟΣ, ΟΔΟΣ! ΑΣ'ΤΟΝ ΜΕΣ' ΣΤΑ ΤΑΫΣ", "ο σοφος οδος ασ'τον μες στα ταϋς"),
    ],
)
def test_lower_case_is_that_of_the_language(tmp_path, language, text, expected):
    assert segment(text, "words", language) == expected.split()
    assert segment(text, "characters", language) == list(expected.replace(" ", ""))
    for units in ("words", "characters", "subwords"):
        build_tokenizer([text] * 2, min_count=1, units=units, language=language).save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == expected, units
    metric = CaptionMetrics(metrics=["bleu"], tokenizer=caption_units(language))
    assert metric.compute(predictions=[text], references=[[expected]])["bleu_1"] == pytest.approx(1)


def test_tokenizers_give_text_back(tmp_path):
    texts = {
        "de": ["ein mädchen läuft", "zwei hunde laufen"],
        "zh": ["一只狗在草地上跑", "两个人 iphone 14"],
        "th": ["สุนัขวิ่งเร็ว", "แมวน้ำ"],
        "ar": ["كلب يجري في الحَديقة", "قط"],
        "en": ["a dog's ball", "two t shirts"],
    }
    for language, captions in texts.items():
        for units in ("words", "characters", "subwords"):
            built = build_tokenizer(captions, min_count=1, units=units, language=language, vocab_size=90)
            built.save_pretrained(tmp_path)
            tokenizer = AutoTokenizer.from_pretrained(tmp_path)
            assert language_of(tokenizer) == language
            assert tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>"]) == [0, 1, 2, 3]
            for caption in captions:
                ids = tokenizer(caption)["input_ids"]
                assert (ids[0], ids[-1]) == (1, 2) and 3 not in ids
                # words of Chinese, Japanese and Thai are not separated by spaces
                expected = caption.replace("人 i", "人i") if units == "words" else caption
                assert tokenizer.decode(ids, skip_special_tokens=True) == expected, units


def test_bleu_of_a_language_without_spaces_is_that_of_sacrebleu():
    predictions = ["一只狗在草地上跑", "两个人在公园里走路", "一个女孩坐在椅子上"]
    references = [["一只棕色的狗在草地上跑着"], ["两个人在公园里散步"], ["小女孩坐在红色的椅子上"]]
    expected = BLEU(tokenize="zh", smooth_method="none").corpus_score(predictions, [[texts[0] for texts in references]])
    for units in ("words", "characters"):
        scores = CaptionMetrics(tokenizer=units).compute(predictions=predictions, references=references)
        assert 100 * scores["bleu_4"] == pytest.approx(expected.score, abs=1e-3)
    as_one_word = CaptionMetrics().compute(predictions=predictions, references=references)
    assert as_one_word["bleu_1"] < 1e-3


def test_each_language_has_its_metric_words():
    units = {"en": "ptb", "en-GB": "ptb", "de": "words", "zh": "words", "tr-TR": "words-tr", "az": "words-az"}
    assert {language: caption_units(language) for language in units} == units
    with pytest.raises(ValueError, match="METEOR"):
        CaptionMetrics(metrics=["meteor"], tokenizer="words-tr")
