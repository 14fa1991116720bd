"""The command line: what it prints, and one clear sentence for everything a user can get wrong."""

import json
import os
import subprocess
import sys

import numpy
import pytest
import yaml
from safetensors.torch import load_file, save_file

from hf_ngsan.cli import main
from tests.tasks.tiny import DATA, tiny_sections

SPEC = DATA["spec"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A recipe file of a tiny captioner, whose run goes next to it."""
    folder = tmp_path_factory.mktemp("cli")
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", training={"epochs": 1})))
    return file


@pytest.fixture(scope="module")
def run(config):
    """The folder of a finished training run."""
    assert main(["train", "--config", str(config)]) == 0
    return config.parent / "run"


def fails(capsys, *arguments):
    """Run a command that must fail for the user's fault; returns what it says."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    message = lines[-1]
    assert message.startswith("hf-ngsan: error: ")
    assert "Traceback" not in "\n".join(lines)
    return message


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["caption"], ["extract"], ["demo"], ["score"]])
def test_help_shows_examples(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    assert "examples:" in output
    assert f"  hf-ngsan {' '.join(command)}" in output


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom hf_ngsan.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'datasets', 'accelerate', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


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


def test_caption_prints_one_line_an_image(run, capsys):
    capsys.readouterr()
    assert main(["caption", "--model", str(run), "--data", SPEC, "--limit", "4", "--batch-size", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.split("\t")[0].isdigit() and len(line.split("\t")) == 2 for line in lines)


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_stays(run, config, capsys):
    before = (run / "best" / "model.safetensors").read_bytes()
    message = fails(capsys, "train", "--config", config)
    assert "already holds a run" in message
    assert "--resume" in message and "--overwrite" in message
    assert (run / "best" / "model.safetensors").read_bytes() == before
    assert main(["train", "--config", str(config), "--resume"]) == 0  # finished: nothing is left to do
    assert (run / "best" / "model.safetensors").read_bytes() == before


def test_resuming_with_another_recipe_names_the_key(run, config, capsys):
    message = fails(capsys, "train", "--config", config, "training.seed=9", "--resume", "model.dropout=0.3")
    assert "model.dropout, training.seed differ" in message
    assert "recipe.yaml" in message


def test_overwrite_starts_again_but_deletes_no_strangers_folder(config, tmp_path, capsys):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    output = f"output_dir={tmp_path / 'thesis'}"
    message = fails(capsys, "train", "--config", config, output, "--overwrite")
    assert "no training run" in message
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"
    output = f"output_dir={tmp_path / 'run'}"
    assert main(["train", "--config", str(config), output, "data.validation_split=null"]) == 0
    assert not (tmp_path / "run" / "best").exists()
    assert main(["train", "--config", str(config), output, "--overwrite"]) == 0
    assert (tmp_path / "run" / "best").exists()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["epoch=3"], ["epoch", "training.epochs"]),
        (["training.epochs=many"], ["training.epochs", "whole number"]),
        (["model.hiden_size=8"], ["model.hiden_size", "model.hidden_size"]),
        (["model.hidden_size=big"], ["hidden_size"]),
        (["model.hidden_size=15"], ["hidden_size", "num_attention_heads"]),
        (["model.query_norm=group"], ["query_norm", "'group'", "instance"]),
        (["model.vocab_size=100"], ["model.vocab_size", "vocabulary"]),
        (["model.model_type=ngsam"], ["ngsam", "ngsan"]),
        (["model.visual_feature_size=7"], ["visual_feature_size=7", "10 wide", SPEC]),
        (["model.init_from=nowhere/at/all"], ["nowhere"]),
        (["data.spec=secnes"], ["secnes", "scenes"]),
        (["data.spec=features:nowhere"], ["nowhere"]),
        (["data.spec=coco-layout:nowhere"], ["nowhere"]),
        (["data.train_split=trian"], ["trian"]),
        (["data.min_word_count=100000"], ["100000"]),
        (["evaluation.metric=ciderd"], ["ciderd", "cider_d"]),
        (["training.tracker=tensorbored"], ["tensorbored", "tensorboard"]),
    ],
)
def test_training_mistakes(config, tmp_path, capsys, overrides, words):
    message = fails(capsys, "train", "--config", config, f"output_dir={tmp_path / 'run'}", *overrides)
    for word in words:
        assert word in message
    assert not (tmp_path / "run").exists()


