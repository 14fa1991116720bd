"""Captioners of other languages and tokens: trained, evaluated and rewarded on the words of the language."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU

from hf_ngsan.data import DataError, build_tokenizer, load_data
from hf_ngsan.data.scenes.relations import in_chinese, in_english
from hf_ngsan.data.scenes.scoring import SCENE_SCORES
from hf_ngsan.languages import language_of, segment
from hf_ngsan.loading.models import load_captioner, load_model
from hf_ngsan.metrics import CaptionMetrics
from hf_ngsan.sharing.cards import EVALUATIONS
from hf_ngsan.tasks import train
from hf_ngsan.tasks.language_modeling import LanguageModelingConfig
from hf_ngsan.tasks.new_models import check_language
from hf_ngsan.training.config import ConfigError
from hf_ngsan.training.objectives.self_critical_rewards import CaptionRewards, TextRewards
from hf_ngsan.visualization import plot_word_maps
from tests.commands.running import prints
from tests.tasks.test_language_modeling import sections
from tests.tasks.tiny import tiny_training_config

CHINESE = {"spec": "scenes:size=24,language=zh", "language": "zh"}


def test_chinese_captions_say_what_the_english_say():
    english, chinese = (load_data(f"scenes:size=20{more}", "train")["captions"] for more in ("", ",language=zh"))
    for here, there in zip(english, chinese, strict=True):
        assert [*map(in_chinese, here)] == there
        assert [*map(in_english, there)] == here


def test_captioners_of_characters_and_subwords_are_trained_and_scored_on_words(tmp_path, capsys):
    for units in ("characters", "subwords"):
        run = tmp_path / units
        data = {**CHINESE, "tokenizer": units, "max_subwords": 100, "max_caption_length": 30}
        train(tiny_training_config(run, data=data, training={"epochs": 1}, evaluation={"max_new_tokens": 20}))
        _, processor = load_captioner(str(run))
        assert language_of(processor.tokenizer) == "zh"
        arguments = ["--model", run, "--data", CHINESE["spec"], "--num-beams", 1, "--record"]
        scores = json.loads(prints(capsys, "evaluate", *arguments))
        assert {"cider_d", "objects", "symmetric"} <= scores.keys()
        assert "|tok:words|" in (run / "best" / EVALUATIONS).read_text()


def test_captions_in_another_language_are_refused_by_a_trained_captioner(tmp_path):
    run = tmp_path / "english"
    train(tiny_training_config(run, training={"epochs": 1}))
    for data, error in (
        (CHINESE, DataError),
        ({"spec": CHINESE["spec"]}, DataError),
        *[({"language": "de"}, ConfigError), ({"tokenizer": "characters"}, ConfigError)],
    ):
        config = tiny_training_config(tmp_path / "run", data=data)
        with pytest.raises(error, match=r"languages\.md"):
            train(replace(config, model={"init_from": str(run)}))
        assert not (tmp_path / "run").exists()
    check_language(tiny_training_config(run, data={"language": "en-GB"}), build_tokenizer(["a dog"], min_count=1))


def test_references_as_predictions_are_perfect_in_chinese(tmp_path):
    """BLEU and the scores of relations, for Chinese captions and references."""
    rows = load_data("scenes:size=60,language=zh", "test")
    first = [texts[0] for texts in rows["captions"]]
    answers = iter([text for texts in rows["captions"] for text in texts])
    scores = SCENE_SCORES.compute(rows, first, lambda indices, prefixes: [next(answers) for _ in prefixes])
    assert scores == {"objects": 1.0, "symmetric": 1.0, "directional": 1.0}


def test_rewards_of_characters_are_those_of_their_words():
    references = [["ein hund läuft", "der hund rennt"], ["zwei katzen"], ["ein kind spielt"]]
    flat = [text for texts in references for text in texts]
    words = build_tokenizer(flat, min_count=1, language="de")
    characters = build_tokenizer(flat, min_count=1, language="de", units="characters")
    samples, images = ["ein hund rennt", "zwei kind"], torch.tensor([0, 1])
    ids = words(samples, padding=True, return_tensors="pt")["input_ids"]
    expected = CaptionRewards(references, words, {"cider_d": 1.0, "bleu_4": 0.5})(ids, images)
    character_ids = characters(samples, padding=True, return_tensors="pt")["input_ids"]

    def decode(token_ids):
        return characters.batch_decode(token_ids, skip_special_tokens=True)

    rewards = TextRewards(references, decode, characters.eos_token_id, "de", weights={"cider_d": 1.0, "bleu_4": 0.5})
    torch.testing.assert_close(rewards(character_ids, images), expected)


def test_a_self_critical_stage_rewards_the_words_of_subwords(tmp_path):
    data = {**CHINESE, "tokenizer": "subwords", "max_subwords": 100}
    stages = {"training": {"stage": "auto", "epochs": 1}, "self_critical": {"epochs": 1, "samples_per_image": 2}}
    train(tiny_training_config(tmp_path / "run", data=data, **stages))
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert len(history) == 2 and history[1]["reward"] > 0


@pytest.mark.slow
def test_german_sentences_train_a_language_model(tmp_path):
    """Sentences of Multi30k, if they are available."""
    place = Path(os.environ.get("HF_NGSAN_TEST_DATA", ""), "data", "multi30k")
    if not place.is_dir():
        place = tmp_path
        for name in ("train", "val"):
            (tmp_path / f"{name}.de").write_text("ein hund läuft\nzwei katzen schlafen\n" * 6)
            (tmp_path / f"{name}.en").write_text("a dog runs\ntwo cats sleep\n" * 6)
    data = {"spec": f"parallel:{place},source=en,target=de", "language": "de", "min_word_count": 1, "limit": 200}
    result = train(LanguageModelingConfig.from_dict(sections(tmp_path / "run", epochs=3) | {"data": data}))
    assert result.history[-1]["perplexity"] < result.history[0]["perplexity"]
    _, processor = load_model(str(tmp_path / "run"), "language_modeling")
    assert "läuft" in processor.tokenizer.get_vocab()


def test_scores_of_real_german_captions_are_those_of_sacrebleu():
    """Captions of Multi30k, each compared with that of the next image, so that some n-grams match."""
    folder = os.environ.get("HF_NGSAN_TEST_DATA")
    if folder is None:
        pytest.skip("HF_NGSAN_TEST_DATA names no folder with Multi30k")
    captions = load_data(f"parallel:{folder}/data/multi30k,source=en,target=de", "validation")["target"][:400]
    words = [" ".join(segment(caption)) for caption in captions]
    scores = CaptionMetrics(tokenizer="words").compute(
        predictions=captions[1:], references=[[caption] for caption in captions[:-1]]
    )
    expected = BLEU(tokenize="none", smooth_method="none").corpus_score(words[1:], [words[:-1]])
    assert 100 * scores["bleu_4"] == pytest.approx(expected.score, abs=1e-6)
    assert scores["bleu_1"] > 0.1


def test_text_from_right_to_left_is_drawn_from_the_right():
    words = ["كلب", "يجري", "هنا"]
    figure = plot_word_maps(np.zeros((6, 8, 3), np.uint8), words, np.ones((3, 6, 8)))
    places = {panel.get_title(): panel.get_position().x0 for panel in figure.axes}
    assert sorted(words, key=places.get) == words[::-1]
