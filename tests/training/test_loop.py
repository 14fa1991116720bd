import math
import shutil
from functools import partial

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from hf_ngsan.data import EpochSampler
from hf_ngsan.tasks import train
from hf_ngsan.tasks.captioning import CaptioningTask
from hf_ngsan.tasks.question_answering import VisualQuestionAnsweringTask
from hf_ngsan.tasks.retrieval import RetrievalTask
from hf_ngsan.training import TrainingDivergedError, TrainingLoop
from hf_ngsan.training.batches import UpdateBatches
from hf_ngsan.training.objectives import TeacherForcing
from tests.models.test_operators import Operators
from tests.tables import each_row

from ..tasks import tiny_questions, tiny_retrieval
from ..tasks.tiny import tiny_training_config

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def make_loop(config, kind=CaptioningTask):
    torch.manual_seed(0)
    task = kind(config)
    rows = task.load_rows("train")
    model, processor = task.build(rows)
    return TrainingLoop(Accelerator(cpu=True), task, model, processor, task.training_rows(model, processor, rows))


def micro_batches(loop, update, parts):
    shares = list(EpochSampler(len(loop.rows), loop.settings.batch_size, seed=0, epoch=0))
    return UpdateBatches(loop.rows, loop.collator, shares, parts)[update]


@each_row("parts", [1, 3])
def test_an_update_is_adam_on_the_mean_loss_per_token_of_the_global_batch(tmp_path, parts):
    config = tiny_training_config(tmp_path, model=NO_DROPOUT, training={"max_grad_norm": 0.5, "adam_epsilon": 1e-4})
    reference, loop = make_loop(config).bare_model, make_loop(config)
    (full,) = micro_batches(loop, 0, 1)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-4, weight_decay=0.0)
    reference.train()
    mean = reference(**full.inputs).loss
    mean.backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
    optimizer.step()

    loop.model.train()
    loop.update(micro_batches(loop, 0, parts))
    loop.gather_sums()
    assert loop.progress.sums["rows"] == 8
    assert loop.progress.sums["loss"] / loop.progress.sums["weight"] == pytest.approx(mean.item(), rel=1e-5)
    for (name, expected), actual in zip(reference.named_parameters(), loop.bare_model.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, msg=name)


def test_an_update_never_waits_for_the_device(tmp_path):
    loop = make_loop(tiny_training_config(tmp_path, training={"max_grad_norm": 1.0, "ema_decay": 0.9}))
    loop.model.train()
    first, second = (micro_batches(loop, update, 2) for update in range(2))
    loop.update(first)
    with Operators() as operators:
        loop.update(second)
    assert operators.names["aten::_fused_adamw_"] == 1


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoints(tmp_path, monkeypatch):
    config = tiny_training_config(tmp_path / "run", data={"validation_split": None})
    train(config)
    checkpoints = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    genuine = TeacherForcing.loss

    def broken(self, model, inputs):
        loss, statistics = genuine(self, model, inputs)
        return loss * math.nan, {**statistics, "loss": statistics["loss"] * math.nan}

    monkeypatch.setattr(TeacherForcing, "loss", broken)
    longer = tiny_training_config(tmp_path / "run", data={"validation_split": None}, training={"epochs": 3})
    with pytest.raises(TrainingDivergedError, match=r"epoch 3.*learning_rate"):
        train(longer, resume=True)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == checkpoints


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    loop = make_loop(tiny_training_config(tmp_path))
    for loop.greater_is_better in (True, False):
        assert not any(loop.is_better(score, best) for score in (math.nan, math.inf, -math.inf) for best in (None, 0.5))
        assert loop.is_better(0.5, None)


def test_a_run_that_ends_without_a_score_has_diverged(tmp_path, monkeypatch):
    """The earlier best model is kept; resuming a finished run reports it again."""
    scores = iter([0.5, math.nan])
    monkeypatch.setattr(CaptioningTask, "evaluate", lambda *_: {"cider_d": next(scores)})
    config = tiny_training_config(tmp_path / "run")
    for resume in (False, True):
        with pytest.raises(TrainingDivergedError, match=r"cider_d.*epoch 2.*epoch 1"):
            train(config, resume=resume)
    assert (tmp_path / "run" / "best" / "model.safetensors").is_file()


def test_early_stopping_keeps_the_best_model(tmp_path):
    config = tiny_training_config(
        tmp_path / "run", training={"epochs": 9, "learning_rate": 0.0, "early_stopping_patience": 2}
    )
    result = train(config)
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3]
    assert result.best_epoch == 1
    again = train(config, resume=True)
    assert again.history == result.history


