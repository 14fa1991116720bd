"""The audit passes for every model that generates text, and finds the leak of RSTNet's release and added leaks."""

import pytest
import torch

from hf_ngsan.cli import main
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from hf_ngsan.tasks.registry import audit_model
from tests.models import tiny
from tests.models.mhsan.tiny import tiny_model as tiny_dual_encoder
from tests.models.ngsan.variants import REPRESENTATIVES
from tests.models.nsa_transformer import tiny as nsa_transformer
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.tables import each_row

CONTRACTS = {
    *["later words", "padded words", "padded visual tokens", "other images of the batch", "order of regions"],
    "step by step",
}
CAPTIONERS = {
    **{f"ngsan {name}": (tiny.tiny_captioner, fields) for name, fields in REPRESENTATIVES.items()},
    "spatial_captioner": (spatial_captioner.tiny_captioner, {}),
    "rstnet": (rstnet.tiny_captioner, {}),
    "rstnet on a grid": (rstnet.tiny_captioner, {"grid_size": [2, 4], "grid_position_embedding": True}),
    "rstnet as released, but causal": (
        rstnet.tiny_captioner,
        {"release": True, "language_attention": "causal", "language_tokenization": "word_pieces"},
    ),
}


OF_TEXT = {"later words", "padded words", "step by step"}


def audited(model) -> dict:
    return {finding.name: finding for finding in audit_model(model)}


def leaks(findings: dict) -> set[str]:
    return {name for name, finding in findings.items() if not finding.holds}


@each_row("name", CAPTIONERS)
def test_no_captioner_leaks(name):
    make, fields = CAPTIONERS[name]
    findings = audited(make(**fields))
    assert findings.keys() == CONTRACTS and not leaks(findings)
    a_grid = name in ("spatial_captioner", "rstnet on a grid", "rstnet as released, but causal")
    assert (findings["order of regions"].change is None) == a_grid


@each_row("name", nsa_transformer.VARIANTS)
def test_no_translator_leaks(name):
    findings = audited(nsa_transformer.tiny_translator(**nsa_transformer.VARIANTS[name]))
    assert findings.keys() == {*OF_TEXT, "padded source tokens", "other sources of the batch"} and not leaks(findings)


@each_row("is_released", [False, True])
def test_the_language_model_leaks_as_released_only(is_released):
    released = {"language_attention": "bidirectional", "language_tokenization": "caption_ids"}
    findings = audited(rstnet.tiny_language_model(**released if is_released else {}))
    assert findings.keys() == {*OF_TEXT, "other captions of the batch"}
    assert leaks(findings) == (OF_TEXT if is_released else set())


def test_a_model_that_writes_no_words_is_refused():
    with pytest.raises(ValueError, match="mhsan"):
        audit_model(tiny_dual_encoder())


def spoil_words(model):
    """Adds the embedding of the last word to every word."""
    decoder = model.model.decoder
    decoder.embed_tokens.register_forward_hook(lambda module, inputs, output: output + 0.1 * output[:, -1:])


def spoil_source(model):
    """Lets the decoder attend to padding of the source."""
    model.model.encoder.register_forward_hook(lambda module, inputs, output: add(output, output[0].mean(1)[:, None]))


def spoil_batch(model):
    model.model.encoder.register_forward_hook(lambda module, inputs, output: add(output, output[0].mean((0, 1))))


def spoil_order(model):
    model.model.encoder.register_forward_hook(
        lambda module, inputs, output: add(output, 0.1 * torch.arange(output[0].shape[1])[:, None])
    )


def add(output, more):
    output["last_hidden_state"] = output.last_hidden_state + more
    return output


@each_row(
    ("make", "spoil", "contract"),
    [
        (tiny.tiny_captioner, spoil_words, "later words"),
        (tiny.tiny_captioner, spoil_batch, "other images of the batch"),
        (tiny.tiny_captioner, spoil_order, "order of regions"),
        (nsa_transformer.tiny_translator, spoil_words, "later words"),
        (nsa_transformer.tiny_translator, spoil_source, "padded source tokens"),
    ],
)
def test_leaks_are_found(make, spoil, contract):
    model = make()
    spoil(model)
    assert contract in leaks(audited(model))


@each_row(("release", "code"), [(False, 0), (True, 1)])
def test_the_command(release, code, tmp_path, capsys):
    rstnet.tiny_captioner(release=release).save_pretrained(tmp_path)
    RSTNetProcessor(tokenizer=tiny.tiny_tokenizer()).save_pretrained(tmp_path)
    capsys.readouterr()
    assert main(["audit", "--model", str(tmp_path)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CONTRACTS)
    assert sum(line.startswith("LEAKS") for line in lines) == 3 * code
