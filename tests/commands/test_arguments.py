"""Errors of all commands for missing models, and for mistakes that are found before processes start."""

from safetensors.torch import load_file, save_file

from hf_ngsan.cli import main
from hf_ngsan.commands.arguments import print_skipped
from tests.tasks.tiny import DATA

from .running import fails

SPEC = DATA["spec"]


def test_mistakes_are_told_once_before_processes_are_started(run, config, tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr("hf_ngsan.io.processes.run_processes", lambda *arguments: started.append(arguments) or 7)
    several = ("--num-processes", 2)
    assert "epoch" in fails(capsys, "train", "--config", config, "training.epoch=3", *several)
    assert "--overwrite" in fails(capsys, "train", "--config", config, *several)
    assert "absent" in fails(capsys, "evaluate", "--model", tmp_path / "absent", "--data", SPEC, *several)
    evaluate = ("evaluate", "--model", run, "--data", SPEC, *several)
    assert "is a folder" in fails(capsys, *evaluate, "--output", tmp_path)
    assert not started
    assert main([str(argument) for argument in evaluate]) == 7
    assert started == [(["-m", "hf_ngsan.cli", *map(str, evaluate)], 2)]


def test_of_many_reasons_the_first_are_printed_and_the_others_counted(capsys):
    print_skipped([f"photo {number}" for number in range(25)], "features")
    *first, last = capsys.readouterr().out.splitlines()
    assert len(first) == 20 and "photo 19" in first[-1] and "5 more" in last and "features/skipped.json" in last


def test_a_model_folder_that_is_missing_or_half_written(run, tmp_path, capsys):
    def message_of(folder):
        return fails(capsys, "evaluate", "--model", folder, "--data", SPEC)

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
    assert "broken" in message_of(broken)
    weights.unlink()
    assert "broken" in message_of(broken)
    weights.write_bytes(complete)
    tensors = load_file(weights)
    del tensors["lm_head.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    assert "1 weights" in message_of(broken) and "lm_head.weight" in message_of(broken)
    weights.write_bytes(complete)
    (broken / "tokenizer.json").unlink()
    assert "tokenizer" in message_of(broken)
    (broken / "config.json").write_text("{")
    assert "broken" in message_of(broken)
