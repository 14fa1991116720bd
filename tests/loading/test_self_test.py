"""Records of the outputs of models: written for every model type; changed outputs are detected."""

import json

import pytest
import torch

from hf_ngsan import save_for_hub
from hf_ngsan.cli import main
from hf_ngsan.io.packaged import CAPTIONER, packaged_models
from hf_ngsan.loading.hub import GENERATION, SELF_TEST, run_self_test, write_self_test
from hf_ngsan.loading.models import load_model
from tests.drift.checkpoints import CHECKPOINTS
from tests.tables import each_row


@pytest.fixture
def saved(tmp_path):
    """A captioner in a folder with a record."""
    model, processor, _ = CHECKPOINTS["ngsan"]()
    return save_for_hub(model, processor, tmp_path / "model")


def record(folder, **changes) -> dict:
    file = folder / SELF_TEST
    actual = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(actual))
    return actual


@each_row("name", CHECKPOINTS)
def test_every_model_type_is_recorded(name, tmp_path):
    model, processor, _ = CHECKPOINTS[name]()
    write_self_test(model, processor, tmp_path)
    assert run_self_test(model, processor, tmp_path) == (0.0, {})
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    assert not run_self_test(model, processor, tmp_path).passed


def test_the_command(saved, capsys):
    assert main(["inspect", str(saved), "--self-test"]) == 0
    values = record(saved)["log_probabilities"]
    assert len(values) == len(record(saved)["token_ids"]) == GENERATION["max_new_tokens"]
    record(saved, log_probabilities=[*values[:-1], values[-1] - 2e-4], versions={"transformers": "5.24.99"})
    capsys.readouterr()
    assert main(["inspect", str(saved), "--self-test"]) == 1
    output = capsys.readouterr().out
    assert len(output.splitlines()) == 1 and "transformers 5.24.99" in output
    (saved / SELF_TEST).unlink()
    assert main(["inspect", str(saved), "--self-test"]) == 2
    assert SELF_TEST in capsys.readouterr().err


def test_a_model_whose_cache_is_not_read_does_not_pass(saved, monkeypatch):
    model, processor = load_model(saved)
    forward = type(model.model.decoder).forward

    def without_past(self, *args, cache=None, attention_mask=None, position_ids=None, **kwargs):
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model.model.decoder), "forward", without_past)
    assert not run_self_test(model, processor, saved).passed


def test_half_precision_is_recorded_in_single(tmp_path):
    model, processor, _ = CHECKPOINTS["ngsan"]()
    write_self_test(model.to(torch.bfloat16), processor, tmp_path)
    assert model.dtype == torch.bfloat16
    assert run_self_test(model, processor, tmp_path).passed


def test_a_model_of_inputs_of_its_own_is_saved_without_a_record(tmp_path, monkeypatch, caplog):
    model, processor, _ = CHECKPOINTS["ngsan"]()
    monkeypatch.setattr(model.model.encoder, "forward", lambda **inputs: 1 / 0)
    write_self_test(model, processor, tmp_path)
    assert not (tmp_path / SELF_TEST).exists()
    assert SELF_TEST in caplog.text


def test_the_packaged_captioner_computes_what_was_recorded():
    folder = packaged_models()[CAPTIONER]
    actual = run_self_test(*load_model(CAPTIONER), folder)
    assert actual.passed, str(actual)
