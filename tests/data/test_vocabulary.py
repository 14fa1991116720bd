import json

import pytest
from transformers import AutoTokenizer

from hf_ngsan.data import build_tokenizer
from tests.data.facts import fails_naming
from tests.tables import each_row

CAPTIONS = ["A man rides a horse.", "a man and a dog", "The dog's owner, a T-shirt-clad man!", "zebra"]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(CAPTIONS, min_count=1, max_length=20)


def test_ids_are_special_tokens_then_words_by_frequency_then_alphabet(tokenizer):
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert words[:7] == ["<pad>", "<s>", "</s>", "<unk>", "a", "man", "and"]
    assert words[6:] == sorted(words[6:])
    assert build_tokenizer(CAPTIONS[::-1], min_count=1).get_vocab() == tokenizer.get_vocab()
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id")
    assert [getattr(tokenizer, name) for name in names] == [0, 1, 2, 3]
    assert tokenizer.model_max_length == 20


def test_what_makes_no_vocabulary_is_refused():
    for captions, options, fact in (("a dog", {}, "'a dog'"), (["a"], {"units": "bytes"}, "'bytes'"), (["a"], {}, "5")):
        with fails_naming(fact):
            build_tokenizer(captions, **options)


def test_only_frequent_words_are_kept():
    tokenizer = build_tokenizer(["cat dog"] * 4 + ["cat"])
    assert set(tokenizer.get_vocab()) == {"<pad>", "<s>", "</s>", "<unk>", "cat"}
    assert tokenizer("cat dog").input_ids == [1, 4, 3, 2]


@each_row(
    ("caption", "words"),
    [
        ("A Man, rides... (a) HORSE!", "a man rides a horse"),
        ("the dog's T-shirt-clad owner", "the dog's t-shirt-clad owner"),
        ("'the' -dog's- owner--a ''man''", "the dog's owner a man"),
        ("the dog’s “owner” \n and\ta man", "the dog's owner and a man"),
        ("man/dog & horse_zebra", "man dog horse zebra"),
    ],
)
def test_punctuation_goes_but_within_words(tokenizer, caption, words):
    ids = tokenizer(caption).input_ids
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == words


def test_the_round_trip_through_a_folder_is_exact(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert json.loads(loaded.backend_tokenizer.to_str()) == json.loads(tokenizer.backend_tokenizer.to_str())
    for caption in [*CAPTIONS, "an unknown 'word'"]:
        assert loaded(caption).input_ids == tokenizer(caption).input_ids
    assert loaded.decode([1, 4, 5, 2, 0], skip_special_tokens=True) == "a man"
    assert loaded.model_max_length == 20
