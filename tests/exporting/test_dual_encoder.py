"""Dual encoders as ONNX graphs: they give the model's embeddings and replace it in an index."""

import json

import pytest

from hf_ngsan.exporting.folder import write_exported_dual_encoder
from hf_ngsan.loading.models import load_model, save_model
from tests.commands.running import fails, prints
from tests.exporting.eager import use_eager_graphs
from tests.guests.tiny import photos, save, tiny
from tests.models.mhsan import tiny as mhsan
from tests.tables import each_row


def saved(name, folder):
    if name != "mhsan":
        return save(tiny(name), folder)
    save_model(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True), folder)
    return folder


@pytest.mark.slow
@each_row("name", ["siglip", "mhsan"])
def test_graphs_embed_as_the_model_does(name, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    pytest.importorskip("onnxscript", reason="the extra export is not installed")
    model, processor = load_model(saved(name, tmp_path / name), "retrieval")
    (tmp_path / f"graphs of {name}").mkdir()
    assert write_exported_dual_encoder(model, processor, tmp_path / f"graphs of {name}") <= 1e-4


def test_an_index_is_made_and_searched_by_what_the_command_exports(tmp_path, capsys, monkeypatch):
    use_eager_graphs(monkeypatch)
    clip, graphs = saved("clip", tmp_path / "clip"), tmp_path / "graphs"
    prints(capsys, "export", "--model", clip, "--output", graphs)
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
