"""`hf-ngsan export`: captioners are exported and checked as a user does it."""

import json
import sys

import pytest

from hf_ngsan import MCANConfig, MHSANConfig
from hf_ngsan.cli import main
from hf_ngsan.exporting import ExportedCaptioner, graphs
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.sharing import push
from hf_ngsan.sharing.export import data_of, export_model
from tests.commands.running import fails, prints
from tests.exporting import eager
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.tasks.tiny import DATA


def test_what_cannot_be_exported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(graphs, "PACKAGES", ())
    model = tmp_path / "model"
    save_model(tiny_captioner(), tiny_processor(), model)
    to_target = ("--output", tmp_path / "exported")
    assert str(tmp_path / "gone") in fails(capsys, "export", "--model", tmp_path / "gone", *to_target)
    assert "already" in fails(capsys, "export", "--model", model, "--output", model)
    for write in (lambda: export_model(str(model), str(model)), lambda: push(str(model), "user/model", model)):
        with pytest.raises(FileExistsError):
            write()
    assert (model / "model.safetensors").is_file()
    assert "dimension" in fails(capsys, "export", "--model", model, *to_target, "--check")
    MHSANConfig().save_pretrained(tmp_path / "encoder")
    assert "dual encoder" in fails(capsys, "export", "--model", tmp_path / "encoder", *to_target, "--check")
    assert "vision encoder" in fails(capsys, "export", "--model", model)
    MCANConfig().save_pretrained(tmp_path / "answers")
    assert "neither" in fails(capsys, "export", "--model", tmp_path / "answers")
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**settings, "repetition_penalty": 1.2}))
    assert "repetition_penalty" in fails(capsys, "export", "--model", model, *to_target)
    save_model(pixel_captioner(), pixel_processor(shortest_edge=24, longest_edge=48), tmp_path / "pixels")
    assert "fixed size" in fails(capsys, "export", "--model", tmp_path / "pixels", *to_target)
    monkeypatch.setattr(graphs, "PACKAGES", ("onnx_of_nobody",))
    assert "hf-ngsan[export]" in fails(capsys, "export", "--model", model, *to_target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers", "encoder", "model", "pixels"]


def test_a_check_finds_the_same_captions_and_others(run, tmp_path, capsys, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    output = prints(capsys, "export", "--model", run, "--output", tmp_path / "same", "--check", "--limit", 3)
    assert output.count("3 images") == 2 and "captioner.py" in output
    assert (tmp_path / "same" / "captioner.py").is_file()
    step = ExportedCaptioner.step

    def other_words(captioner, *arguments):
        """Makes a captioner repeat the same word."""
        scores, cache = step(captioner, *arguments)
        scores[..., 5] = 0
        return scores, cache

    monkeypatch.setattr(ExportedCaptioner, "step", other_words)
    arguments = ["export", "--model", str(run), "--output", str(tmp_path / "other"), "--check", "--limit", "3"]
    assert main(arguments) == 1
    assert "3 captions differ" in capsys.readouterr().out


def test_graphs_need_their_runtime(dual_encoder, vision, tmp_path, capsys, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    assert "neither" in fails(capsys, "export", "--model", vision)
    prints(capsys, "export", "--model", dual_encoder, "--output", tmp_path / "graphs")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match="hf-ngsan"):
        load_model(tmp_path / "graphs", "retrieval")


def test_a_check_is_on_the_dataset_of_the_training_run_or_on_scenes(run, captioner):
    assert data_of(run / "best", tiny_captioner(), "test") == (DATA["spec"], "validation")
    assert data_of(captioner, pixel_captioner(), "test") == ("scenes:images=true", "test")
