"""`generate()` of every architecture that writes text: arguments that change no word, and supported arguments."""

import logging

import torch

from tests.models import architectures
from tests.models.architectures import ARCHITECTURES, CLOSE, VARIANTS, every_architecture, every_captioner, spoken
from tests.models.tiny import one_image
from tests.tables import each_row

METHODS = {"greedy": {}, "beams": {"num_beams": 3}, "all beams": {"num_beams": 3, "num_return_sequences": 3}}
CACHES = [{"use_cache": False}, {"cache_implementation": "static"}]
LONGEST = {"ngsan": 20, "rstnet": 20, "spatial_captioner": 15, "nsa_transformer": 128}
every_method = each_row("method", METHODS)


def make(name: str, variant: str | None = None, **changes):
    model = architectures.make(name, variant, **changes)
    model.generation_config.max_new_tokens = 8
    return model


@every_architecture
def test_texts_differ_and_end_at_different_lengths(name, variant):
    """Otherwise most tests below would not detect mistakes."""
    texts = spoken(make(name).generate(**ARCHITECTURES[name].inputs(), num_beams=3))
    assert len({tuple(text) for text in texts}) > 2
    assert len({len(text) for text in texts}) > 1
    assert all(text[0] == 1 for text in texts)


@each_row(
    ("name", "variant", "method"),
    [*((name, variant, "beams") for name, variant in VARIANTS), *((name, None, "all beams") for name in ARCHITECTURES)],
)
def test_a_batch_is_its_rows_alone(name, variant, method):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    together = spoken(model.generate(**inputs, **METHODS[method]))
    apart = [model.generate(**one_image(inputs, row), **METHODS[method]) for row in range(4)]
    assert together == [text for output in apart for text in spoken(output)]


@every_method
@every_architecture
@each_row("cache", CACHES)
def test_a_cache_changes_no_word(name, variant, cache, method):
    model, inputs = make(name), ARCHITECTURES[name].inputs()
    options = {**METHODS[method], "output_logits": True, "return_dict_in_generate": True}
    dynamic, other = model.generate(**inputs, **options), model.generate(**inputs, **options, **cache)
    assert spoken(dynamic.sequences) == spoken(other.sequences)
    torch.testing.assert_close(dynamic.logits, other.logits, **CLOSE)


@every_architecture
@each_row(("method", "cache"), [*((method, {}) for method in METHODS), *(("greedy", cache) for cache in CACHES)])
def test_prefixes_of_any_length_share_a_batch(name, variant, method, cache):
    model, inputs = make(name), ARCHITECTURES[name].inputs()
    prefixes = torch.tensor([[1, 5, 6, 7], [0, 0, 0, 1], [0, 0, 1, 8], [0, 1, 9, 10]])
    options = {"min_new_tokens": 4, "max_new_tokens": 4, **METHODS[method], **cache}
    mask = (prefixes != 0).long()
    together = model.generate(**inputs, decoder_input_ids=prefixes, decoder_attention_mask=mask, **options)
    apart = []
    for row, length in enumerate(mask.sum(1).tolist()):
        begun = prefixes[row : row + 1, -length:]
        texts = model.generate(**one_image(inputs, row), decoder_input_ids=begun, **options)
        assert all(text[:length] == begun[0].tolist() for text in texts.tolist())
        apart += texts.tolist()
    assert [[token for token in text if token != 0] for text in together.tolist()] == apart


@every_architecture
def test_texts_have_a_greatest_length(name, variant, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    item = type(make(name))
    model, inputs, endless = item(make(name).config).eval(), ARCHITECTURES[name].inputs(), {"suppress_tokens": [2]}
    assert model.generate(**inputs, **endless).shape == (4, 1 + LONGEST[name])
    assert model.generate(**inputs, **endless, max_new_tokens=3).shape == (4, 1 + 3)
    assert model.generate(**inputs, **endless, max_length=3).shape == (4, 3)
    assert not caplog.records
    for longest in (LONGEST[name], 7):
        model.generation_config.max_new_tokens = longest
        model.save_pretrained(tmp_path)
        assert item.from_pretrained(tmp_path).generate(**inputs, **endless).shape == (4, 1 + longest)


def log_probability(model, inputs: dict[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
    labels = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(text[1:]) for text in spoken(sequences)], batch_first=True, padding_value=-100
    )
    with torch.no_grad():
        log_probs = model(**inputs, labels=labels).logits.log_softmax(-1)
    picked = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return picked.masked_fill(labels == -100, 0).sum(-1)


@every_captioner
def test_scores_of_beams_are_log_probabilities_and_sorted(name):
    model, inputs = make(name), ARCHITECTURES[name].inputs()
    options = {"length_penalty": 0.0, "output_scores": True, "return_dict_in_generate": True}
    output = model.generate(**inputs, num_beams=4, num_return_sequences=4, **options)
    repeated = {key: tensor.repeat_interleave(4, dim=0) for key, tensor in inputs.items()}
    expected = log_probability(model, repeated, output.sequences)
    torch.testing.assert_close(output.sequences_scores, expected, rtol=1e-4, atol=1e-4)
    assert (output.sequences_scores.view(4, 4).diff(dim=1) <= 0).all()
