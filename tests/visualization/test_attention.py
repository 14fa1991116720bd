"""Word-aligned attention equals the attention of the decoding steps that made the words."""

import numpy
import pytest
import torch

from hf_ngsan.visualization import WordAttention, word_attention
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_tokenizer
from tests.tables import each_row

IMAGES = random_images([5, 3, 4])
TOKENIZER = tiny_tokenizer()


def step_by_step(model, inputs, sequence, layer=None):
    """Attention of each decoding step `(words, regions)`: the decoder runs on one longer prefix after the other."""
    rows = []
    for length in range(1, len(sequence)):
        outputs = model(**inputs, decoder_input_ids=sequence[None, :length], output_attentions=True)
        layers = [attention[0, :, -1].mean(0) for attention in outputs.cross_attentions]
        rows.append(torch.stack(layers).mean(0) if layer is None else layers[layer])
    return torch.stack(rows)


@each_row(("num_beams", "returned"), [(1, 1), (3, 1), (3, 2)])
@each_row("layer", [None, 0, -1])
def test_weights_are_those_of_the_decoding_steps(num_beams, returned, layer):
    model = tiny_captioner()
    sequences = model.generate(**IMAGES, num_beams=num_beams, num_return_sequences=returned, min_new_tokens=2)
    attentions = word_attention(model, TOKENIZER, IMAGES, sequences, layer)
    assert len(attentions) == len(sequences) == 3 * returned
    reference = tiny_captioner(attn_implementation="eager")
    for index, (attention, sequence) in enumerate(zip(attentions, sequences, strict=True)):
        words = TOKENIZER.decode(sequence, skip_special_tokens=True).split()
        assert attention.words == words
        assert len(words) >= 2
        expected = step_by_step(reference, one_image(IMAGES, index // returned), sequence[: len(words) + 1], layer)
        assert attention.weights.dtype == numpy.float32
        numpy.testing.assert_allclose(attention.weights, expected.detach(), atol=1e-6)
        numpy.testing.assert_allclose(attention.weights.sum(1), 1, atol=1e-6)


def test_greedy_weights_are_those_that_generate_returns():
    model = tiny_captioner(attn_implementation="eager")
    image = one_image(IMAGES, 0)
    outputs = model.generate(**image, output_attentions=True, return_dict_in_generate=True)
    [attention] = word_attention(model, TOKENIZER, image, outputs.sequences)
    steps = [torch.stack(step)[:, 0, :, -1].mean((0, 1)) for step in outputs.cross_attentions]
    numpy.testing.assert_allclose(attention.weights, torch.stack(steps)[: len(attention.words)], atol=1e-6)


def test_prefixes_padded_on_the_left_change_nothing():
    model = tiny_captioner()
    ids = TOKENIZER(["<s> a red ball left of", "<s> a"], padding=True, padding_side="left", return_tensors="pt")
    batch = {name: tensor[:2] for name, tensor in IMAGES.items()}
    sequences = model.generate(
        **batch, decoder_input_ids=ids["input_ids"], decoder_attention_mask=ids["attention_mask"], max_new_tokens=4
    )
    assert sequences[1, 0] == TOKENIZER.pad_token_id
    together = word_attention(model, TOKENIZER, batch, sequences)
    assert together[0].words[:5] == ["a", "red", "ball", "left", "of"]
    without_padding = sequences[1:][:, sequences[1].ne(TOKENIZER.pad_token_id).int().argmax() :]
    [alone] = word_attention(model, TOKENIZER, one_image(IMAGES, 1), without_padding)
    assert together[1].words == alone.words
    numpy.testing.assert_allclose(together[1].weights, alone.weights, atol=1e-6)


def test_unknown_words_are_left_out_as_in_the_text():
    model = tiny_captioner()
    sequences = torch.tensor([[1, TOKENIZER.unk_token_id, 5, 2, 0]])
    [attention] = word_attention(model, TOKENIZER, one_image(IMAGES, 1), sequences)
    assert attention.words == [TOKENIZER.decode(5)] == TOKENIZER.decode(sequences[0], skip_special_tokens=True).split()
    assert attention.weights.shape == (1, 3)


@each_row("implementation", ["sdpa", "eager"])
def test_the_model_is_given_back_as_it_was(implementation):
    model = tiny_captioner(attn_implementation=implementation).train()
    sequences = torch.tensor([[1, 4, 5, 2]])
    image = one_image(IMAGES, 0)
    [first], [second] = (word_attention(model, TOKENIZER, image, sequences) for _ in range(2))
    numpy.testing.assert_array_equal(first.weights, second.weights)  # no dropout
    assert model.training
    assert model.config._attn_implementation == implementation
    assert not any(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(ValueError, match="visual_features"):
        word_attention(model, TOKENIZER, {**image, "visual_features": torch.zeros(1, 5, 3)}, sequences)
    assert model.training
    assert model.config._attn_implementation == implementation


def test_a_missing_layer_is_named():
    with pytest.raises(ValueError, match="layer 2"):
        word_attention(tiny_captioner(), TOKENIZER, one_image(IMAGES, 0), torch.tensor([[1, 4, 2]]), layer=2)


def test_words_are_found_by_name_and_by_position():
    attention = WordAttention(["a", "red", "a"], numpy.eye(3, dtype=numpy.float32))
    assert attention.position("a") == 0
    assert attention.position(-1) == 2
    numpy.testing.assert_array_equal(attention.of("red"), [0, 1, 0])
    for word in ("blue", 3, -4):
        with pytest.raises(ValueError, match=repr(word)):
            attention.of(word)
