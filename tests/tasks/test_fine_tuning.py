"""Fine-tuning on users' photographs: new words, and images that a frozen backbone encodes once."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from hf_ngsan.data import DataError
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.tasks import CaptioningConfig, RetrievalConfig, new_words, train
from hf_ngsan.tasks.retrieval import new_dual_encoder
from hf_ngsan.training.config import ConfigError
from tests.models.mhsan.tiny import tiny_model as tiny_mhsan
from tests.models.rstnet.tiny import TEXT_ENCODER
from tests.models.rstnet.tiny import tiny_captioner as tiny_rstnet
from tests.models.tiny import FEATURE_SIZE, WORDS, tiny_captioner, tiny_processor, tiny_tokenizer
from tests.models.tiny_photos import photo
from tests.tables import each_row

from ..training.test_loop import same_weights, scores
from .test_captioning import KilledError, die_at
from .tiny import TRAINING

CAPTIONS = ["a zorblat near a ball", "two zorblat a quindle", "quindle a red thing"]


def rstnet(tokenization: str, pieces: int):
    language_model = {"text_encoder_config": {**TEXT_ENCODER, "vocab_size": pieces}}
    return tiny_rstnet(language_model_config={**language_model, "language_tokenization": tokenization})


MODELS = {
    "ngsan": tiny_captioner,
    "tied": partial(tiny_captioner, tie_word_embeddings=True),
    "rstnet": partial(rstnet, "word_pieces", 40),
    "rstnet of caption ids": partial(rstnet, "caption_ids", len(WORDS) + 4),
    "mhsan": tiny_mhsan,
}


@each_row("name", list(MODELS))
def test_known_words_keep_ids_and_weights_and_new_ones_begin_as_their_mean(name, tmp_path):
    model, tokenizer = MODELS[name](), tiny_tokenizer()
    before, size = tokenizer.get_vocab(), len(WORDS) + 4
    old = {key: weight.clone() for key, weight in model.state_dict().items()}
    assert new_words.learn_new_words(model, tokenizer, CAPTIONS, None) == []
    assert new_words.learn_new_words(model, tokenizer, CAPTIONS, 2) == ["quindle", "zorblat"]
    assert tokenizer.get_vocab() == {**before, "quindle": size, "zorblat": size + 1}
    save_model(model, None, tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.config.vocab_size == size + 2
    for key, weight in loaded.state_dict().items():
        assert torch.equal(weight[: len(old[key])] if weight.ndim else weight, old[key]), key
    heads = (loaded.get_input_embeddings(), loaded.get_output_embeddings())
    for weight in [weight.data for head in heads if head is not None for weight in head.parameters()]:
        torch.testing.assert_close(weight[size:], weight[4:size].mean(0).expand_as(weight[size:]))


def test_a_fitted_word_is_the_most_probable_one_where_captions_have_it():
    model, processor = tiny_captioner(geometric_bias=[]), tiny_processor()
    features = [np.random.default_rng(seed).normal(size=(5, FEATURE_SIZE)) for seed in range(2)]
    captions = [["a red zorblat"], ["a red ball"]]
    new_words.learn_new_words(model, processor.tokenizer, [*captions[0], *captions[1]], 1)
    batch = processor(visual_features=features, captions=captions)
    old = [weight[:-1].clone() for weight in (*model.lm_head.parameters(), model.get_input_embeddings().weight)]
    before = model(**batch).logits.log_softmax(-1)
    new_words.fit_new_words(model, processor.tokenizer, [batch])
    after = model(**batch).logits.log_softmax(-1)
    assert after[0, 2].argmax() == len(processor.tokenizer) - 1
    assert after[0, 2, -1] > max(before[0, 2, -1], after[1, 2, -1])
    heads = (*model.lm_head.parameters(), model.get_input_embeddings().weight)
    assert all(torch.equal(weight[:-1], known) for weight, known in zip(heads, old, strict=True))


def test_captions_in_another_language_are_refused_though_their_words_are_seen_twice(fine_tuning, tmp_path):
    lines = [f"{place}.png,一只 狗 在 草地 上" for place in range(24)]
    (tmp_path / "photos" / "metadata.csv").write_text("\n".join(["file_name,caption", *lines]), encoding="utf-8")
    with pytest.raises(DataError, match="another language"):
        train(fine_tuning("run"))
    assert not (tmp_path / "run" / "best").exists()


def test_a_dual_encoder_of_words_learns_them_too(dual_encoder):
    sections = {"model": {"init_from": str(dual_encoder)}, "data": {"new_words": 1}}
    model, processor = new_dual_encoder(RetrievalConfig.from_dict(sections), CAPTIONS)
    assert model.get_input_embeddings().num_embeddings == len(processor.tokenizer) == len(WORDS) + 4 + 3


def photo_of_a_kind(seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-20, 20, (24, 32, 3))
    return Image.fromarray((np.asarray(photo((32, 24))) + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture
def fine_tuning(tmp_path, captioner):
    """Makes training configs with 24 photographs, whose captions have two words that are new to the captioner."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for place in range(24):
        photo_of_a_kind(place).save(photos / f"{place}.png")
    lines = [f"{place}.png,a zorblat on the quindle" for place in range(24)]
    (photos / "metadata.csv").write_text("\n".join(["file_name,caption", *lines]))

    def config(name: str, augmentation=(), new_words=2, **training) -> CaptioningConfig:
        data = {"spec": f"images:{photos}", "validation_split": None, "new_words": new_words}
        settings = {**TRAINING, "output_dir": str(tmp_path / name), "schedule": "constant", **training}
        sections = {"model": {"init_from": str(captioner)}, "data": data, "training": settings}
        critical = {"epochs": 1, "samples_per_image": 2}
        return CaptioningConfig.from_dict({**sections, "augmentation": dict(augmentation), "self_critical": critical})

    return config


