"""Heads of a dual encoder: their contributions sum to the similarity, with heads on either side."""

import numpy as np
import pytest
import torch

from hf_ngsan.visualization import explain_match, plot_match, save_figure
from tests.models.mhsan.tiny import VISION, random_features, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.tables import each_row

TEXT = "a red ball left of a ring"


@each_row(("image_heads", "text_heads"), [(3, 2), (3, 0), (0, 2), (0, 0)])
def test_shares_add_up_to_the_similarity(image_heads, text_heads, tmp_path):
    model = tiny_model(num_image_heads=image_heads, num_text_heads=text_heads, vision_config=VISION)
    processor = tiny_processor(pixels=True)
    match = explain_match(model, processor.tokenizer, processor(images=PHOTOS[0], text=TEXT))
    with torch.no_grad():
        actual = model(**processor(images=PHOTOS[0], text=TEXT))
    assert match.similarity == pytest.approx(float(actual.image_embeds[0] @ actual.text_embeds[0]), abs=1e-6)
    assert match.shares.sum() == pytest.approx(match.similarity, abs=1e-5)
    assert match.shares.shape == (image_heads + 1, text_heads + 1)
    assert match.words == TEXT.split()
    assert match.image_weights.shape == ((3, 12) if image_heads else (0, 0))
    assert match.image_weights.sum(-1) == pytest.approx(np.ones(image_heads), abs=1e-5)
    maps = np.random.default_rng(0).random((image_heads, PHOTOS[0].height, PHOTOS[0].width))
    if image_heads or text_heads:
        figure = plot_match(PHOTOS[0].convert("RGB"), maps, match)
        titles = [panel.get_title() for panel in figure.axes if panel.get_title()]
        assert titles == [f"head {head + 1}: {match.shares[head].sum():+.3f}" for head in range(image_heads)]
        names = [label.get_text() for label in figure.axes[-1].get_yticklabels()] if text_heads else []
        assert names == [f"head {head + 1}: {match.shares[:, head].sum():+.3f}" for head in range(text_heads)]
        save_figure(figure, tmp_path / "match.png")
    else:
        with pytest.raises(ValueError):
            plot_match(PHOTOS[0].convert("RGB"), maps, match)


def test_padding_has_no_share():
    model, processor = tiny_model(), tiny_processor()
    words = dict(processor(text=TEXT))
    features = random_features([4])
    longer = {name: torch.nn.functional.pad(it, (0, 0, 0, 3)[-2 * (it.ndim - 1) :]) for name, it in features.items()}
    padded = {name: torch.nn.functional.pad(value, (0, 2)) for name, value in words.items()}
    inputs = (longer | padded, features | words)
    match, expected = (explain_match(model, processor.tokenizer, each) for each in inputs)
    assert match.words == expected.words and match.image_weights.shape == (3, 4)
    assert match.shares == pytest.approx(expected.shares, abs=1e-5)


def test_a_head_that_is_silenced_loses_its_share():
    model, processor = tiny_model(), tiny_processor()
    size = model.config.hidden_size
    with torch.no_grad():
        model.image_projection.weight[:, size : 2 * size] = 0
    match = explain_match(model, processor.tokenizer, {**random_features([5]), **processor(text=TEXT)})
    assert match.shares[1] == pytest.approx(np.zeros(3), abs=1e-6)
    assert np.abs(match.shares[[0, 2]]).min() > 1e-4


def test_one_image_is_explained_at_a_time():
    model, processor = tiny_model(), tiny_processor()
    with pytest.raises(ValueError, match="one"):
        explain_match(model, processor.tokenizer, {**random_features([5, 4]), **processor(text=TEXT)})
