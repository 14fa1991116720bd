"""`hf-ngsan configs`, and training by a packaged config from a folder without a checkout."""

import pytest

from hf_ngsan.io.packaged import describe_config, packaged_configs
from hf_ngsan.tasks import load_training_config
from tests.commands.running import fails, prints


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_configs_lists_every_config_with_its_description(capsys):
    listed = dict(line.split(maxsplit=1) for line in prints(capsys, "configs").splitlines())
    assert listed == {name: describe_config(file) for name, file in packaged_configs().items()}


def test_configs_copies_one_and_keeps_files_that_exist(tmp_path, capsys):
    assert "scenes.yaml" in prints(capsys, "configs", "--copy", "ngsan/scenes")
    copied = (tmp_path / "scenes.yaml").read_text()
    (tmp_path / "scenes.yaml").write_text("precious")
    assert "scenes.yaml" in fails(capsys, "configs", "--copy", "ngsan/scenes")
    assert (tmp_path / "scenes.yaml").read_text() == "precious"
    prints(capsys, "configs", "--copy", "ngsan/scenes", "--overwrite")
    assert (tmp_path / "scenes.yaml").read_text() == copied
    prints(capsys, "configs", "--copy", "ngsan/g_san", "--output", "new/mine.yaml")
    assert load_training_config("new/mine.yaml").model == load_training_config("ngsan/g_san").model


def test_train_takes_the_name_of_a_config(tmp_path, capsys):
    small = ["data.spec=scenes:size=8,validation=4", "training.epochs=1", "evaluation.every_epochs=1"]
    assert "runs/scenes" in prints(capsys, "train", "--config", "ngsan/scenes", *small)
    assert (tmp_path / "runs" / "scenes" / "best" / "config.json").is_file()
    assert "ngsan/scenes" in fails(capsys, "train", "--config", "ngsan/scense", *small)