def test_mistakes_are_told_once_before_processes_are_started(run, config, tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    several = ("--num-processes", 2)
    assert "epoch" in fails(capsys, "train", "--config", config, "training.epoch=3", *several)
    assert "already holds a run" in fails(capsys, "train", "--config", config, *several)
    assert "absent" in fails(capsys, "evaluate", "--model", tmp_path / "absent", "--data", SPEC, *several)
    evaluate = ("evaluate", "--model", run, "--data", SPEC, *several)
    assert "is a folder" in fails(capsys, *evaluate, "--output", tmp_path)
    assert not started
    main([str(argument) for argument in evaluate])
    assert "hf_ngsan.launching" in started[0][1]


def test_missing_or_broken_recipes(tmp_path, capsys):
    assert "absent.yaml" in fails(capsys, "train", "--config", tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("training: {epochs")
    assert "broken.yaml, line" in fails(capsys, "train", "--config", tmp_path / "broken.yaml")


@pytest.mark.parametrize("command", ["evaluate", "caption"])
def test_a_model_folder_that_is_missing_or_half_written(run, command, tmp_path, capsys):
    def message_of(folder):
        return fails(capsys, command, "--model", folder, "--data", SPEC)

    assert "no model folder" in message_of(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "config.json is missing" in message_of(tmp_path / "empty")

    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (run / "best").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    complete = weights.read_bytes()
    weights.write_bytes(complete[: len(complete) // 2])
    assert "broken is not a complete captioner" in message_of(broken)
    weights.unlink()
    assert "broken is not a complete captioner" in message_of(broken)
    weights.write_bytes(complete)
    tensors = load_file(weights)
    del tensors["lm_head.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    assert "1 weights are missing, lm_head.weight" in message_of(broken)
    weights.write_bytes(complete)
    (broken / "tokenizer.json").unlink()
    assert "broken is not a complete captioner" in message_of(broken)
    (broken / "config.json").write_text("{")
    assert "broken" in message_of(broken)


def test_other_features_than_the_models(run, tmp_path, capsys):
    from datasets import Dataset, DatasetDict

    from hf_ngsan.data import caption_features

    row = {
        "image_id": 1,
        "visual_features": numpy.ones((2, 6), numpy.float32),
        "visual_boxes": numpy.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5]], numpy.float32),
        "captions": ["a red circle"],
    }
    rows = Dataset.from_list([row, {**row, "image_id": 2}], features=caption_features(6))
    DatasetDict(test=rows).save_to_disk(tmp_path / "narrow")
    message = fails(capsys, "evaluate", "--model", run, "--data", f"features:{tmp_path / 'narrow'}")
    assert "6 wide" in message and "visual_feature_size=10" in message


def test_other_mistakes_of_evaluate(run, tmp_path, capsys):
    model = ["--model", run]
    assert "split" in fails(capsys, "evaluate", *model, "--data", SPEC, "--split", "tset")
    assert "'sise'" in fails(capsys, "evaluate", *model, "--data", "scenes:sise=4")
    assert "meteorite" in fails(capsys, "evaluate", *model, "--data", SPEC, "--metrics", "meteorite")
    assert "is a folder" in fails(capsys, "evaluate", *model, "--data", SPEC, "--output", tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["paint"],
        ["train"],
        ["train", "--config", "a.yaml", "--recume"],
        ["train", "--config", "a.yaml", "a=1", "--resume", "-x=2"],
        ["caption", "--model", "m", "--data", "scenes", "--limit", "0"],
        ["evaluate", "--model", "m", "--data", "scenes", "--num-beams", "three"],
        ["evaluate", "--model", "m", "--data", "scenes", "stray"],
    ],
)
def test_misuse_of_the_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_debug_shows_the_traceback_and_bugs_always_do(monkeypatch):
    with pytest.raises(FileNotFoundError):
        main(["train", "--debug", "--config", "absent.yaml"])
    monkeypatch.setattr("hf_ngsan.cli.run_train", lambda options: {}["a bug"])
    with pytest.raises(KeyError):
        main(["train", "--config", "absent.yaml"])


def test_ctrl_c_exits_quietly(monkeypatch, capsys):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_ngsan.cli.run_train", interrupt)
    assert main(["train", "--config", "absent.yaml"]) == 130
    assert capsys.readouterr().err == ""
