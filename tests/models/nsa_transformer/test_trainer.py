"""The translator in transformers' own trainer, with its own collator, unchanged; and this package's pipeline."""

import pytest

from hf_ngsan import TranslationPipeline
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.tiny import tiny_tokenizer


def test_the_pipeline_translates_one_text_or_several():
    model, tokenizer = tiny_translator(), tiny_tokenizer()
    translator = TranslationPipeline(model=model, tokenizer=tokenizer)
    texts = ["a red ball", "two boxes near the ring", "a ring"]
    apart = [translator(text, num_beams=2) for text in texts]
    assert translator(texts, batch_size=2, num_beams=2) == apart
    assert list(translator((text for text in texts), num_beams=2)) == apart
    ids = model.generate(**tokenizer(texts[0], return_tensors="pt"), num_beams=2)
    assert apart[0] == [{"translation_text": tokenizer.decode(ids[0], skip_special_tokens=True).strip()}]
    assert len(translator(texts[0], num_beams=3, num_return_sequences=3)) == 3
    for wrong in ("", " ", 3, None):
        with pytest.raises(ValueError, match="text"):
            translator(wrong)
