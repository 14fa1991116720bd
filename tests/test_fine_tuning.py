"""The example of fine-tuning with transformers' trainer, as a person runs it."""

import ast
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from hf_ngsan.loading.models import load_captioner, save_model
from tests.models.tiny import tiny_captioner, tiny_processor

SCRIPT = Path(__file__).parents[1] / "examples" / "fine_tune_with_trainer.py"
needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="adapters need peft (extra test)")


@pytest.fixture
def fine_tune(tmp_path, monkeypatch, capsys):
    """Runs the script on a tiny captioner; returns its scores and the weights that it saved."""
    save_model(tiny_captioner(visual_feature_size=10), tiny_processor(), tmp_path / "captioner")
    arguments = ["--model", tmp_path / "captioner", "--output", tmp_path / "tuned"]
    arguments += ["--data", "scenes:size=12,validation=4,test=4", "--batch-size", 4, "--learning-rate", 0.01]

    def run(*more: str) -> tuple[dict, dict]:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments), *more])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        scores = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
        return scores, load_captioner(tmp_path / "tuned")[0].state_dict()

    return run


@pytest.mark.slow
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


@pytest.mark.slow
@needs_peft
def test_an_adapter_is_trained_and_merged(fine_tune, tmp_path):
    from peft import PeftModel

    _, weights = fine_tune("--max-steps", "2", "--lora-rank", "2")
    start = tiny_captioner(visual_feature_size=10)
    embedding = "model.decoder.embed_tokens.weight"
    torch.testing.assert_close(weights[embedding], start.state_dict()[embedding], rtol=0, atol=0)
    merged = PeftModel.from_pretrained(start, tmp_path / "tuned" / "adapter").merge_and_unload().state_dict()
    torch.testing.assert_close(weights, merged)
