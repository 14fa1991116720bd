"""The caption decoder, its loss, and several captions per image."""

import math

import pytest
import torch

from hf_ngsan.models.captioning import WordDecoder
from tests.models.loops import decode
from tests.models.test_attention import randomize
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_config
from tests.tables import each_row

LENGTHS = [5, 3, 4]
NUM_WORDS = tiny_config().vocab_size


def random_words(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    """Captions `(rows, length)` after the start token."""
    words = torch.randint(4, NUM_WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))
    words[:, 0] = 1
    return words


@torch.no_grad()
@each_row("implementation", ["eager", "sdpa"])
def test_decoder_is_a_vanilla_transformer(implementation):
    config = tiny_config(hidden_size=8, num_attention_heads=2)
    config._attn_implementation = implementation
    decoder = randomize(WordDecoder(config)).eval()
    words, regions = random_words(2, 5), torch.randn(2, 4, 8)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    computed = decoder(words, encoder_hidden_states=regions, encoder_attention_mask=mask).last_hidden_state
    for row, count in enumerate([4, 3]):
        expected = decode(decoder, words[row].tolist(), list(regions[row, :count]))[0]
        torch.testing.assert_close(computed[row], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@each_row("side", ["left", "right"])
def test_padding_of_words_changes_nothing_on_either_side(side):
    model, images, words = tiny_captioner(), random_images(LENGTHS), random_words(3, 4)
    expected = model(**images, decoder_input_ids=words).logits
    padding, ones = torch.zeros(3, 2, dtype=torch.long), torch.ones_like(words)
    order = slice(None, None, -1) if side == "left" else slice(None)
    padded, mask = (torch.cat(parts[order], dim=1) for parts in ([words, padding], [ones, padding]))
    logits = model(**images, decoder_input_ids=padded, decoder_attention_mask=mask).logits
    real = slice(2, None) if side == "left" else slice(None, 4)
    torch.testing.assert_close(logits[:, real], expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_loss_is_the_cross_entropy_of_each_word_given_those_before_it():
    model, images = tiny_captioner(), random_images(LENGTHS)
    labels = torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100], [9, 10, 2, -100]])
    losses = []
    for row, caption in enumerate(labels):
        words = [word for word in caption.tolist() if word != -100]
        for position, word in enumerate(words):
            prefix = torch.tensor([[1, *words[:position]]])
            scores = model(**one_image(images, row), decoder_input_ids=prefix).logits[0, -1].tolist()
            losses.append(math.log(sum(math.exp(score) for score in scores)) - scores[word])
    outputs = model(**images, labels=labels)
    assert outputs.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert model(**images, labels=labels, num_items_in_batch=100).loss.item() == pytest.approx(
        sum(losses) / 100, rel=1e-4
    )
    assert outputs.logits.shape == (3, 4, NUM_WORDS)


@pytest.fixture(params=["eager", "sdpa"])
def several_captions(request):
    """A captioner, two captions per image, and the same batch with every image repeated."""
    model = tiny_captioner(attn_implementation=request.param)
    images = random_images(LENGTHS)
    labels = random_words(6, 5)[:, 1:]
    labels[1, 2:] = -100
    repeated = {name: tensor.repeat_interleave(2, dim=0) for name, tensor in images.items()}
    return model, {**images, "labels": labels}, {**repeated, "labels": labels}


@torch.no_grad()
def test_several_captions_of_an_image_are_the_image_repeated(several_captions):
    model, shared, repeated = several_captions
    options = {"output_attentions": True, "output_hidden_states": True}
    together, apart = model(**shared, **options), model(**repeated, **options)
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(together.loss, apart.loss, **close)
    torch.testing.assert_close(together.logits, apart.logits, **close)
    assert together.encoder_last_hidden_state.shape[0] == 3, "an image is encoded once"
    for name in ("decoder_hidden_states", "decoder_attentions", "cross_attentions"):
        assert len(together[name]) == len(apart[name])
        for ours, theirs in zip(together[name], apart[name], strict=True):
            torch.testing.assert_close(ours, theirs, **close)
