import json
import logging
import math
import shutil

import pytest
import torch
from transformers import AutoModelForImageTextToText

from hf_ngsan.loading.models import ModelFolderError, find_model_folder, load_captioner, save_model
from hf_ngsan.models.configuration_hub import ConfigurationError
from hf_ngsan.tasks import train
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning.build import build_config
from hf_ngsan.training import RecipeError

from ..models.tiny_photos import pixel_captioner, pixel_processor
from ..tasks.tiny import DATA, MODEL, tiny_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioners") / "run"
    train(tiny_recipe(folder, training={"epochs": 1}))
    return folder


def test_special_tokens_and_sizes_follow_from_the_data(run):
    model, processor = load_captioner(run)
    tokenizer = processor.tokenizer
    words = {
        word for captions in load_rows(DATA["spec"], "train")["captions"] for text in captions for word in text.split()
    }
    assert model.config.vocab_size == len(tokenizer) == len(words) + 4
    assert model.config.visual_feature_size == 10
    ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == ids
    assert model.config.decoder_start_token_id == tokenizer.bos_token_id
    assert not model.training


def test_a_saved_model_generates_as_it_was_evaluated(run):
    defaults = load_captioner(run)[0].generation_config
    assert (defaults.num_beams, defaults.max_new_tokens, defaults.length_penalty) == (2, 14, 1.0)
    assert defaults.suppress_tokens == [3]


def test_fine_tuning_keeps_vocabulary_and_weights_and_changes_fields(run, tmp_path):
    recipe = tiny_recipe(
        tmp_path / "tuned",
        model={"init_from": str(run)},
        data={"spec": "scenes:size=20,seed=8"},
        training={"epochs": 1, "learning_rate": 0.0},
    )
    recipe = type(recipe).from_dict({**recipe.to_dict(), "model": {"init_from": str(run), "dropout": 0.4}})
    result = train(recipe)
    first, first_processor = load_captioner(run)
    tuned, tuned_processor = load_captioner(result.best_dir)
    assert tuned.config.dropout == 0.4
    assert tuned_processor.tokenizer.get_vocab() == first_processor.tokenizer.get_vocab()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tuned.state_dict()[name], tensor)


def test_a_runs_folder_stands_for_its_best_or_else_its_last_model(run, tmp_path):
    assert find_model_folder(run) == str(run / "best")
    assert find_model_folder(run / "last") == str(run / "last")
    (tmp_path / "last").symlink_to(run / "last")
    assert find_model_folder(tmp_path) == str(tmp_path / "last")


def test_a_name_of_the_hub_is_left_alone_and_a_wrong_path_is_not_taken_for_one(tmp_path):
    assert find_model_folder("someone/captioner") == "someone/captioner"
    for wrong in (tmp_path / "absent", "absent", "./absent", "tests/absent"):
        with pytest.raises(FileNotFoundError, match="absent"):
            find_model_folder(wrong)


def test_a_model_of_another_kind_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelFolderError, match="holds a bert model"):
        load_captioner(tmp_path)


def test_a_file_is_no_model_folder(run):
    with pytest.raises(ModelFolderError, match=r"config\.json is a file; give the folder of a model, such as .*best\."):
        load_captioner(run / "best" / "config.json")


def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_called_so(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFolderError, match="There is no model folder runs/scense, and no such model on the Hub"):
        load_captioner("runs/scense")


@pytest.mark.parametrize("content", ["{}", "[]", "3", "{"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_that_holds_something_else_is_one_sentence(run, tmp_path, name, content):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    (broken / name).write_text(content)
    with pytest.raises(ModelFolderError, match="broken") as error:
        load_captioner(broken)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "is_encoder_decoder", False),
        ("generation_config.json", "num_beams", "3"),
        ("generation_config.json", "num_beams", 10**12),
        ("generation_config.json", "use_cache", 0),
        ("generation_config.json", "output_hidden_states", math.inf),
        ("generation_config.json", "length_penalty", math.nan),
        ("generation_config.json", "early_stopping", "x"),
        ("generation_config.json", "bos_token_id", "x"),
        ("generation_config.json", "bos_token_id", []),
        ("generation_config.json", "eos_token_id", []),
        ("generation_config.json", "decoder_start_token_id", 10**12),
        ("generation_config.json", "suppress_tokens", [1, "a"]),
        ("tokenizer_config.json", "model_max_length", {"a": 1}),
        ("tokenizer_config.json", "model_max_length", -1),
    ],
)
def test_a_wrong_value_is_told_with_its_file_and_key(run, tmp_path, file, key, value):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    settings = json.loads((broken / file).read_text())
    (broken / file).write_text(json.dumps({**settings, key: value}))
    with pytest.raises(ModelFolderError) as error:
        load_captioner(broken)
    named = [str(broken), key] if file == "config.json" else [str(broken), key, file]
    assert [name for name in named if name not in str(error.value)] == []
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, "", '{"num_be', "[]"])
def test_generation_settings_that_are_damaged_or_missing_are_no_defaults(run, tmp_path, content):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    (broken / "generation_config.json").unlink()
    if content is not None:
        (broken / "generation_config.json").write_text(content)
    for changes in ({}, {"dropout": 0.3}):
        with pytest.raises(ModelFolderError, match=r"generation_config\.json"):
            load_captioner(broken, **changes)


