"""Dual encoders of transformers: embeddings, and the commands that use them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, CLIPConfig, CLIPModel

from hf_ngsan.cli import main, parse
from hf_ngsan.commands.index import check
from hf_ngsan.guests import register_guest
from hf_ngsan.guests.dual_encoders import DUAL_ENCODERS as DESCRIPTIONS
from hf_ngsan.guests.dual_encoders import DualEncoder, dual_encoder_of
from hf_ngsan.loading.models import load_model
from hf_ngsan.visualization.heads import explain_match_of_guest
from tests.commands.running import fails, prints
from tests.guests.tiny import DUAL_ENCODERS, blip_retrieval, photos, save, tiny
from tests.tables import each_row

TEXTS = ["a red ball", "two dogs left of the cat in a photo of it on the image right left of the blue ball in it"]


@pytest.fixture
def clip(guest) -> Path:
    return guest("clip")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number, photo in enumerate(photos(5)):
        photo.save(folder / f"{number}.png")
    return folder


@each_row("name", sorted(DUAL_ENCODERS))
def test_embeddings_are_those_of_the_model(name, guest):
    model, processor = load_model(guest(name), "retrieval")
    encoder = dual_encoder_of(model, processor)
    images, texts = encoder.image_inputs(photos(3)), encoder.text_inputs(TEXTS)
    assert texts["input_ids"].shape[1] <= encoder.longest_text
    with torch.inference_mode():
        outputs = model(**images, **texts)
        for actual, expected in (
            (encoder.embed_images(images), outputs.image_embeds),
            (encoder.embed_texts(texts), outputs.text_embeds),
        ):
            torch.testing.assert_close(actual, expected / expected.norm(dim=-1, keepdim=True))
            assert actual.shape[1] == encoder.dimension
        alone = torch.cat([encoder.embed_texts(encoder.text_inputs([text])) for text in TEXTS])
        torch.testing.assert_close(alone, encoder.embed_texts(texts), atol=1e-5, rtol=0)


def test_images_are_indexed_and_found(clip, guest, pictures, tmp_path, capsys):
    index = tmp_path / "photos.index"
    assert check(parse(["index", "--model", str(clip), "--images", str(pictures), "--output", str(index)])) is None
    assert main(["index", "--model", str(clip), "--images", str(pictures), "--output", str(index)]) == 0
    model, processor = load_model(clip, "retrieval")
    encoder = dual_encoder_of(model, processor)
    with torch.inference_mode():
        images = encoder.embed_images(encoder.image_inputs(photos(5))).numpy()
        text = encoder.embed_texts(encoder.text_inputs(["a red ball"])).numpy()[0]
    lines = prints(capsys, "search", index, "a red ball").splitlines()
    order = np.argsort(-(images @ text))
    assert [line.split("\t")[1] for line in lines] == [f"{number}.png" for number in order]
    assert float(lines[0].split("\t")[0]) == pytest.approx(float((images @ text).max()), abs=1e-4)
    score, name = prints(capsys, "search", index, "--image", pictures / "3.png").splitlines()[0].split("\t")
    assert name == "3.png" and float(score) == pytest.approx(1, abs=1e-3)
    assert str(clip) in fails(capsys, "search", index, "a red ball", "--model", guest("siglip"))


def test_captions_are_reranked(clip, guest, pictures, capsys):
    blip = guest("blip")
    options = ["--num-beams", "3", "--max-new-tokens", "4", "--rerank-with", clip]
    assert len(prints(capsys, "caption", "--model", blip, pictures / "0.png", *options).splitlines()) == 1
    assert "captioning" in fails(capsys, "caption", "--model", clip, pictures / "0.png")
    assert "images" in fails(capsys, "evaluate", "--model", clip, "--data", "scenes", "--limit", "2")


def test_retrieval_by_blip_is_that_of_its_class(pictures, tmp_path, capsys):
    """A folder with the model type of a captioner; similarities equal those of the model."""
    torch.manual_seed(0)
    model, processor = blip_retrieval()
    folder = save((model.eval(), processor), tmp_path / "blip")
    loaded, its_processor = load_model(folder, "retrieval")
    encoder = dual_encoder_of(loaded, its_processor)
    images, texts = encoder.image_inputs(photos(3)), encoder.text_inputs(TEXTS)
    with torch.inference_mode():
        item = {name: value[:1].repeat(3, 1) for name, value in texts.items() if name != "token_type_ids"}
        expected = model(**images, **item, use_itm_head=False).itm_score
        actual = encoder.embed_images(images) @ encoder.embed_texts(texts).mT
    torch.testing.assert_close(actual[:, 0], expected[:, 0])
    assert "captioning" in fails(capsys, "caption", "--model", folder, pictures / "0.png")


@each_row("name", sorted(set(DUAL_ENCODERS) - {"align"}))
def test_the_share_of_a_head_is_what_the_similarity_loses_without_it(name, tmp_path, capsys):
    model, processor = tiny(name)
    encoder = dual_encoder_of(model, processor)
    photo, text = photos(1)[0], "a red ball"
    match = explain_match_of_guest(encoder, photo, text)
    with torch.inference_mode():
        images = encoder.embed_images(encoder.image_inputs([photo]))
        texts = encoder.embed_texts(encoder.text_inputs([text]))
    assert match.similarity == pytest.approx(float(images[0] @ texts[0]), abs=1e-5)
    assert match.shares.sum() == pytest.approx(match.similarity, abs=1e-5)
    assert match.image_weights.shape == (2, len(match.boxes))
    assert len(match.boxes) == (15 if name == "siglip2" else 16)
    assert match.text_weights.shape == (2, len(match.words))
    assert np.allclose(match.image_weights.sum(-1), 1) and np.allclose(match.text_weights.sum(-1), 1)
    head = perturbed_loss(encoder, photo, text)
    assert match.shares.sum(1)[0] == pytest.approx(head, rel=0.02, abs=1e-4)


def perturbed_loss(encoder: DualEncoder, photo, text: str, amount: float = 1e-3) -> float:
    """The loss of similarity if the first head of the last vision layer attends less, by `amount`."""
    modules = encoder.model.vision_model.modules()
    *_, value = filter(None, (getattr(part, "v_proj", getattr(part, "value", None)) for part in modules))

    def similarity() -> float:
        with torch.inference_mode():
            images = encoder.embed_images(encoder.image_inputs([photo]))
            return float((images @ encoder.embed_texts(encoder.text_inputs([text])).mT).double())

    before = similarity()
    for parameter in value.parameters():  # its rows of the first head
        with torch.no_grad():
            parameter[: len(parameter) // 2] *= 1 - amount
    return (before - similarity()) / amount


def test_a_match_is_printed_and_drawn(clip, guest, pictures, tmp_path, capsys):
    options = [pictures / "0.png", "a red ball", "--figure", tmp_path / "heads.png"]
    lines = prints(capsys, "explain", "--model", clip, *options).splitlines()
    assert [line.split("\t")[0] for line in lines[1:4]] == ["image head 1", "image head 2", "image bias"]
    assert lines[4].split("\t")[2] in ("a", "red", "ball")
    assert (tmp_path / "heads.png").stat().st_size > 1000
    align = guest("align")  # which has no maps
    assert "align" in fails(capsys, "explain", "--model", align, pictures / "0.png", "a red ball")


class StrangersConfig(CLIPConfig):
    model_type = "strangers_clip"


class StrangersModel(CLIPModel):
    config_class = StrangersConfig

    def get_text_features(self, **inputs):
        return super().get_text_features(**inputs).pooler_output * 3  # a tensor whose length is not 1


class Shouting(DualEncoder):
    def text_inputs(self, texts):
        return super().text_inputs([text.replace("quiet", "red") for text in texts])


def test_a_dual_encoder_of_another_package_is_registered(pictures, tmp_path, capsys, monkeypatch):
    AutoConfig.register("strangers_clip", StrangersConfig)
    AutoModel.register(StrangersConfig, StrangersModel)
    monkeypatch.setitem(DESCRIPTIONS, "strangers_clip", None)  # the change is undone
    register_guest("strangers_clip", Shouting)
    model, processor = tiny("clip")
    parts = {"text_config": model.config.text_config, "vision_config": model.config.vision_config}
    stranger = StrangersModel(StrangersConfig(**parts))
    folder, index = save((stranger.eval(), processor), tmp_path / "strangers"), tmp_path / "photos.index"
    assert main(["index", "--model", str(folder), "--images", str(pictures), "--output", str(index)]) == 0
    assert prints(capsys, "search", index, "a quiet ball") == prints(capsys, "search", index, "a red ball")
    assert float(prints(capsys, "search", index, "a red ball").split("\t")[0]) < 1
