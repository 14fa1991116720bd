"""Fine-tuning on photographs of one's own: words that are new, and images that a frozen backbone encodes once."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.models.configuration_hub import MissingBackboneError
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from hf_ngsan.tasks import CaptioningConfig, RetrievalConfig, new_words, train
from hf_ngsan.tasks.retrieval import new_dual_encoder
from hf_ngsan.training.config import ConfigError
from tests.models.mhsan import tiny as mhsan
from tests.models.rstnet.tiny import TEXT_ENCODER
from tests.models.rstnet.tiny import tiny_captioner as tiny_rstnet
from tests.models.tiny import VOCABULARY, WORDS, tiny_captioner, tiny_tokenizer
from tests.models.tiny_photos import photo
from tests.tables import each_row

from ..training.test_loop import same_weights, scores
from .test_captioning import KilledError, die_at
from .tiny import TRAINING

CAPTIONS = ["a zorblat near a ball", "two zorblat a quindle", "quindle a red thing"]


@pytest.fixture
def no_text_encoder(monkeypatch):
    def missing(name):
        raise MissingBackboneError(name)

    monkeypatch.setattr(new_words, "find_text_encoder", missing)


def rstnet(tokenization: str, pieces: int):
    language_model = {"text_encoder_config": {**TEXT_ENCODER, "vocab_size": pieces}}
    return tiny_rstnet(language_model_config={**language_model, "language_tokenization": tokenization})


MODELS = {
    "ngsan": tiny_captioner,
    "tied": lambda: tiny_captioner(tie_word_embeddings=True),
    "rstnet": lambda: rstnet("word_pieces", 40),
    "rstnet of caption ids": lambda: rstnet("caption_ids", len(WORDS) + 4),
    "mhsan": mhsan.tiny_model,
}


@each_row("name", list(MODELS))
@torch.no_grad()
def test_known_words_keep_ids_and_weights_and_new_ones_begin_as_their_mean(name, no_text_encoder, tmp_path):
    model, tokenizer = MODELS[name](), tiny_tokenizer()
    before, size = tokenizer.get_vocab(), len(WORDS) + 4
    old = {key: weight.clone() for key, weight in model.state_dict().items()}
    assert new_words.learn_new_words(model, tokenizer, CAPTIONS, None) == []
    assert new_words.learn_new_words(model, tokenizer, CAPTIONS, 2) == ["quindle", "zorblat"]
    assert tokenizer.get_vocab() == {**before, "quindle": size, "zorblat": size + 1}
    assert model.config.vocab_size == size + 2
    is_rstnet = name.startswith("rstnet")
    processor = (RSTNetProcessor if is_rstnet else mhsan.MHSANProcessor)(tokenizer=tokenizer)
    save_model(model, None if name in ("ngsan", "tied") else processor, tmp_path)
    loaded = type(model).from_pretrained(tmp_path).state_dict()
    for key, weight in old.items():
        assert torch.equal(loaded[key][: len(weight)] if weight.ndim else loaded[key], weight), key
    heads = (model.get_input_embeddings(), model.get_output_embeddings())
    for weights in [weights for head in heads if head is not None for weights in head.parameters()]:
        torch.testing.assert_close(weights[size:], weights[4:size].mean(0).expand_as(weights[size:]))


def test_english_words_begin_as_the_words_that_are_nearest_in_meaning():
    known = ["train", "sky", "cat", "blue", "table", "runs", "puppy", "green", "seven"]
    near = new_words.nearest_words(["kitten", "locomotive"], known)
    assert (near[0][0], near[1][0]) == ("cat", "train")


def test_a_dual_encoder_of_words_learns_them_too(dual_encoder, no_text_encoder):
    sections = {"model": {"init_from": str(dual_encoder)}, "data": {"new_words": 1}}
    model, processor = new_dual_encoder(RetrievalConfig.from_dict(sections), CAPTIONS)
    assert model.get_input_embeddings().num_embeddings == len(processor.tokenizer) == len(WORDS) + 4 + 3


KINDS = {"zorblat": 1, "quindle": 2}


def photo_of(word: str, seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-20, 20, (24, 32, 3))
    return Image.fromarray((np.asarray(photo((32, 24), KINDS[word])) + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture
def fine_tuning(tmp_path, captioner, no_text_encoder):
    """Makes training configs with 24 photographs of two things whose words the captioner does not know."""
    (tmp_path / "photos").mkdir()
    with open(tmp_path / "photos" / "metadata.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "caption"])
        for place in range(24):
            word = list(KINDS)[place % 2]
            photo_of(word, place).save(tmp_path / "photos" / f"{place}.png")
            writer.writerow([f"{place}.png", f"a {word} on the right"])

    def config(name: str, data=(), augmentation=(), **training) -> CaptioningConfig:
        spec = {"spec": f"images:{tmp_path / 'photos'}", "validation_split": None, **dict(data)}
        settings = {**TRAINING, "output_dir": str(tmp_path / name), **training}
        sections = {"model": {"init_from": str(captioner)}, "data": spec, "training": settings}
        sections["augmentation"] = dict(augmentation)
        return CaptioningConfig.from_dict({**sections, "self_critical": {"epochs": 1, "samples_per_image": 2}})

    return config


def test_fine_tuning_says_the_words_of_its_captions(fine_tuning, tmp_path, caplog):
    caplog.set_level("INFO", logger="hf_ngsan")
    result = train(fine_tuning("run", epochs=25, schedule="constant"))
    assert "2 new words" in caplog.text and "quindle, zorblat" in caplog.text
    model, processor = load_model(result.best_dir)
    assert model.config.vocab_size == len(processor.tokenizer) == len(VOCABULARY.split()) + 6
    for word in KINDS:
        ids = model.generate(**processor(images=photo_of(word, 99), return_tensors="pt"), max_new_tokens=8)
        assert word in processor.batch_decode(ids, skip_special_tokens=True)[0].split()
    teachers = {"teachers": [model.name_or_path], "stage": "xe"}
    with pytest.raises(ConfigError, match="new_words"):
        train(fine_tuning("taught", data={"new_words": None}, **teachers))


def test_a_killed_run_has_the_same_words_and_features_after_resuming(fine_tuning, tmp_path, monkeypatch):
    settings = {
        "augmentation": {"flip": 0.5, "copies": 2},
        "epochs": 2,
        "stage": "auto",
        "ema_decay": 0.9,
        "save_every_steps": 2,
    }
    expected = train(fine_tuning("straight", **settings))
    with monkeypatch.context() as patch:
        die_at(patch, "update", 3)
        with pytest.raises(KilledError):
            train(fine_tuning("run", **settings))
    resumed = train(fine_tuning("run", **settings), resume=True)
    assert scores(resumed.history) == scores(expected.history)
    assert same_weights(tmp_path / "run" / "last", tmp_path / "straight" / "last")


def shards(folder) -> dict[str, int]:
    files = (folder / "features").rglob("*.arrow")
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in files}


def test_images_are_encoded_once_and_again_where_something_changed(fine_tuning, tmp_path):
    changes, folder = {"color_jitter": 0.2, "copies": 2}, tmp_path / "run"

    def run(augmentation) -> dict[str, int]:
        train(fine_tuning("run", {"validation_split": "validation"}, augmentation, epochs=1), overwrite=folder.exists())
        return shards(folder)

    first = run(changes)
    assert {name.rpartition("/")[0] for name in first} == {
        *("features/train", "features/train/copies/1", "features/train/copies/2", "features/validation")
    }
    assert run(changes) == first
    fewer = run({**changes, "copies": 1})
    assert fewer == {name: time for name, time in first.items() if "copies/2" not in name}
    other = run({**changes, "color_jitter": 0.3, "copies": 1})
    assert {name for name, time in other.items() if time != fewer[name]} == {
        name for name in other if "copies/1" in name
    }
    photo_of("quindle", 7).save(tmp_path / "photos" / "0.png")
    changed = run({**changes, "color_jitter": 0.3, "copies": 1})
    assert all(time != other[name] for name, time in changed.items() if "train" in name)
    assert not run({**changes, "copies": None})


def test_features_train_as_their_images_do(fine_tuning, tmp_path):
    losses = [
        train(fine_tuning(name, augmentation={"copies": copies}, epochs=2)).history[-1]["loss"]
        for name, copies in (("features", 1), ("images", None))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
