"""`hf-ngsan configs`, in a folder without a checkout."""

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
