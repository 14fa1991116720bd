"""`hf-ngsan evaluate`: scores, captions in a file, and one sentence for mistakes."""

import json
import os

from hf_ngsan import RSTNetLanguageModelConfig
from hf_ngsan.cli import main
from tests.tasks.tiny import DATA

from .running import fails

SPEC = DATA["spec"]


def test_evaluate_writes_coco_results_and_prints_scores(run, tmp_path, capsys):
    capsys.readouterr()
    output = tmp_path / "new" / "captions.json"
    assert main(["evaluate", "--model", str(run), "--data", SPEC, "--split", "test", "--output", str(output)]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {"cider_d", "bleu_4", "symmetric", "directional"} <= scores.keys()
    results = json.loads(output.read_text())
    assert all(set(result) == {"image_id", "caption"} for result in results)
    assert len({result["image_id"] for result in results}) == len(results) == 6
    assert os.listdir(output.parent) == ["captions.json"]


def test_evaluate_computes_the_metrics_asked_for(run, capsys):
    capsys.readouterr()
    arguments = ["evaluate", "--model", str(run / "last"), "--data", SPEC, "--metrics", "rouge_l", "--num-beams", "1"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"rouge_l", "objects", "symmetric", "directional"}


def test_other_mistakes_of_evaluate(run, vision, dual_encoder, tmp_path, capsys):
    model = ["--model", run]
    assert "--record" in fails(capsys, "evaluate", "--model", run, run, "--data", SPEC, "--record")
    assert "cannot be evaluated" in fails(capsys, "evaluate", "--model", vision, "--data", SPEC)
    assert "dual encoder" in fails(capsys, "evaluate", "--model", dual_encoder, dual_encoder, "--data", SPEC)
    assert "--folds" in fails(capsys, "evaluate", *model, "--data", SPEC, "--folds", 2)
    RSTNetLanguageModelConfig().save_pretrained(tmp_path / "words")
    output = ["--output", tmp_path / "new.json"]
    assert "--output" in fails(capsys, "evaluate", "--model", tmp_path / "words", "--data", SPEC, *output)
    assert "split" in fails(capsys, "evaluate", *model, "--data", SPEC, "--split", "tset")
    assert "'sise'" in fails(capsys, "evaluate", *model, "--data", "scenes:sise=4")
    assert "meteorite" in fails(capsys, "evaluate", *model, "--data", SPEC, "--metrics", "meteorite")
