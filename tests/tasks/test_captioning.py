import pytest
from datasets import DatasetDict

from hf_ngsan.metrics import CiderD, DocumentFrequency
from hf_ngsan.tasks import CaptioningConfig, train
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning import consensus_weights
from hf_ngsan.training.config import ConfigError
from hf_ngsan.training.loop import TrainingLoop
from hf_ngsan.training.objectives.self_critical_rewards import RewardError
from hf_ngsan.training.output_folder import CheckpointError
from tests.tables import each_row

from ..training.test_loop import same_weights, scores
from .tiny import tiny_sections

DATA = {"spec": "scenes:size=16,validation=4,seed=3"}
"""Two updates per epoch."""
SELF_CRITICAL = {"epochs": 2, "learning_rate": 0.01, "samples_per_image": 2, "max_new_tokens": 10}


class KilledError(BaseException):
    """No `except Exception` catches it, like the end of a process."""


def staged_config(folder, stage="auto", model=(), training=(), self_critical=()) -> CaptioningConfig:
    sections = tiny_sections(
        folder, model, DATA, {"stage": stage, "epochs": 1, "save_every_steps": 1, **dict(training)}
    )
    if "init_from" in sections["model"]:
        sections["model"] = dict(model)
    return CaptioningConfig.from_dict({**sections, "self_critical": {**SELF_CRITICAL, **dict(self_critical)}})


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    return folder, train(staged_config(folder))


def die_at(monkeypatch, method: str, step: int):
    genuine = getattr(TrainingLoop, method)

    def mortal(self, *arguments):
        if self.progress.step == step:
            raise KilledError
        return genuine(self, *arguments)

    monkeypatch.setattr(TrainingLoop, method, mortal)


def test_the_second_stage_follows_the_first(straight):
    _, result = straight
    assert [entry["stage"] for entry in result.history] == ["xe", "scst", "scst"]
    assert {"reward", "baseline", "entropy", "bad_endings", "greedy_samples"} <= result.history[-1].keys()


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ("begin_next_stage", 1),
        ("update", 1.5),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (("update", 0.5), ("update", 1), ("save_checkpoint", 2), ("update", 2.5))
        ),
    ],
)
def test_a_killed_run_ends_as_one_that_was_not(tmp_path, monkeypatch, straight, method, epochs):
    straight_folder, expected = straight
    step = round(epochs * expected.history[0]["step"])
    config = staged_config(tmp_path / "run")
    with monkeypatch.context() as patch:
        die_at(patch, method, step)
        with pytest.raises(KilledError):
            train(config)
    resumed = train(config, resume=True)
    assert scores(resumed.history) == scores(expected.history)
    assert same_weights(tmp_path / "run" / "last", straight_folder / "last")


def test_a_finished_run_may_get_a_self_critical_stage_but_not_lose_its_first(tmp_path, straight):
    train(staged_config(tmp_path / "run", stage="xe"))
    result = train(staged_config(tmp_path / "run"), resume=True)
    assert scores(result.history) == scores(straight[1].history)
    with pytest.raises((ConfigError, CheckpointError), match="stage"):
        train(staged_config(tmp_path / "run", stage="xe"), resume=True)


def test_a_start_that_no_epoch_beats_stays_the_best_model(tmp_path, straight, caplog):
    start = straight[0] / "best"
    ruin = {"learning_rate": 10.0, "warmup_epochs": 0, "schedule": "constant", "max_grad_norm": 1.0}
    config = staged_config(tmp_path / "run", stage="xe", model={"init_from": str(start)}, training=ruin)
    with caplog.at_level("INFO", logger="hf_ngsan"):
        result = train(config)
    assert "Before this training: cider_d" in caplog.text
    assert (result.best_epoch, result.best_dir) == (0, tmp_path / "run" / "best")
    assert result.best_score > result.history[-1]["cider_d"]
    assert (result.best_dir / "model.safetensors").read_bytes() == (start / "model.safetensors").read_bytes()
    assert len(result.history) == 1


