"""Dual encoders as ONNX graphs: they embed as the model does, and take its place in an index."""

import json

import pytest
import torch

pytest.importorskip("onnxruntime", reason="the extra export is not installed")
pytest.importorskip("onnxscript", reason="the extra export is not installed")

from hf_ngsan.exporting.folder import write_exported_dual_encoder
from hf_ngsan.exporting.graphs import UnexportableError
from hf_ngsan.guests import dual_encoder_of
from hf_ngsan.loading.models import load_model, save_model
from tests.commands.running import fails, prints
from tests.guests.tiny import photos, save, tiny
from tests.models.mhsan import tiny as mhsan

TEXTS = ["a red ball", "two dogs on the left of the cat in a photo of it", "it"]


def saved(name, folder):
    if name != "mhsan":
        return save(tiny(name), folder)
    save_model(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True), folder)
    return folder


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("siglip", "mhsan")]


@pytest.fixture(scope="module", params=["clip", *OTHERS])
def exported(request, tmp_path_factory):
    """The folders of a dual encoder and of its graphs."""
    folder = tmp_path_factory.mktemp("exported")
    model, processor = load_model(saved(request.param, folder / "model"), "retrieval")
    (folder / "graphs").mkdir()
    assert write_exported_dual_encoder(model, processor, folder / "graphs") <= 1e-4
    return folder


@pytest.mark.slow
def test_embeddings_are_those_of_the_model(exported):
    first, second = (dual_encoder_of(*load_model(exported / name, "retrieval")) for name in ("model", "graphs"))
    assert first.dimension == second.dimension and second.longest_text <= first.longest_text
    with torch.inference_mode():
        for one, other in (
            (first.embed_images(first.image_inputs(photos(4))), second.embed_images(second.image_inputs(photos(4)))),
            (first.embed_texts(first.text_inputs(TEXTS)), second.embed_texts(second.text_inputs(TEXTS))),
        ):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
        alone = torch.cat([second.embed_texts(second.text_inputs([text])) for text in TEXTS])
        torch.testing.assert_close(alone, second.embed_texts(second.text_inputs(TEXTS)), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_an_index_is_made_and_searched_by_what_the_command_exports(tmp_path, capsys):
    clip, graphs = saved("clip", tmp_path / "clip"), tmp_path / "graphs"
    said = prints(capsys, "export", "--model", clip, "--output", graphs)
    assert float(said.split("difference ")[1].split(")")[0]) <= 1e-4
    (tmp_path / "photos").mkdir()
    for number, photo in enumerate(photos(4)):
        photo.save(tmp_path / "photos" / f"{number}.png")
    scores = []
    for name in (clip, graphs):
        command = ["index", "--model", name, "--images", tmp_path / "photos", "--num-workers", 0]
        prints(capsys, *command, "--output", f"{name}.index")
        lines = [line.split("\t") for line in prints(capsys, "search", f"{name}.index", "a red ball").splitlines()]
        scores.append({name: float(score) for score, name in lines})
    assert scores[0] == pytest.approx(scores[1], abs=2e-3)
    assert "another model" in fails(capsys, "search", f"{graphs}.index", "a red ball", "--model", clip)
    options = ["--data", "scenes:size=4,test=4,images=true", "--split", "test", "--limit", "4"]
    report = json.loads(prints(capsys, "evaluate", "--model", graphs, *options))
    assert (report["images"], report["captions"]) == (4, 20)
    assert "exported" in fails(capsys, "explain", "--model", graphs, tmp_path / "photos" / "0.png", "a ball")
    assert "exported" in fails(capsys, "export", "--model", graphs, "--output", tmp_path / "again")
    assert "dual encoder" in fails(capsys, "export", "--model", clip, "--output", tmp_path / "small", "--check")
    assert not (tmp_path / "again").exists() and not (tmp_path / "small").exists()


def test_a_model_without_images_is_refused(tmp_path):
    with pytest.raises(UnexportableError, match="vision encoder"):
        write_exported_dual_encoder(mhsan.tiny_model(), mhsan.tiny_processor(), tmp_path)
    assert not list(tmp_path.iterdir())
