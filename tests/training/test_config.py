import dataclasses

import pytest

from hf_ngsan.tasks import CaptioningConfig, load_training_config
from hf_ngsan.training.config import ConfigError, save_training_config
from tests.tables import each_row

SECTIONS = CaptioningConfig.sections()


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_config_is_the_default_one_in_its_own_folder(tmp_path):
    config = load_training_config(write(tmp_path / "mine.yaml", ""))
    expected = CaptioningConfig()
    assert config.model == {"model_type": "ngsan"}
    assert config.data == expected.data
    assert config.training == dataclasses.replace(expected.training, output_dir="runs/mine")


def test_base_files_hold_where_the_file_is_silent(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "root.yaml", "model: {hidden_size: 8, dropout: 0.5}\ntraining: {epochs: 9, seed: 4}")
    write(tmp_path / "base.yaml", "base: deep/root.yaml\ntraining: {epochs: 7}")
    write(tmp_path / "top.yaml", "base: ~/base.yaml\nmodel: {hidden_size: 16}")
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_training_config("~/top.yaml", ["training.output_dir=~/x"])
    assert config.model == {"model_type": "ngsan", "hidden_size": 16, "dropout": 0.5}
    assert (config.training.epochs, config.training.seed, config.output_dir) == (7, 4, tmp_path / "x")


def test_adapters_have_their_own_values_unless_a_key_is_set(tmp_path):
    text = "training: {learning_rate: 0.1}\nwith_lora: {training.learning_rate: 0.2, self_critical.learning_rate: 0.3}"
    base = write(tmp_path / "base.yaml", text)
    top = write(tmp_path / "top.yaml", "base: base.yaml\ntraining: {learning_rate: 0.4}")
    for file, overrides, rate in (
        (base, [], 0.1),
        (base, ["lora.rank=2"], 0.2),
        (base, ["lora.rank=2", "training.learning_rate=0.5"], 0.5),
        (top, ["lora.rank=2"], 0.4),
    ):
        assert load_training_config(file, overrides).training.learning_rate == rate, (file.name, overrides)


def test_overrides_are_yaml(tmp_path):
    file = write(tmp_path / "r.yaml", "model: {query_norm: instance}")
    overrides = ["model.query_norm=null", "model.geometric_bias=[]", "training.learning_rate=1e-4"]
    config = load_training_config(file, overrides)
    assert config.model["query_norm"] is None
    assert config.model["geometric_bias"] == []
    assert config.training.learning_rate == 1e-4


@each_row(
    ("text", "named"),
    [
        ("trainig: {epochs: 3}", "trainig.* training[?]"),
        ("training: {epoch: 3}", r"training\.epoch;.* training\.epochs[?]"),
        ("training: {epochs: three}", r"training\.epochs .*'three'"),
        ("training: {epochs: 0}", r"training\.epochs .*1, not 0"),
        ("training: {schedule: steps}", r"training\.schedule .*step, cosine, inverse_sqrt, constant"),
        ("training: {epochs: 3", "line"),
        ("training: {adam_betas: [0.9]}", r"training\.adam_betas .*2 values"),
        ("training: 3", r"training .*mapping"),
        ("base: nowhere.yaml", r"nowhere\.yaml"),
    ],
)
def test_a_bad_config_is_refused_in_one_sentence(tmp_path, text, named):
    with pytest.raises((ConfigError, FileNotFoundError), match=named) as error:
        load_training_config(write(tmp_path / "r.yaml", text))
    assert "r.yaml" in str(error.value) and "\n" not in str(error.value)


def test_a_saved_config_is_read_back_as_it_was(tmp_path):
    sections = {
        "model": {"model_type": "ngsan", "text": "a: #é\n", "nested": {"list": [1, None, {"x": -0.0}]}, "none": None},
        "data": {"spec": "images:~/a b,split='x'", "limit": None, "validation_split": None},
        "training": {"learning_rate": 1e-05, "adam_betas": [0.1, 1e-300], "freeze": ["*.bias", "yes", "1"], "seed": 7},
        "self_critical": {"dropout": True, "reward_function": "null"},
        "lora": {"target_modules": []},
    }
    config = CaptioningConfig.from_dict(sections)
    file = tmp_path / "config.yaml"
    save_training_config(config, file)
    training = dataclasses.replace(config.training, output_dir="runs/config")
    assert load_training_config(file) == dataclasses.replace(config, training=training)


def test_a_saved_config_explains_every_key(tmp_path):
    file = tmp_path / "config.yaml"
    save_training_config(CaptioningConfig(), file)
    sections = {part.split(":")[0]: part.splitlines()[1:] for part in file.read_text().split("\n\n")}
    for section, kind in SECTIONS.items():
        for entry in dataclasses.fields(kind):
            end = f"  # {entry.metadata['help']}"
            assert sum(line.startswith(f"  {entry.name}:") and line.endswith(end) for line in sections[section]) == 1


def test_only_keys_that_change_the_result_forbid_resuming():
    old = CaptioningConfig()

    def changed(**training):
        return dataclasses.replace(old, training=dataclasses.replace(old.training, **training))

    assert old.changes_that_break_resuming(old) == []
    assert old.changes_that_break_resuming(changed(epochs=99, output_dir="x", log_every=1, keep_checkpoints=9)) == []
    assert old.changes_that_break_resuming(changed(batch_size=3, seed=1)) == ["training.seed", "training.batch_size"]
    model = dataclasses.replace(old, model={"model_type": "ngsan", "dropout": 0.5})
    assert old.changes_that_break_resuming(model) == ["model.dropout"]
    cosine = changed(schedule="cosine")
    longer = dataclasses.replace(cosine, training=dataclasses.replace(cosine.training, epochs=99))
    assert cosine.changes_that_break_resuming(longer) == ["training.epochs"]