@each_row(
    ("stage", "settings", "message"),
    [
        ("scst", {}, "init_from"),
        ("auto", {"samples_per_image": 1}, "samples_per_image"),
        ("auto", {"decoding": "beam", "temperature": 0.5}, "beam"),
        ("distill", {}, "teachers"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path, stage, settings, message):
    with pytest.raises(ConfigError, match=message):
        train(staged_config(tmp_path / "run", stage, self_critical=settings))
    assert not (tmp_path / "run").exists()


def test_a_reward_that_is_no_number_stops_the_run_which_can_be_resumed(tmp_path, monkeypatch):
    (tmp_path / "toy_reward_of_user.py").write_text(
        "value, calls, fails_at = 1.0, 0, 0\n"
        "def reward(captions, references):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    return [float('nan') if calls == fails_at else float(len(caption)) for caption in captions]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import toy_reward_of_user as module

    settings = {"reward_function": "toy_reward_of_user:reward", "epochs": 1}
    straight = train(staged_config(tmp_path / "straight", self_critical=settings))
    config = staged_config(tmp_path / "run", self_critical=settings)
    module.calls, module.fails_at = 0, 3
    with pytest.raises(RewardError, match="nan"):
        train(config)
    module.fails_at = 0
    resumed = train(config, resume=True)
    assert scores(resumed.history) == scores(straight.history)
    assert same_weights(tmp_path / "run" / "last", tmp_path / "straight" / "last")


def taught(folder, teachers, **training) -> CaptioningConfig:
    settings = {"teachers": list(map(str, teachers)), "teacher_weight": 0.9, "teacher_temperature": 2.0}
    return staged_config(folder, "xe", training={**settings, **training})


def test_each_teacher_changes_what_is_learnt(tmp_path, straight):
    teachers = [straight[0] / "last", straight[0] / "xe"]
    losses = {train(taught(tmp_path / str(number), teachers[:number])).history[0]["loss"] for number in range(3)}
    assert len(losses) == 3


def test_teachers_of_another_vocabulary_are_refused(tmp_path):
    other = tiny_sections(tmp_path / "other", data={"spec": "scenes:size=4,validation=2,seed=3"})
    train(CaptioningConfig.from_dict(other))
    with pytest.raises(ConfigError, match="vocabulary"):
        train(staged_config(tmp_path / "run", training={"teachers": [str(tmp_path / "other" / "best")]}))
    with pytest.raises(FileNotFoundError):
        train(staged_config(tmp_path / "run", training={"teachers": [str(tmp_path / "gone")]}))
    assert not (tmp_path / "run" / "best").exists()


def distilling(folder, student, teachers, **drawn) -> CaptioningConfig:
    settings = {"stage": "distill", "teachers": teachers, "save_every_steps": 1}
    drawn = {"epochs": 4, "learning_rate": 0.01, "samples_per_image": 2, "max_new_tokens": 10, **drawn}
    sections = tiny_sections(folder, data=DATA, training=settings)
    return CaptioningConfig.from_dict({**sections, "model": {"init_from": student}, "distillation": drawn})


@pytest.fixture
def photographs(tmp_path):
    """The dataset string of images without captions."""
    images = load_rows("scenes:size=16,seed=8", "train").remove_columns("captions")
    DatasetDict(train=images).save_to_disk(str(tmp_path / "images"))
    return f"features:{tmp_path / 'images'}"


def test_a_captioner_learns_from_teachers_on_images_without_captions(tmp_path, straight, photographs):
    student = str(straight[0] / "xe")
    teachers = [str(straight[0] / "last"), student]
    result = train(distilling(tmp_path / "run", student, teachers, images=photographs))
    first, *_, last = result.history
    assert {entry["stage"] for entry in result.history} == {"distill"} and first["step"] == 2
    assert last["loss"] < first["loss"] and 0 < last["teacher_agreement"] <= 1
    first_run = train(distilling(tmp_path / "own", student, teachers, epochs=1))
    assert first_run.history[0]["loss"] != first["loss"], "without distillation.images the training split is learnt on"


CAPTIONS = [
    ["a man rides a horse", "a man rides a brown horse", "what a lovely day this is"],
    ["two dogs play in the snow", "two dogs in the snow"],
    ["a red bus"],
]


def test_weights_are_each_captions_cider_d_over_the_mean_of_its_image():
    frequency = DocumentFrequency.from_captions(CAPTIONS)
    metric = CiderD(document_frequency=frequency)
    scores = []
    for index, caption in enumerate(CAPTIONS[0]):
        others = CAPTIONS[0][:index] + CAPTIONS[0][index + 1 :]
        scores.append(metric.compute(predictions=[caption], references=[others])["cider_d"] + 1e-3)
    mean = sum(scores) / 3
    expected = [min(max((score / mean) ** 2, 0.05), 3.0) for score in scores]
    weights = consensus_weights(CAPTIONS, power=2)
    assert weights[0] == pytest.approx(expected) and weights[2] == [1.0], "the only caption of an image"
    assert consensus_weights(CAPTIONS, power=0) == [[1.0] * 3, [1.0] * 2, [1.0]]
