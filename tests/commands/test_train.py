"""`hf-ngsan train`: its output files, and one clear sentence for every mistake of a user."""

import yaml

from hf_ngsan.cli import main
from hf_ngsan.training.loop import TrainingLoop
from tests.tables import each_row
from tests.tasks import tiny, tiny_retrieval
from tests.tasks.tiny import DATA

from .running import fails, prints

SPEC = DATA["spec"]


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_stays(run, config, capsys):
    before = (run / "best" / "model.safetensors").read_bytes()
    message = fails(capsys, "train", "--config", config)
    assert "--overwrite" in message
    assert "--resume" in message and "--overwrite" in message
    assert (run / "best" / "model.safetensors").read_bytes() == before
    assert main(["train", "--config", str(config), "--resume"]) == 0  # finished: nothing remains to do
    assert (run / "best" / "model.safetensors").read_bytes() == before


def test_resuming_with_another_config_names_the_key(run, config, capsys):
    message = fails(capsys, "train", "--config", config, "training.seed=9", "--resume", "model.dropout=0.3")
    assert "model.dropout, training.seed" in message
    assert "training_config.yaml" in message


def interrupted_at(monkeypatch, step, error):
    """Makes trainings end with an error at an update."""
    update = TrainingLoop.update

    def failing(loop, micro_batches):
        if loop.progress.step == step:
            raise error
        update(loop, micro_batches)

    monkeypatch.setattr(TrainingLoop, "update", failing)


def test_ctrl_c_says_how_to_continue(config, tmp_path, capsys, monkeypatch):
    command = [
        *["train", "--config", str(config), f"training.output_dir={tmp_path / 'run'}", "training.save_every_steps=1"],
    ]
    with monkeypatch.context() as patched:
        interrupted_at(patched, 2, KeyboardInterrupt())
        assert main(command) == 130
        printed = capsys.readouterr().err
    assert "--resume" in printed and str(tmp_path / "run") in printed
    prints(capsys, *command, "--resume")


@each_row(
    ("overrides", "words"),
    [
        (["epoch=3"], ["epoch", "training.epochs"]),
        (["train.epochs=3"], ["'train'", "training"]),
        (["model.hiden_size=8"], ["hiden_size", "hidden_size"]),
        (["model.hidden_size=15"], ["hidden_size", "num_attention_heads"]),
        (["model.model_type=ngsam"], ["ngsam", "ngsan"]),
        (["model.visual_feature_size=7"], ["model.visual_feature_size is 7", "10", SPEC]),
        (["model.init_from=nowhere/at/all"], ["nowhere"]),
        (["model.init_from=ngsan-scenes", "data.min_word_count=1"], ["data.min_word_count"]),
        (["data.spec=secnes"], ["secnes", "scenes"]),
        (["data.spec=features:nowhere"], ["nowhere"]),
        (["data.train_split=trian"], ["trian"]),
        (["evaluation.metric=ciderd"], ["ciderd", "cider_d"]),
        (["training.tracker=tensorbored"], ["tensorbored", "tensorboard"]),
    ],
)
def test_training_mistakes(config, tmp_path, capsys, overrides, words):
    message = fails(capsys, "train", "--config", config, f"training.output_dir={tmp_path / 'run'}", *overrides)
    for word in words:
        assert word in message
    assert not (tmp_path / "run").exists()


def captioning(folder, **training):
    return tiny.tiny_sections(folder / "run", training=training)


def self_critical(folder, **training):
    settings = {"epochs": 1, "learning_rate": training.pop("learning_rate")}
    return tiny.tiny_sections(folder / "run", training={**training, "stage": "auto"}, self_critical=settings)


ONE_UPDATE = {"batch_size": 1000}


def retrieval(folder, **training):
    return tiny_retrieval.tiny_sections(folder / "run", training=training)


TASKS = [captioning, self_critical, retrieval]


@each_row(("task", "size"), [(captioning, {}), *((task, ONE_UPDATE) for task in TASKS)])
def test_a_run_that_diverged_exits_with_1_and_leaves_no_best_model(task, size, tmp_path, capsys):
    """After the only update of an epoch, the training loss does not show that the model computes NaN."""
    sections = task(tmp_path, epochs=1, learning_rate=1e30, **size)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
    assert main(["train", "--config", str(tmp_path / "config.yaml")]) == 1
    assert "learning_rate" in capsys.readouterr().err.splitlines()[-1]
    run = tmp_path / "run"
    stages = len((run / "history.jsonl").read_text().splitlines()) if (run / "history.jsonl").exists() else 0
    assert stages == (run / "best").exists() == (task is self_critical)  # whose first stage was successful
