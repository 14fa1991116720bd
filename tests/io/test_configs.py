"""Packaged training configs: found by name from anywhere, and copied so that the copy stands alone."""

from pathlib import Path

import pytest

from hf_ngsan.io.packaged import copy_config, describe_config, find_config, packaged_configs
from hf_ngsan.tasks import load_training_config
from tests.guests.tiny import save, tiny
from tests.tables import each_row

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"
NAMES = sorted(f"{file.parent.name}/{file.stem}" for file in EXAMPLES.glob("*/*.yaml"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test runs in an empty folder, as one without a checkout."""
    monkeypatch.chdir(tmp_path)


def test_a_name_means_the_packaged_config_unless_there_is_such_a_file(tmp_path):
    packaged = EXAMPLES / "ngsan" / "scenes.yaml"
    assert find_config("ngsan/scenes") == find_config("ngsan/scenes.yaml") == packaged
    (tmp_path / "ngsan" / "scenes").mkdir(parents=True)
    assert find_config("ngsan/scenes") == packaged, "a folder is no config"
    Path("ngsan/scenes.yaml").write_text("training: {epochs: 77}")
    assert find_config("ngsan/scenes.yaml") == Path("ngsan/scenes.yaml")
    assert load_training_config("ngsan/scenes.yaml").training.epochs == 77
    assert load_training_config("ngsan/scenes").training.epochs == 8


@each_row(
    ("name", "closest"),
    [("ngsan/scens", "ngsan/scenes"), ("scenes", "scenes"), ("examples/configs/ngsan/g_san.yaml", "ngsan/g_san")],
)
def test_an_unknown_name_is_told_with_the_closest(name, closest):
    with pytest.raises(FileNotFoundError) as error:
        load_training_config(name)
    assert name in str(error.value) and f"{closest}?" in str(error.value)


@each_row("name", NAMES)
def test_a_copy_is_the_same_config(name, tmp_path):
    copy_config(name, "new/copy.yaml")
    changes = ["training.output_dir=x"]
    if name.startswith("guests/"):  # what they name is on the Hub
        changes.append(f"model.init_from={save(tiny(name.split('/')[1]), tmp_path / 'guest')}")
    copied, packaged = load_training_config("new/copy.yaml", changes), load_training_config(name, changes)
    assert copied == packaged
    assert describe_config(Path("new/copy.yaml")) == describe_config(packaged_configs()[name])


def test_a_copy_replaces_no_file_unless_asked(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    with pytest.raises(FileExistsError, match=r"mine\.yaml"):
        copy_config("ngsan/scenes", file)
    with pytest.raises(FileExistsError):
        copy_config("ngsan/scenes", tmp_path)
    assert file.read_text() == "precious"
    copy_config("ngsan/scenes", file, overwrite=True)
    assert file.read_text() == find_config("ngsan/scenes").read_text()