def test_fine_tuning_says_the_words_of_its_captions(fine_tuning, caplog):
    caplog.set_level("INFO", logger="hf_ngsan")
    model, processor = load_model(train(fine_tuning("run", epochs=8)).best_dir)
    assert "2 new words" in caplog.text and "quindle, zorblat" in caplog.text
    ids = model.generate(**processor(images=photo_of_a_kind(99), return_tensors="pt"), max_new_tokens=8)
    assert {"zorblat", "quindle"} <= set(processor.batch_decode(ids, skip_special_tokens=True)[0].split())
    with pytest.raises(ConfigError, match="new_words"):
        train(fine_tuning("taught", new_words=None, teachers=[model.name_or_path]))


def test_a_killed_run_has_the_same_words_and_features_after_resuming(fine_tuning, tmp_path, monkeypatch):
    settings = {"epochs": 2, "stage": "auto", "ema_decay": 0.9, "save_every_steps": 2}
    settings["augmentation"] = {"flip": 0.5, "copies": 2}
    expected = train(fine_tuning("straight", **settings))
    with monkeypatch.context() as patch:
        die_at(patch, "update", 3)
        with pytest.raises(KilledError):
            train(fine_tuning("run", **settings))
    resumed = train(fine_tuning("run", **settings), resume=True)
    assert scores(resumed.history) == scores(expected.history)
    assert same_weights(tmp_path / "run" / "last", tmp_path / "straight" / "last")


def test_images_are_encoded_once_and_again_where_something_changed(fine_tuning, tmp_path):
    folder = tmp_path / "run" / "features"

    def shards(**augmentation) -> dict[str, int]:
        train(fine_tuning("run", augmentation, epochs=1), overwrite=folder.exists())
        files = sorted(folder.rglob("*.arrow"), key=lambda file: file.stat().st_mtime_ns)
        return {str(file.parent.relative_to(folder)): file.stat().st_mtime_ns for file in files}

    first = shards(color_jitter=0.2, copies=2)
    assert first.keys() == {"train", "train/copies/1", "train/copies/2"}
    assert shards(color_jitter=0.2, copies=2) == first
    other = shards(color_jitter=0.3, copies=1)
    assert (
        other == {"train": first["train"], "train/copies/1": other["train/copies/1"]} and other.items() - first.items()
    )
    photo_of_a_kind(7).save(tmp_path / "photos" / "0.png")
    assert shards()["train"] != first["train"]
    assert not shards(copies=None)


def test_features_train_as_their_images_do(fine_tuning):
    runs = [train(fine_tuning(f"run {copies}", {"copies": copies})) for copies in (1, None)]
    assert runs[0].history[-1]["loss"] == pytest.approx(runs[1].history[-1]["loss"], rel=1e-4)
