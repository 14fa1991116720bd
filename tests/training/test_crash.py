"""A run that is killed at any file operation and resumed ends like an uninterrupted one."""

import os
import shutil

import pytest

from hf_ngsan.tasks import train

from ..tasks.tiny import tiny_training_config
from .test_loop import same_weights, scores

SETTINGS = {"epochs": 2, "batch_size": 16, "save_every_steps": 1, "ema_decay": 0.5}
OPERATIONS = [(os, "open"), (os, "replace"), (os, "rename"), (shutil, "rmtree")]


class KilledError(BaseException):
    """No `except Exception` catches it, like the end of a process."""


class Reaper:
    """Counts file operations in a folder and stops at a chosen one, before or after it."""

    def __init__(self, monkeypatch, folder, fatal=None, after=False):
        self.folder, self.fatal, self.after = str(folder), fatal, after
        self.count = 0
        for module, name in OPERATIONS:
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))

    def wrap(self, operation):
        def wrapped(path, *arguments, **options):
            if not str(path).startswith(self.folder):
                return operation(path, *arguments, **options)
            self.count += 1
            is_fatal = self.count == self.fatal
            if is_fatal and not self.after:
                raise KilledError
            result = operation(path, *arguments, **options)
            if is_fatal:
                raise KilledError
            return result

        return wrapped


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        reaper = Reaper(monkeypatch, folder)
        result = train(tiny_training_config(folder, training=SETTINGS))
    return folder, result, reaper.count


@pytest.mark.parametrize(("moment", "after"), [(0.5, False), (0.9, True)])  # test_dying.py tests every operation
def test_a_run_that_dies_while_writing_ends_the_same_once_resumed(tmp_path, straight, moment, after):
    straight_folder, straight_result, num_operations = straight
    folder = tmp_path / "run"
    config = tiny_training_config(folder, training=SETTINGS)
    with pytest.MonkeyPatch.context() as monkeypatch:
        Reaper(monkeypatch, folder, fatal=1 + int(moment * (num_operations - 1)), after=after)
        with pytest.raises(KilledError):
            train(config)
    result = train(config, resume=True)
    assert scores(result.history) == scores(straight_result.history)
    assert (result.best_score, result.best_epoch) == (straight_result.best_score, straight_result.best_epoch)
    for name in ("best", "last", "checkpoints/step-000000004"):
        assert same_weights(folder / name, straight_folder / name)
    assert sorted(os.listdir(folder)) == sorted(os.listdir(straight_folder))
    assert sorted(os.listdir(folder / "checkpoints")) == sorted(os.listdir(straight_folder / "checkpoints"))
