"""Models in folders: found, loaded as they were trained, and errors of one sentence for invalid folders."""

import json
import os
import shutil
import stat

import pytest
from safetensors.torch import save_file

from hf_ngsan import save_for_hub
from hf_ngsan.data import DataError, load_data
from hf_ngsan.guests.dual_encoders import EXPORTED_SETTINGS, TOWERS, ExportedModel
from hf_ngsan.io.folders import write_folder_atomically
from hf_ngsan.loading.confidence import Confidence
from hf_ngsan.loading.models import ModelFolderError, find_model_folder, load_captioner, load_model, save_model
from hf_ngsan.loading.provenance import model_fingerprint
from hf_ngsan.models.configuration_hub import ConfigurationError
from tests.tables import each_row

from ..models.tiny_photos import pixel_captioner, pixel_processor


@pytest.fixture
def broken(captioner, tmp_path):
    """A copy of a saved model, which a test can break."""
    return shutil.copytree(captioner, tmp_path / "broken")


def change(file, **settings):
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def refusal(folder, **changes) -> str:
    with pytest.raises(ModelFolderError) as error:
        load_captioner(folder, **changes)
    message = str(error.value)
    assert str(folder) in message and "\n" not in message
    return message


def test_a_saved_model_generates_as_it_was_evaluated(run):
    defaults = load_captioner(run)[0].generation_config
    assert (defaults.num_beams, defaults.max_new_tokens, defaults.length_penalty) == (2, 14, 1.0)
    assert defaults.suppress_tokens == [3]


def test_a_runs_folder_stands_for_its_best_or_else_its_last_model(run, tmp_path):
    assert find_model_folder(run) == str(run / "best")
    assert find_model_folder(run / "last") == str(run / "last")
    (tmp_path / "last").symlink_to(run / "last")
    assert find_model_folder(tmp_path) == str(tmp_path / "last")


def test_a_name_of_the_hub_is_left_alone_and_a_wrong_path_is_not_taken_for_one(tmp_path):
    assert find_model_folder("someone/captioner") == "someone/captioner"
    for wrong in (tmp_path / "absent", "absent", "./absent", "tests/absent", "runs/absent"):
        with pytest.raises(FileNotFoundError, match="absent"):
            find_model_folder(wrong)


def test_what_is_no_captioner(captioner, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "bert" in refusal(tmp_path)
    assert "has no model" in refusal(captioner / "config.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="runs/scense"):
        load_captioner("runs/scense")


def test_generation_settings_that_are_damaged_or_missing_are_no_defaults(broken):
    (broken / "generation_config.json").write_text('{"num_be')
    for change_file in (lambda: None, (broken / "generation_config.json").unlink):
        change_file()
        with pytest.raises(OSError, match=r"generation_config\.json"):
            load_captioner(broken)


@each_row(("field", "value"), [("intermediate_size", 8), ("num_hidden_layers", 3)])
def test_weights_that_do_not_fit_are_counted(broken, field, value):
    assert field in refusal(broken, **{field: value})
    change(broken / "config.json", **{field: value})
    assert "weights" in refusal(broken)


def test_changed_fields_are_checked_as_new_ones_are(captioner):
    for changes, words in (({"dropout": "x"}, "dropout"), ({"query_norm": "group"}, "'group'")):
        with pytest.raises(ConfigurationError, match=words):
            load_captioner(captioner, **changes)


def test_a_tokenizer_that_is_missing_or_another_models_is_named(captioner, broken):
    tokenizer = json.loads((broken / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["unheard"] = 1000
    (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
    message = refusal(broken)
    assert "1000" in message and "vocab_size" in message
    (broken / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="tokenizer"):
        load_captioner(broken)
    shutil.copy(captioner / "tokenizer.json", broken)
    (broken / "tokenizer_config.json").unlink()
    assert "tokenizer_config.json" in refusal(broken)


def test_an_exported_dual_encoder_is_known_by_its_graphs(dual_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda path, providers: path)
    fingerprints = set()
    for content in (b"one", b"two"):
        folder = shutil.copytree(dual_encoder, tmp_path / content.decode())
        (folder / EXPORTED_SETTINGS).write_text("{}")
        for tower in TOWERS:
            (folder / f"{tower}.onnx").write_bytes(content)
        model, processor = load_model(folder, "retrieval")
        assert isinstance(model, ExportedModel)
        fingerprints.add(model_fingerprint(model, processor))
    assert len(fingerprints) == 2


def test_a_name_like_that_of_a_model_brings_it_to_mind(captioner):
    for wrong, right in (("ngsan-photoes", "ngsan-photos"), (captioner.with_name("captionr"), captioner)):
        with pytest.raises(FileNotFoundError, match=rf"{right}\?$"):
            find_model_folder(wrong)


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("hf_ngsan.loading.models.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it was asked again"))
    assert "127.0.0.1" not in refusal("someone/captioner")
    with pytest.raises(DataError, match="someone/photos"):
        load_data("images:someone/photos", "train")


def test_a_captioner_without_a_calibration_has_no_confidence(captioner):
    with pytest.raises(ModelFolderError, match="hf-ngsan calibrate"):
        Confidence(captioner)


def test_all_files_of_a_model_have_the_permissions_of_new_files(tmp_path):
    """Safetensors writes files that only their owner can read."""
    before = os.umask(0)
    try:
        for umask, mode in ((0o022, 0o644), (0o002, 0o664), (0o077, 0o600)):
            os.umask(umask)
            folder = tmp_path / f"{umask:o}"
            save_model(pixel_captioner(), pixel_processor(), folder / "model")
            write_folder_atomically(folder / "aside", lambda new: save_file({}, new / "a.safetensors"))
            save_for_hub(pixel_captioner(), pixel_processor(), folder / "shared")
            modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*") if file.is_file()}
            assert modes == {mode}, f"umask {umask:o}"
            (private := folder / "model" / ".env").touch(0o600)
            save_model(pixel_captioner(), pixel_processor(), folder / "model")
            assert stat.S_IMODE(private.stat().st_mode) == 0o600, "a file of the user"
    finally:
        os.umask(before)
