"""Ensembles of captioners, against loops over their log-probabilities."""

import pytest
import torch

from hf_ngsan import EnsembleForConditionalGeneration
from tests.models import tiny
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.models.tiny import one_image, random_images
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

LENGTHS = [6, 3, 4]


@pytest.fixture(scope="module")
def members():
    """Three architectures of unequal sizes."""
    captioners = [
        tiny.tiny_captioner(),
        rstnet.tiny_captioner(hidden_size=16),
        spatial_captioner.tiny_captioner(hidden_size=24, decoder_layers=2),
    ]
    for captioner in captioners:
        captioner.generation_config.max_new_tokens = 6
    return captioners


@pytest.fixture(scope="module")
def images():
    return random_images(LENGTHS)


@torch.no_grad()
def mean_log_probabilities(members, image, words: list[int]) -> torch.Tensor:
    """Log-probabilities of the word after these, `(vocab_size,)`."""
    arguments = {**image, "decoder_input_ids": torch.tensor([words])}
    return sum(member(**arguments).logits[0, -1].log_softmax(-1) for member in members) / len(members)


def test_greedy_captions_are_those_of_the_mean(members, images):
    options = {"num_beams": 1, "min_new_tokens": 4}
    sequences = EnsembleForConditionalGeneration(members).generate(**images, **options)
    actual = set()
    for row, sequence in enumerate(sequences.tolist()):
        words = [1]
        while len(words) < 7 and words[-1] != 2:
            scores = mean_log_probabilities(members, one_image(images, row), words)
            scores[2] -= 100 if len(words) <= 4 else 0
            words.append(int(scores.argmax()))
        assert [word for word in sequence if word] == words
        actual.add(tuple(words))
    assert len(actual) > 1, "otherwise the test would see little"


@each_row("options", [{}, {"use_cache": False}])
def test_beams_have_the_sum_of_the_means(options, members, images):
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0, "output_scores": True, **options}
    output = EnsembleForConditionalGeneration(members).generate(**images, return_dict_in_generate=True, **options)
    for row, sequence in enumerate(output.sequences.tolist()):
        words = [word for word in sequence if word]
        words = words[: words.index(2) + 1] if 2 in words else words
        image = one_image(images, row // 2)
        expected = sum(
            mean_log_probabilities(members, image, words[:end])[words[end]].item() for end in range(1, len(words))
        )
        assert output.sequences_scores[row].item() == pytest.approx(expected, abs=1e-4)


def test_images_and_beams_that_compete_are_those_of_a_captioner_alone():
    """An ensemble of a captioner with itself gives its captions, from features or pixels, by position or name."""
    photos = pixel_processor()(images=PHOTOS[:2])["pixel_values"]
    grids = rstnet.random_grids(2)["visual_features"]
    for captioner, inputs in ((pixel_captioner(), photos), (rstnet.tiny_captioner(release=True, seed=5), grids)):
        ensemble = EnsembleForConditionalGeneration([captioner, captioner])
        expected = captioner.generate(inputs, num_beams=3, max_new_tokens=6)
        assert ensemble.generate(inputs, num_beams=3, max_new_tokens=6).tolist() == expected.tolist()


def test_members_that_do_not_go_together_are_named(members):
    for field, value in (("vocab_size", 25), ("visual_feature_size", 5)):
        with pytest.raises(ValueError, match=field):
            EnsembleForConditionalGeneration([members[0], tiny.tiny_captioner(**{field: value})])