@pytest.mark.parametrize("ema_decay", [0.9, pytest.param(0.0, marks=pytest.mark.slow)])
def test_a_run_without_its_last_checkpoint_goes_on_from_the_one_before_it(tmp_path, ema_decay):
    settings = {"save_every_steps": 3, "ema_decay": ema_decay, "keep_checkpoints": 9}
    straight = train(tiny_training_config(tmp_path / "straight", training=settings))
    for dropped in (1, 2):  # the run is then resumed from within an epoch
        run = tmp_path / f"run-{dropped}"
        shutil.copytree(tmp_path / "straight", run)
        checkpoints = sorted((run / "checkpoints").iterdir())
        for checkpoint in checkpoints[-dropped:]:
            shutil.rmtree(checkpoint)
        resumed = train(tiny_training_config(run, training=settings), resume=True)
        assert scores(resumed.history) == scores(straight.history)
        for folder in ("best", "last", f"checkpoints/{checkpoints[-1].name}"):
            assert same_weights(run / folder, tmp_path / "straight" / folder)


@pytest.mark.parametrize(
    "settings", [{"cache_on_device": True, "batch_size": 7}, pytest.param({"compile": True}, marks=pytest.mark.slow)]
)
def test_features_on_the_device_and_a_compiled_step_train_the_same(tmp_path, monkeypatch, settings):
    """A compiled step has one graph for batches of all lengths and sizes."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # inductor takes minutes
    torch._dynamo.reset()
    counters.clear()
    weights = []
    for name, changes in (("usual", {**settings, "cache_on_device": False, "compile": False}), ("changed", settings)):
        sections = {"model": NO_DROPOUT, "data": {"validation_split": None}, "training": {"epochs": 1, **changes}}
        train(tiny_training_config(tmp_path / name, **sections))
        weights.append(load_file(tmp_path / name / "last" / "model.safetensors"))
    tolerance = {"rtol": 0, "atol": 1e-4 if "compile" in settings else 0}
    torch.testing.assert_close(weights[0], weights[1], **tolerance)
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] <= 3
    assert bool(counters["stats"]["unique_graphs"]) == ("compile" in settings)


def test_frozen_parts_stay_frozen_whatever_a_task_does(tmp_path):
    questions = tiny_questions.tiny_training_config(
        tmp_path, tiny_questions.save_questions(tmp_path / "data"), training={"freeze": ["model.encoder.embed_tokens"]}
    )
    staged = tiny_retrieval.tiny_training_config(tmp_path, training={"stage": "staged", "freeze": ["image_states"]})
    for config, kind in ((questions, VisualQuestionAnsweringTask), (staged, RetrievalTask)):
        loop = make_loop(config, kind)
        [part] = config.training.freeze
        frozen = {*loop.bare_model.get_submodule(part).parameters()}
        for number, stage in enumerate(loop.stages):
            loop.progress.stage = number
            loop.prepare_stage()
            trained = {weight for weight in loop.bare_model.parameters() if weight.requires_grad}
            optimized = {weight for group in loop.optimizer.param_groups for weight in group["params"]}
            assert frozen and trained and trained <= optimized - frozen, (part, stage.name)


def test_the_start_of_a_stage_is_the_best_model_of_this_training(tmp_path):
    """It is kept when the run resumes, as `best` may belong to the next stage; that of an earlier run is not."""
    loop = make_loop(tiny_training_config(tmp_path))
    (tmp_path / "last").mkdir()
    for losses, weights, expected in (([2.0, 1.0], "a", "a"), ([2.0, 1.0], "b", "a"), ([2.0, 1.5], "c", "c")):
        loop.progress.history = [{"loss": loss} for loss in losses]
        (tmp_path / "last" / "model").write_text(weights)
        assert (loop.keep_start_of_next_stage() / "model").read_text() == expected, losses


def test_only_the_main_process_chooses_the_checkpoint_and_cleans_up(tmp_path, monkeypatch):
    loop = make_loop(tiny_training_config(tmp_path))
    for loop.progress.step in (1, 2):
        loop.save_checkpoint()
    leftover = tmp_path / "checkpoints" / ".incomplete-step-000000003"
    leftover.mkdir()
    first = tmp_path / "checkpoints" / "step-000000001"
    with monkeypatch.context() as patch:
        patch.setattr(type(loop.accelerator), "is_main_process", False)
        patch.setattr("hf_ngsan.training.loop.broadcast_object_list", lambda chosen: [first])
        assert loop.resume() and loop.progress.step == 1 and leftover.is_dir()
    assert loop.resume() and loop.progress.step == 2 and not leftover.exists()


def scores(history):
    return [{key: value for key, value in entry.items() if "second" not in key} for entry in history]


def same_weights(first, second):
    element, other = (load_file(folder / "model.safetensors") for folder in (first, second))
    return element.keys() == other.keys() and all(torch.equal(element[name], other[name]) for name in element)
