"""The tokenizer of subwords restores any text."""

from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hf_ngsan.data import build_subword_tokenizer

SENTENCES = ["A dog runs.", "A dog sleeps.", "Ein Hund läuft.", "Ein Hund schläft."] * 3
TOKENIZER = build_subword_tokenizer(SENTENCES, vocab_size=290, max_length=16)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_is_known_and_comes_back(text):
    ids = TOKENIZER(text, verbose=False)["input_ids"]
    assert ids[-1] == 2 and not {0, 1, 2, 3} & set(ids[:-1])
    normal = TOKENIZER.backend_tokenizer.normalizer.normalize_str(text)
    assert TOKENIZER.decode(ids, skip_special_tokens=True).removeprefix(" ") == normal.removeprefix(" ")


def test_the_same_sentences_give_the_same_vocabulary_and_saving_keeps_it(tmp_path):
    again = build_subword_tokenizer(SENTENCES, vocab_size=290)
    assert again.get_vocab() == TOKENIZER.get_vocab()
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Ein </s> Hund\u00a0läuft!"
    assert loaded(text)["input_ids"] == TOKENIZER(text)["input_ids"]
    assert loaded(text, text_target="A dog.")["labels"] == TOKENIZER("A dog.")["input_ids"]
    special = [getattr(loaded, f"{name}_token_id") for name in ("pad", "bos", "eos", "unk")]
    assert special == [0, 1, 2, 3] and loaded.model_max_length == 16
