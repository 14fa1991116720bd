"""The image-to-text pipeline for captioners of transformers."""

import pytest
import torch
from transformers import pipeline

import hf_ngsan  # noqa: F401
from hf_ngsan.guests import guest_of
from hf_ngsan.loading.models import load_model
from tests.guests.tiny import CAPTIONERS, photos
from tests.tables import each_row

OFTEN = ("blip", "git", "llava", "vit_gpt2")
"""One captioner of each kind: words next to the image, after it, around it, and in a separate decoder."""
every_guest = pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in sorted(CAPTIONERS)]
)


@every_guest
@each_row("arguments", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_captions_are_those_of_generate(guest, name, arguments):
    folder = guest(name)
    model, processor = load_model(folder, "captioning")
    guest, expected = guest_of(model, processor), []
    for image in photos(3):
        inputs = guest.inputs(image)
        with torch.inference_mode():
            expected += guest.decode(model.generate(**inputs, max_new_tokens=6, **arguments), inputs)
    actual = pipeline("image-to-text", model=str(folder))(photos(3), max_new_tokens=6, **arguments)
    assert [answer["generated_text"] for answers in actual for answer in answers] == expected


@every_guest
def test_a_batch_is_captioned_as_one_by_one(guest, name):
    captioner = pipeline("image-to-text", model=str(guest(name)))
    images = photos(3)
    alone = [captioner(image, max_new_tokens=6)[0]["generated_text"] for image in images]
    together = captioner(images, max_new_tokens=6, batch_size=3)
    assert [answers[0]["generated_text"] for answers in together] == alone


@every_guest
def test_scores_are_those_of_beam_search(guest, name):
    folder = guest(name)
    model, processor = load_model(folder, "captioning")
    guest = guest_of(model, processor)
    inputs = guest.inputs(photos(1)[0])
    search = {"max_new_tokens": 5, "num_beams": 3, "num_return_sequences": 2}
    with torch.inference_mode():
        actual = model.generate(**inputs, **search, output_scores=True, return_dict_in_generate=True)
    [answers] = pipeline("image-to-text", model=str(folder))(photos(1), return_scores=True, **search)
    assert [answer["score"] for answer in answers] == pytest.approx(actual.sequences_scores.tolist(), abs=1e-4)
