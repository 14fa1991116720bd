import dataclasses
import os
import types
import typing

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.ground.bounds import MAX_INTEGER
from hf_ngsan.tasks import CaptioningRecipe, load_recipe
from hf_ngsan.training.recipe import RecipeError, save_recipe

SECTIONS = CaptioningRecipe.sections()


BOMB = "model:\n  a0: &a0 [x, x]\n" + "".join(
    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
"""A value of 9^30 items in a kilobyte."""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_recipe_is_the_default_one_in_its_own_folder(tmp_path):
    recipe = load_recipe(write(tmp_path / "mine.yaml", ""))
    expected = CaptioningRecipe()
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
        ("training: {xyzzy: 3}", ["training.xyzzy", "valid are training.epochs"]),
        ("training: {epochs: three}", ["training.epochs", "whole number", "'three'"]),
        ("training: {epochs: 1.5}", ["training.epochs", "whole number", "1.5"]),
        ("training: {epochs: true}", ["training.epochs", "whole number"]),
        ("training: {epochs: 0}", ["training.epochs", "at least 1"]),
        ("training: {epochs: null}", ["training.epochs", "whole number"]),
        ("training: {num_threads: 100000}", ["training.num_threads", "100000", "at most"]),
        ("data: {captions_per_image: 1000000}", ["data.captions_per_image", "1000000"]),
        ("training: {seed: 4294967296}", ["training.seed", "4294967296"]),
        (f"training: {{seed: {'9' * 5000}}}", ["r.yaml", "not valid YAML"]),
        (f"model: {{a: {'[' * 1000}{']' * 1000}}}", ["r.yaml", "not valid YAML"]),
        ("model: &a {b: *a}", ["r.yaml", "not valid YAML"]),
        (BOMB, ["r.yaml", "not valid YAML", "aliases"]),
        ("model: {a: !!timestamp x}", ["r.yaml", "not valid YAML"]),
        ("# " + 2**20 * "a", ["r.yaml", "not valid YAML"]),
        ("training: {num_threads: a}", ["training.num_threads", "or null"]),
        ("training: {learning_rate: .nan}", ["training.learning_rate", "nan"]),
        ("training: {learning_rate: true}", ["training.learning_rate", "a number"]),
        ("training: {ema_decay: 1.0}", ["training.ema_decay", "below 1.0"]),
        ("training: {schedule: steps}", ["training.schedule", "step, cosine, inverse_sqrt, constant"]),
        ("training: {adam_betas: 0.9}", ["training.adam_betas", "list of 2"]),
        ("training: [epochs]", ["section training", "mapping"]),
        ("- training", ["r.yaml", "mapping of sections"]),
        ("training: {epochs: 3", ["r.yaml, line", "not valid YAML"]),
        ("base: nowhere.yaml", ["nowhere.yaml", "r.yaml"]),
        ("base: r.yaml", ["r.yaml", "circle"]),
        ("base: 3", ["r.yaml", "base"]),
        ("base: pipe", ["r.yaml", "pipe"]),
        ("base: link", ["r.yaml", "link"]),
        ("base: /dev/zero", ["r.yaml", "/dev/zero"]),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence(tmp_path, text, words):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
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
        ("epochs=" + "9" * 5000, ["epochs", "not valid YAML"]),
        ("epochs=" + "[" * 1000, ["epochs", "not valid YAML"]),
    ],
)
def test_a_bad_override_is_refused_in_one_sentence(tmp_path, override, words):
    with pytest.raises(RecipeError) as error:
        load_recipe(write(tmp_path / "r.yaml", ""), [override])
    for word in words:
        assert word in str(error.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(IsADirectoryError):
        load_recipe(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)


def valid_values(entry, annotation):
    """Whatever a typed setting accepts."""
    if isinstance(annotation, types.UnionType):
        return st.one_of(valid_values(entry, kind) for kind in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return st.tuples(*(valid_values(entry, kind) for kind in typing.get_args(annotation)))
    if annotation is types.NoneType:
        return st.none()
    minimum, maximum, below, choices = (entry.metadata[bound] for bound in ("minimum", "maximum", "below", "choices"))
    if choices:
        return st.sampled_from(choices)
    if annotation is float:
        return st.floats(minimum, maximum if below is None else below, exclude_max=below is not None, allow_nan=False)
    return {int: st.integers(minimum, maximum or MAX_INTEGER), str: st.text(), bool: st.booleans()}[annotation]


def sections(kind):
    annotations = typing.get_type_hints(kind)
    return st.builds(
        kind, **{entry.name: valid_values(entry, annotations[entry.name]) for entry in dataclasses.fields(kind)}
    )


@settings(deadline=None, max_examples=100)
@given(
    st.builds(
        CaptioningRecipe,
        model=st.dictionaries(st.text(), VALUES, max_size=4).map(lambda model: {"model_type": "ngsan", **model}),
        **{section: sections(kind) for section, kind in SECTIONS.items()},
    )
)
def test_a_saved_recipe_is_read_back_as_it_was(tmp_path_factory, recipe):
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    save_recipe(recipe, file)
    folder = "runs/recipe" if recipe.training.output_dir is None else recipe.training.output_dir
    training = dataclasses.replace(recipe.training, output_dir=folder)
    assert load_recipe(file) == dataclasses.replace(recipe, training=training)


def test_a_saved_recipe_explains_every_key(tmp_path):
    file = tmp_path / "recipe.yaml"
    save_recipe(CaptioningRecipe(), file)
    sections = {part.split(":")[0]: part.splitlines()[1:] for part in file.read_text().split("\n\n")}
    for section, kind in SECTIONS.items():
        lines = sections[section]
        for entry in dataclasses.fields(kind):
            (line,) = [line for line in lines if line.startswith(f"  {entry.name}:") and entry.metadata["help"] in line]
            assert "#" in line
    assert set(yaml.safe_load(file.read_text())) == {"model", *SECTIONS}


def test_only_keys_that_change_the_result_forbid_resuming():
    old = CaptioningRecipe()

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


def test_numbers_and_text_that_nobody_can_store_are_told_by_their_keys(tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text(f"training:\n  epochs: 3\n  seed: {'7' * 5000}\n")
    with pytest.raises(RecipeError, match=r"long\.yaml, line 3"):
        load_recipe(file)
    with pytest.raises(RecipeError, match=r"training\.seed"):
        load_recipe("ngsan/scenes", [f"training.seed={'7' * 5000}"])
    for key in ("training.output_dir", "data.spec", "model.hidden_size"):
        section, name = key.split(".")
        file.write_text(f'{section}:\n  {name}: "a\\uD800"\n')
        with pytest.raises(RecipeError, match=rf"long\.yaml: {key} is") as caught:
            load_recipe(file)
        str(caught.value).encode()
    file.write_text('model:\n  vision_config:\n    pretrained: "a\\uD800"\n')
    with pytest.raises(RecipeError, match=r"model\.vision_config"):
        load_recipe(file)


def test_the_home_folder_of_the_user_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("training:\n  seed: 7\n")
    (tmp_path / "yours.yaml").write_text("base: ~/mine.yaml\n")
    recipe = load_recipe("~/yours.yaml", ["training.output_dir=~/x"])
    assert recipe.output_dir == tmp_path / "x" and recipe.training.seed == 7
