"""`hf-ngsan export`: exported captioners as a person makes and checks them."""

import json

import pytest

from hf_ngsan import MHSANConfig
from hf_ngsan.cli import main
from hf_ngsan.commands.export import data_of
from hf_ngsan.exporting import Captioner, folder, graphs
from hf_ngsan.io.packaged import CAPTIONER
from tests.commands.running import fails, prints
from tests.exporting import eager
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.tasks.tiny import DATA


def saved(folder, model, processor):
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_what_cannot_be_exported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(graphs, "PACKAGES", ())
    model = saved(tmp_path / "model", tiny_captioner(), tiny_processor())
    to_target = ("--output", tmp_path / "exported")
    assert str(tmp_path / "gone") in fails(capsys, "export", "--model", tmp_path / "gone", *to_target)
    assert "already" in fails(capsys, "export", "--model", model, "--output", model)
    assert "--data" in fails(capsys, "export", "--model", model, *to_target, "--check")
    MHSANConfig().save_pretrained(tmp_path / "encoder")
    assert "dual encoder" in fails(capsys, "export", "--model", tmp_path / "encoder", *to_target, "--int8")
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**settings, "repetition_penalty": 1.2}))
    assert "repetition_penalty" in fails(capsys, "export", "--model", model, *to_target)
    pixels = saved(tmp_path / "pixels", pixel_captioner(), pixel_processor(shortest_edge=24, longest_edge=48))
    assert "size" in fails(capsys, "export", "--model", pixels, *to_target)
    monkeypatch.setattr(graphs, "PACKAGES", ("onnx_of_nobody",))
    assert "hf-ngsan[export]" in fails(capsys, "export", "--model", model, *to_target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder", "model", "pixels"]


def test_a_check_finds_the_same_captions_and_others(run, tmp_path, capsys, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    said = prints(capsys, "export", "--model", run, "--output", tmp_path / "same", "--check", "--limit", 3)
    assert said.count("3 images") == 2 and "captioner.py" in said
    assert (tmp_path / "same" / "captioner.py").is_file()
    monkeypatch.setattr(Captioner, "advance", other_words)
    arguments = ["export", "--model", str(run), "--output", str(tmp_path / "other"), "--check", "--limit", "3"]
    assert main(arguments) == 1
    assert "3 captions differ" in capsys.readouterr().out
    arguments[4] = str(tmp_path / "int8")
    monkeypatch.setattr(folder, "MAX_LOSS", -1)
    assert main([*arguments, "--int8"]) == 1
    assert capsys.readouterr().out.count("CIDEr-D") == 2


def test_a_check_reads_the_rows_that_are_named(run, tmp_path, capsys, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    spec = "scenes:size=12,validation=5,test=4"
    for number, (options, images, split) in enumerate(
        (([], 4, "test"), (["--split", "validation"], 5, "validation"), (["--limit", 2], 2, "test"))
    ):
        arguments = ["export", "--model", run, "--output", tmp_path / str(number), "--check", "--data", spec, *options]
        said = prints(capsys, *arguments)
        assert said.count(f"{images} images") == 2 and f"{spec}, split {split}." in said


def other_words(captioner, tokens, visual, cache):
    """Lets a captioner say the same word again and again."""
    scores, cache = captioner.step(tokens, visual, cache)
    scores[..., 5] = 0
    return scores, cache


def test_8_bits_of_a_captioner_of_photographs_are_not_scored_on_scenes(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    model = saved(tmp_path / "model", pixel_captioner(), pixel_processor())
    for name in (CAPTIONER, model):
        assert "--data" in fails(capsys, "export", "--model", name, "--int8", "--output", tmp_path / "small")
    assert not (tmp_path / "small").exists()
    (model / "training_config.yaml").write_text("data:\n  spec: features:features\n")
    with pytest.raises(ValueError, match="--data"):
        data_of(str(model), pixel_captioner(), "test", scored=True)
    assert data_of(str(model), pixel_captioner(), "test", scored=False) == ("scenes:images=true", "test")
    (model / "training_config.yaml").write_text("data:\n  spec: scenes:size=9\n")
    assert data_of(str(model), pixel_captioner(), "test", scored=True) == ("scenes:images=true", "test")


@pytest.mark.slow
def test_8_bits_of_a_training_run(run, tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    pytest.importorskip("onnxscript", reason="the extra export is not installed")
    said = prints(capsys, "export", "--model", run, "--output", tmp_path / "small", "--int8", "--limit", 3)
    assert said.count("3 images") == 2 and said.count("CIDEr-D") == 2
    assert DATA["spec"] in said and "validation" in said
    [quantized] = (tmp_path / "small").glob("decoder.onnx")
    assert b"MatMulInteger" in quantized.read_bytes()
    captioner = Captioner(tmp_path / "small")
    assert captioner.settings["int8"] and captioner.decoding["num_beams"] >= 1
