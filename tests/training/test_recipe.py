import dataclasses

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.training.recipe import (
    SECTIONS,
    Recipe,
    RecipeError,
    changes_that_break_resuming,
    load_recipe,
    save_recipe,
)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_recipe_is_the_default_one_in_its_own_folder(tmp_path):
    recipe = load_recipe(write(tmp_path / "mine.yaml", ""))
    expected = Recipe()
    assert recipe.model == {"model_type": "ngsan"}
    assert recipe.data == expected.data
    assert recipe.training == dataclasses.replace(expected.training, output_dir="runs/mine")


def test_base_files_hold_where_the_file_is_silent(tmp_path):
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "root.yaml", "model: {hidden_size: 8, dropout: 0.5}\ntraining: {epochs: 9, seed: 4}")
    write(tmp_path / "base.yaml", "base: deep/root.yaml\ntraining: {epochs: 7}")
    recipe = load_recipe(write(tmp_path / "top.yaml", "base: base.yaml\nmodel: {hidden_size: 16}"))
    assert recipe.model == {"model_type": "ngsan", "hidden_size": 16, "dropout": 0.5}
    assert (recipe.training.epochs, recipe.training.seed) == (7, 4)


def test_overrides_are_yaml_and_short_keys_are_looked_up(tmp_path):
    file = write(tmp_path / "r.yaml", "model: {query_norm: instance}")
    overrides = [
        "model.query_norm=null",
        "model.geometric_bias=[]",
        "epochs=3",
        "training.learning_rate=1e-4",
        "spec=scenes",
    ]
    recipe = load_recipe(file, overrides)
    assert recipe.model["query_norm"] is None
    assert recipe.model["geometric_bias"] == []
    assert recipe.training.epochs == 3
    assert recipe.training.learning_rate == 1e-4
    assert recipe.data.spec == "scenes"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trainig: {epochs: 3}", ["r.yaml", "trainig", "did you mean training?"]),
        ("training: {epoch: 3}", ["r.yaml", "training.epoch", "did you mean training.epochs?"]),
        ("training: {xyzzy: 3}", ["training.xyzzy", "valid are training.output_dir"]),
        ("training: {epochs: three}", ["training.epochs", "whole number", "'three'"]),
        ("training: {epochs: 1.5}", ["training.epochs", "whole number", "1.5"]),
        ("training: {epochs: true}", ["training.epochs", "whole number"]),
        ("training: {epochs: 0}", ["training.epochs", "at least 1"]),
        ("training: {epochs: null}", ["training.epochs", "whole number"]),
        ("training: {num_threads: a}", ["training.num_threads", "or null"]),
        ("training: {learning_rate: .nan}", ["training.learning_rate", "nan"]),
        ("training: {learning_rate: true}", ["training.learning_rate", "a number"]),
        ("training: {ema_decay: 1.0}", ["training.ema_decay", "below 1.0"]),
        ("training: {schedule: steps}", ["training.schedule", "step, cosine, constant"]),
        ("training: {adam_betas: 0.9}", ["training.adam_betas", "list of 2"]),
        ("training: [epochs]", ["section training", "mapping"]),
        ("- training", ["r.yaml", "mapping of sections"]),
        ("training: {epochs: 3", ["r.yaml, line", "not valid YAML"]),
        ("base: nowhere.yaml", ["nowhere.yaml", "r.yaml"]),
        ("base: r.yaml", ["r.yaml", "circle"]),
        ("base: 3", ["r.yaml", "base"]),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence(tmp_path, text, words):
    with pytest.raises((RecipeError, FileNotFoundError)) as error:
        load_recipe(write(tmp_path / "r.yaml", text))
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epochs", ["key=value"]),
        ("=3", ["key=value"]),
        ("epoch=3", ["'epoch'", "training.epochs"]),
        ("batch_size=3", ["training.batch_size or evaluation.batch_size"]),
        ("qqqqqq=3", ["section.key=value"]),
        ("training.epoch=3", ["training.epoch", "training.epochs"]),
        ("train.epochs=3", ["'train'", "training"]),
        ("epochs=[", ["not valid YAML"]),
    ],
)
def test_a_bad_override_is_refused_in_one_sentence(tmp_path, override, words):
    with pytest.raises(RecipeError) as error:
        load_recipe(write(tmp_path / "r.yaml", ""), [override])
    for word in words:
        assert word in str(error.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no recipe .*absent\.yaml"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(RecipeError, match="is a folder"):
        load_recipe(tmp_path)


@settings(deadline=None, max_examples=50)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 2**40),
            "learning_rate": st.floats(0, 10, allow_nan=False),
            "max_grad_norm": st.none() | st.floats(0, 1e6),
            "mixed_precision": st.sampled_from([None, "fp16", "bf16"]),
            "adam_betas": st.tuples(st.floats(0, 1), st.floats(0, 1)),
            "output_dir": st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
        },
    ),
    st.dictionaries(
        st.from_regex("[a-z_]{1,9}", fullmatch=True), st.none() | st.booleans() | st.lists(st.text(max_size=3))
    ),
)
def test_a_saved_recipe_is_read_back_as_it_was(tmp_path_factory, training, model):
    recipe = Recipe.from_dict({"model": model, "training": training})
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    save_recipe(recipe, file)
    read = load_recipe(file)
    expected = recipe.training.output_dir or "runs/recipe"
    assert read == dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, output_dir=expected))


def test_a_saved_recipe_explains_every_key(tmp_path):
    file = tmp_path / "recipe.yaml"
    save_recipe(Recipe(), file)
    lines = file.read_text().splitlines()
    for section, kind in SECTIONS.items():
        assert f"{section}:" in lines
        for entry in dataclasses.fields(kind):
            (line,) = [line for line in lines if line.startswith(f"  {entry.name}:") and entry.metadata["help"] in line]
            assert "#" in line
    assert set(yaml.safe_load(file.read_text())) == {"model", *SECTIONS}


def test_only_keys_that_change_the_result_forbid_resuming():
    old = Recipe()

    def changed(**training):
        return dataclasses.replace(old, training=dataclasses.replace(old.training, **training))

    assert changes_that_break_resuming(old, old) == []
    assert changes_that_break_resuming(old, changed(epochs=99, output_dir="x", log_every=1, keep_checkpoints=9)) == []
    assert changes_that_break_resuming(old, changed(batch_size=3, seed=1)) == ["training.seed", "training.batch_size"]
    model = dataclasses.replace(old, model={"model_type": "ngsan", "dropout": 0.5})
    assert changes_that_break_resuming(old, model) == ["model.dropout"]
    cosine = changed(schedule="cosine")
    longer = dataclasses.replace(cosine, training=dataclasses.replace(cosine.training, epochs=99))
    assert changes_that_break_resuming(cosine, longer) == ["training.epochs"]
