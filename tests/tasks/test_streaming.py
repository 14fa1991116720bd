"""Training on streamed images: what is trained on, and kill -9 in the middle of an epoch."""

import signal

import pytest

from hf_ngsan.data import load_data, shuffle_buffer_of
from hf_ngsan.tasks import train
from hf_ngsan.training.recipe import save_recipe
from tests.data.images.photos import write_parquet
from tests.tasks.test_pixels import pixel_recipe
from tests.test_journeys import start
from tests.training.test_loop import same_weights


def write_photographs(folder):
    """Writes the images and captions of synthetic scenes as Parquet; returns the folder."""
    for split, number in (("train", 30), ("validation", 4)):
        rows = load_data(f"scenes:size={number},validation={number},images=true,image_size=32", split)
        rows = rows.with_format(None).select_columns(["image_id", "image", "captions"])
        write_parquet(rows, folder / f"{split}-00000-of-00001.parquet")
    return folder


def test_captions_are_weighted_and_images_shuffled_in_windows(tmp_path):
    spec = f"images:{write_photographs(tmp_path / 'photos')},streaming=true,shuffle_buffer=7"
    assert shuffle_buffer_of(load_data(spec, "train")) == 7
    recipe = pixel_recipe(tmp_path / "run", data={"spec": spec}, training={"epochs": 1, "consensus_power": 1.0})
    assert len(train(recipe).history) == 1


KILLING = """
import os, signal

from hf_ngsan.training.loop import TrainingLoop

original = TrainingLoop.update

def update(self, *arguments):
    if self.progress.step == {fatal}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *arguments)

TrainingLoop.update = update
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_that_was_killed_within_an_epoch_ends_as_one_that_was_not(num_workers, tmp_path):
    spec = f"images:{write_photographs(tmp_path / 'photos')},streaming=true,shuffle_buffer=7"
    data = {"spec": spec, "num_workers": num_workers}
    training = {"batch_size": 4, "save_every_steps": 3}  # 8 updates an epoch
    recipes = [pixel_recipe(tmp_path / name, data=data, training=training) for name in ("straight", "killed")]
    train(recipes[0])
    save_recipe(recipes[1], tmp_path / "killed.yaml")
    (tmp_path / "killing.py").write_text(KILLING.format(fatal=13))
    process = start("-m", "hf_ngsan.cli", "--import", "killing", "train", "--config", "killed.yaml", cwd=tmp_path)
    assert process.wait() == -signal.SIGKILL
    assert max(path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()) == "step-000000012"
    train(recipes[1], resume=True)
    for name in ("best", "last", "checkpoints/step-000000016"):
        assert same_weights(tmp_path / "killed" / name, tmp_path / "straight" / name)
