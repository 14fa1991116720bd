"""The folder of a run: no file of the user is deleted, and only one run at a time writes it."""

import json
import shutil
import threading
from functools import partial

import pytest
import torch
from filelock import FileLock

from hf_ngsan.tasks import train
from hf_ngsan.training import ConfigError, TrainingDivergedError, TrainingLoop
from hf_ngsan.training.output_folder import LOCK, check_output_folder

from ..tasks.tiny import tiny_training_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(tiny_training_config(folder, training={"epochs": 1, "tracker": "tensorboard"}))
    return folder


def copy(folder, target):
    return shutil.copytree(folder, target)


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_overwriting_deletes_the_run_and_nothing_else(tmp_path, finished):
    folder = copy(finished, tmp_path / "run")
    (folder / "data").mkdir()
    for name in ("thesis.tex", "data/1.jpg"):
        (folder / name).write_text("years of work")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path / "precious")
    before = set(files_in(folder))
    (tmp_path / "alias").symlink_to(folder)
    config = tiny_training_config(tmp_path / "alias", training={"epochs": 1, "seed": 3, "tracker": None})
    result = train(config, overwrite=True)
    after = set(files_in(folder))
    assert any(name.startswith("tensorboard/") for name in before)
    assert not any(name.startswith("tensorboard/") for name in after)
    assert {"best/config.json", "thesis.tex", "data/1.jpg"} <= after and len(result.history) == 1
    assert (tmp_path / "alias").is_symlink() and (tmp_path / "precious" / "file").is_file()


def test_a_folder_that_no_run_wrote_is_not_overwritten(tmp_path):
    (tmp_path / "project" / "best").mkdir(parents=True)
    (tmp_path / "project" / "training_config.yaml").write_text("model: {}\n")
    config = tiny_training_config(tmp_path / "project")
    with pytest.raises(FileExistsError, match="project"):
        train(config, overwrite=True)
    with pytest.raises(ConfigError, match="--overwrite"):
        train(config, resume=True, overwrite=True)
    with pytest.raises(FileExistsError, match=r"training_config\.yaml"):
        train(tiny_training_config(tmp_path / "project" / "training_config.yaml"))
    assert (tmp_path / "project" / "best").is_dir()


def test_a_second_run_in_the_same_folder_is_refused_and_one_waits_for_the_end_of_a_killed_one(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    config = tiny_training_config(tmp_path / "run", training={"epochs": 1})
    lock = FileLock(tmp_path / "run" / LOCK, thread_local=False)
    lock.acquire()
    with monkeypatch.context() as patch, pytest.raises(FileExistsError, match="run"):
        patch.setattr("hf_ngsan.io.folders.LOCK_SECONDS", 0.1)
        train(config)
    assert files_in(tmp_path / "run") == [LOCK]
    threading.Timer(0.1, lock.release).start()
    assert len(train(config).history) == 1


def test_a_finished_run_is_left_as_it_is(tmp_path, finished):
    folder = copy(finished, tmp_path / "run")
    before = (folder / "training_config.yaml").read_text()
    result = train(tiny_training_config(folder, training={"epochs": 1, "tracker": None}), resume=True)
    assert len(result.history) == 1
    assert (folder / "training_config.yaml").read_text() == before


def test_one_function_decides_whether_a_run_begins_or_resumes(tmp_path, finished):
    decide = partial(
        check_output_folder, tiny_training_config(copy(finished, tmp_path / "run"), training={"epochs": 1})
    )
    assert decide(resume=True, overwrite=False)
    assert not decide(resume=False, overwrite=True)
    with pytest.raises(FileExistsError):
        decide(resume=False, overwrite=False)
    for name in ("best", "last", "checkpoints"):
        shutil.rmtree(tmp_path / "run" / name)
    assert not decide(resume=False, overwrite=False)  # nothing was saved
    assert not check_output_folder(tiny_training_config(tmp_path / "new"), resume=True, overwrite=False)


def test_a_state_that_is_not_finite_is_never_saved(tmp_path, monkeypatch):
    settings = {"save_every_steps": 1, "epochs": 2}
    config = tiny_training_config(tmp_path / "run", data={"validation_split": None}, training=settings)
    update = TrainingLoop.update

    def diverge(self, batches):
        update(self, batches)
        if self.progress.step == 5:
            with torch.no_grad():
                next(self.bare_model.parameters()).fill_(float("nan"))

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "update", diverge)
        with pytest.raises(TrainingDivergedError, match="learning_rate"):
            train(config)
    steps = sorted(json.loads(file.read_text())["progress"]["step"] for file in tmp_path.rglob("progress.json"))
    assert max(steps) == 5
    lower = {**settings, "learning_rate": 0.001}
    result = train(tiny_training_config(tmp_path / "run", data={"validation_split": None}, training=lower), resume=True)
    assert len(result.history) == 2
