"""The translator in transformers' own trainer, with its own collator, unchanged; and this package's pipeline."""

import pytest
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_ngsan import TranslationPipeline
from hf_ngsan.data import build_subword_tokenizer
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.tiny import tiny_tokenizer

PAIRS = {"a dog runs": "ein Hund läuft", "a cat sleeps": "eine Katze schläft", "two dogs": "zwei Hunde"}


@pytest.mark.slow
def test_the_stock_trainer_learns_and_generates(tmp_path):
    tokenizer = build_subword_tokenizer([*PAIRS, *PAIRS.values()] * 5, vocab_size=320)
    model = tiny_translator(vocab_size=len(tokenizer), hidden_size=32, dropout=0.0)
    rows = [dict(tokenizer(source, text_target=target)) for source, target in PAIRS.items()]
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path),
        predict_with_generate=True,
        label_smoothing_factor=0.1,
        per_device_train_batch_size=2,
        max_steps=120,
        learning_rate=3e-3,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = Seq2SeqTrainer(
        model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=collator, processing_class=tokenizer
    )
    trainer.train()
    prediction = trainer.predict(rows, num_beams=2, max_new_tokens=20)
    texts = tokenizer.batch_decode(prediction.predictions.clip(min=0), skip_special_tokens=True)
    assert [text.strip() for text in texts] == list(PAIRS.values())


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