def test_transformers_itself_refuses_damaged_generation_settings_and_warns_of_missing_ones(run, tmp_path, caplog):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    (broken / "generation_config.json").write_text('{"num_be')
    with pytest.raises(ConfigurationError, match=r"generation_config\.json"):
        AutoModelForImageTextToText.from_pretrained(broken)
    (broken / "generation_config.json").unlink()
    transformers_logger = logging.getLogger("transformers")
    transformers_logger.addHandler(caplog.handler)
    try:
        model = AutoModelForImageTextToText.from_pretrained(broken)
    finally:
        transformers_logger.removeHandler(caplog.handler)
    assert model.generation_config.max_new_tokens == model.longest_output
    assert any(
        str(broken) in record.getMessage() and "generation_config.json" in record.getMessage()
        for record in caplog.records
    )


@pytest.mark.parametrize("file", ["processor_config.json", "preprocessor_config.json"])
@pytest.mark.parametrize("key", ["image_mean", "image_std"])
def test_image_statistics_that_are_not_finite_are_told_with_file_and_key(tmp_path, key, file):
    folder = tmp_path / "broken"
    save_model(pixel_captioner(), pixel_processor(), folder)
    settings = json.loads((folder / "processor_config.json").read_text())
    settings["image_processor"][key][1] = math.nan
    if file == "preprocessor_config.json":
        (folder / file).write_text(json.dumps(settings.pop("image_processor")))
    (folder / "processor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelFolderError) as error:
        load_captioner(folder)
    assert [name for name in (str(folder), file, key) if name not in str(error.value)] == []


def test_a_processor_class_that_is_none_is_told_with_file_and_key(run, tmp_path):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    (broken / "processor_config.json").write_text(json.dumps({"processor_class": "NoSuchProcessor"}))
    with pytest.raises(ModelFolderError) as error:
        load_captioner(broken)
    assert [
        name for name in (str(broken), "processor_config.json", "processor_class") if name not in str(error.value)
    ] == []


def test_weights_of_another_shape_are_named(run, tmp_path):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "intermediate_size": 8}))
    with pytest.raises(ModelFolderError, match=r"broken is not a complete model: \d+ weights have another shape"):
        load_captioner(broken)


@pytest.mark.parametrize(("field", "value"), [("intermediate_size", 8), ("num_hidden_layers", 2)])
def test_fine_tuning_cannot_change_the_size_of_a_model(run, field, value):
    with pytest.raises(ModelFolderError, match=rf"has no weights for the changed configuration \({field}\)"):
        load_captioner(run, **{field: value})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"dropout": 2.0}, "dropout is 2.0"), ({"dropout": "x"}, "dropout"), ({"query_norm": "group"}, "'group'")],
)
def test_changed_fields_are_checked_as_new_ones_are(run, changes, words):
    with pytest.raises(ConfigurationError, match=words):
        load_captioner(run, **changes)


def test_a_tokenizer_that_is_missing_or_another_models_is_named(run, tmp_path):
    broken = shutil.copytree(run / "best", tmp_path / "broken")
    tokenizer = json.loads((broken / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["unheard"] = 1000
    (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelFolderError, match="a word with id 1000, but the model's vocab_size is"):
        load_captioner(broken)
    (broken / "tokenizer.json").unlink()
    with pytest.raises(ModelFolderError, match=r"broken is not a complete model: tokenizer\.json is missing"):
        load_captioner(broken)
    shutil.copy(run / "best" / "tokenizer.json", broken)
    (broken / "tokenizer_config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"tokenizer_config\.json names no padding"):
        load_captioner(broken)


def test_a_configuration_is_checked_field_by_field():
    assert build_config({"model_type": "ngsan", **MODEL}, vocab_size=9).hidden_size == 16
    for fields, words in [
        ({"hidden_sise": 3}, "did you mean model.hidden_size"),
        ({"hidden_size": 2.5}, "hidden_size"),
        ({"geometric_bias": ["queri"]}, "geometric_bias"),
        ({"use_bfloat16": True}, "unknown key model.use_bfloat16"),
        ({"bos_token_id": 5}, "follows from the vocabulary"),
    ]:
        with pytest.raises(RecipeError, match=words) as error:
            build_config({"model_type": "ngsan", **fields}, vocab_size=9)
        assert "\n" not in str(error.value)
