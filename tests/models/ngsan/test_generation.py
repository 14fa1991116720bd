"""generate(): what must not change a caption, and what a caller may ask for."""

import logging

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from tests.models.ngsan.variants import REPRESENTATIVES
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_config

LENGTHS = [6, 1, 2, 4, 5]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
METHODS = {"greedy": {}, "beams": {"num_beams": 3}, "all beams": {"num_beams": 3, "num_return_sequences": 3}}
every_method = pytest.mark.parametrize("method", METHODS)


def words(sequences: torch.Tensor) -> list[list[int]]:
    """Each caption up to its end token, without padding; beam search pads with end tokens where padding is 0."""
    rows = [[token for token in row if token != 0] for row in sequences.tolist()]
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows]


@pytest.fixture
def model():
    return tiny_captioner()


@pytest.fixture
def images():
    return random_images(LENGTHS)


def test_captions_differ_between_images_and_end_at_different_lengths(model, images):
    """Otherwise most tests below would see little."""
    captions = words(model.generate(**images, num_beams=3))
    assert len({tuple(caption) for caption in captions}) > 3
    assert len({len(caption) for caption in captions}) > 2
    assert all(caption[0] == 1 for caption in captions)


def test_captions_have_20_tokens_at_most_unless_told_otherwise(images, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = NGSANForConditionalGeneration(tiny_config()).eval()
    with torch.no_grad():
        model.lm_head.bias[2] = -100.0
    assert model.generate(**images).shape == (5, 1 + 20)
    assert model.generate(**images, max_new_tokens=3).shape == (5, 1 + 3)
    assert model.generate(**images, max_length=3).shape == (5, 3)
    assert not caplog.records
    for longest in (20, 7):
        model.generation_config.max_new_tokens = longest
        model.save_pretrained(tmp_path)
        assert NGSANForConditionalGeneration.from_pretrained(tmp_path).generate(**images).shape == (5, 1 + longest)


@every_method
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_batch_equals_single_images(name, method, images):
    model = tiny_captioner(**REPRESENTATIVES[name])
    together = words(model.generate(**images, **METHODS[method]))
    apart = [
        caption
        for row in range(len(LENGTHS))
        for caption in words(model.generate(**one_image(images, row), **METHODS[method]))
    ]
    assert together == apart


@every_method
@pytest.mark.parametrize("cache", [{"use_cache": False}, {"cache_implementation": "static"}], ids=str)
def test_cache_changes_nothing(cache, method, model, images):
    options = {**METHODS[method], "output_logits": True, "return_dict_in_generate": True}
    dynamic = model.generate(**images, **options)
    other = model.generate(**images, **options, **cache)
    assert words(dynamic.sequences) == words(other.sequences)
    torch.testing.assert_close(dynamic.logits, other.logits, **CLOSE)


@every_method
def test_attention_implementation_changes_nothing(method, images):
    sequences = [
        tiny_captioner(attn_implementation=implementation).generate(**images, **METHODS[method])
        for implementation in ("eager", "sdpa")
    ]
    assert torch.equal(*sequences)


def test_greedy_words_are_the_most_likely_of_the_forward_pass(model, images):
    sequences = model.generate(**images)
    with torch.no_grad():
        logits = model(**images, decoder_input_ids=sequences[:, :-1]).logits
    real = sequences[:, 1:] != 0
    assert torch.equal(logits.argmax(-1)[real], sequences[:, 1:][real])


def log_probability(model, images: dict[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
    captions = [torch.tensor(caption[1:]) for caption in words(sequences)]
    labels = torch.nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=-100)
    with torch.no_grad():
        log_probs = model(**images, labels=labels).logits.log_softmax(-1)
    picked = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return picked.masked_fill(labels == -100, 0).sum(-1)


def test_scores_of_beams_are_log_probabilities_and_sorted(model, images):
    output = model.generate(
        **images,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=0.0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    repeated = {name: tensor.repeat_interleave(4, dim=0) for name, tensor in images.items()}
    torch.testing.assert_close(
        output.sequences_scores, log_probability(model, repeated, output.sequences), rtol=1e-4, atol=1e-4
    )
    by_image = output.sequences_scores.view(len(LENGTHS), 4)
    assert (by_image.diff(dim=1) <= 0).all()
    for row in range(len(LENGTHS)):
        assert len({tuple(caption) for caption in words(output.sequences[4 * row : 4 * row + 4])}) == 4


def test_enough_beams_find_the_most_likely_caption(images):
    """Two words are few enough to try all captions."""
    model = tiny_captioner()
    vocabulary = model.config.vocab_size
    image = one_image(images, 0)
    pairs = torch.cartesian_prod(torch.arange(vocabulary), torch.arange(vocabulary))
    with torch.no_grad():
        prefixes = torch.cat([torch.ones(len(pairs), 1, dtype=torch.long), pairs[:, :1]], dim=1)
        scores = model(**image, decoder_input_ids=prefixes).logits.log_softmax(-1)
    first = scores[:, 0].gather(1, pairs[:, :1])[:, 0]
    total = first + scores[:, 1].gather(1, pairs[:, 1:])[:, 0].where(pairs[:, 0] != 2, 0)
    total[(pairs[:, 0] == 2) & (pairs[:, 1] != 0)] = -torch.inf
    best = [word for word in pairs[total.argmax()].tolist() if word != 0]
    found = model.generate(**image, num_beams=vocabulary, max_new_tokens=2, length_penalty=0.0)
    assert words(found)[0][1:] == best


def test_sampling_repeats_with_the_seed_and_varies_without(model, images):
    options = {"do_sample": True, "num_return_sequences": 4, "top_k": 10}
    torch.manual_seed(0)
    first = model.generate(**images, **options)
    second = model.generate(**images, **options)
    torch.manual_seed(0)
    assert torch.equal(model.generate(**images, **options), first)
    assert first.shape[0] == 4 * len(LENGTHS)
    assert words(first) != words(second)


def test_samples_follow_the_model(model, images):
    image = one_image(images, 0)
    torch.manual_seed(0)
    samples = model.generate(**image, do_sample=True, num_return_sequences=4000, max_new_tokens=1)[:, 1]
    with torch.no_grad():
        expected = model(**image, decoder_input_ids=torch.tensor([[1]])).logits[0, 0].softmax(-1)
    frequency = samples.bincount(minlength=len(expected)) / len(samples)
    torch.testing.assert_close(frequency, expected, rtol=0, atol=0.03)


@every_method
def test_prefixes_of_any_length_share_a_batch(method, model, images):
    prefixes = [[1, 5, 6, 7], [1], [1, 8], [1, 9, 10], [1, 11]]
    width = max(map(len, prefixes))
    padded = torch.tensor([[0] * (width - len(prefix)) + prefix for prefix in prefixes])
    together = model.generate(
        **images,
        decoder_input_ids=padded,
        decoder_attention_mask=(padded != 0).long(),
        max_new_tokens=5,
        **METHODS[method],
    )
    apart = []
    for row, prefix in enumerate(prefixes):
        captions = model.generate(
            **one_image(images, row), decoder_input_ids=torch.tensor([prefix]), max_new_tokens=5, **METHODS[method]
        )
        assert all(caption[: len(prefix)] == prefix for caption in words(captions))
        apart += words(captions)
    assert words(together) == apart


def test_prefixes_work_with_a_static_cache(model, images):
    padded = torch.tensor([[1, 5, 6], [0, 0, 1], [0, 1, 8], [1, 9, 10], [0, 1, 11]])
    given = {**images, "decoder_input_ids": padded, "decoder_attention_mask": (padded != 0).long()}
    options = {"output_logits": True, "return_dict_in_generate": True}
    dynamic, static = (
        model.generate(**given, **options, **cache) for cache in ({}, {"cache_implementation": "static"})
    )
    assert torch.equal(static.sequences, dynamic.sequences)
    torch.testing.assert_close(static.logits, dynamic.logits, **CLOSE)


def test_start_token_is_put_in_front_of_a_prefix_without_one(model, images):
    prefix = torch.tensor([[5, 6]]).expand(len(LENGTHS), -1)
    with_start = torch.cat([torch.ones(len(LENGTHS), 1, dtype=torch.long), prefix], dim=1)
    assert torch.equal(
        model.generate(**images, decoder_input_ids=prefix), model.generate(**images, decoder_input_ids=with_start)
    )


def test_a_given_encoding_is_used_and_stays_as_it_is(model, images):
    with torch.no_grad():
        encoded = model.model.encoder(**images)
    before = encoded.last_hidden_state.clone()
    given = BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    captions = model.generate(encoder_outputs=given, attention_mask=images["attention_mask"], num_beams=3)
    assert torch.equal(captions, model.generate(**images, num_beams=3))
    assert torch.equal(encoded.last_hidden_state, before)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_attention_of_every_word_can_be_asked_for(num_beams, images):
    model = tiny_captioner(attn_implementation="eager")
    output = model.generate(
        **images, num_beams=num_beams, output_attentions=True, output_hidden_states=True, return_dict_in_generate=True
    )
    steps = len(output.cross_attentions)
    assert output.sequences.shape[1] <= 1 + steps
    rows = len(LENGTHS) * num_beams
    for step in range(steps):
        for layer in range(2):
            assert output.cross_attentions[step][layer].shape == (rows, 4, 1, max(LENGTHS))
            assert output.decoder_attentions[step][layer].shape == (rows, 4, 1, step + 1)
    assert output.encoder_attentions[0].shape == (len(LENGTHS), 4, max(LENGTHS), max(LENGTHS))


def test_cross_attention_of_greedy_words_is_that_of_the_forward_pass(images):
    model = tiny_captioner(attn_implementation="eager")
    output = model.generate(**images, output_attentions=True, return_dict_in_generate=True)
    with torch.no_grad():
        forward = model(**images, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    for layer in range(2):
        generated = torch.cat([step[layer] for step in output.cross_attentions], dim=2)
        real = (output.sequences[:, :-1] != 0)[:, None, :, None]
        torch.testing.assert_close(
            generated.where(real, 0.0), forward.cross_attentions[layer].where(real, 0.0), **CLOSE
        )


def test_misspelt_and_missing_inputs_are_named(model, images):
    with pytest.raises(ValueError, match="visual_box"):
        model.generate(**images, visual_box=images["visual_boxes"])
    without_boxes = {name: tensor for name, tensor in images.items() if name != "visual_boxes"}
    with pytest.raises(ValueError, match="visual_boxes are missing"):
        model.generate(**without_boxes)
