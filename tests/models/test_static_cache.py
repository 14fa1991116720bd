"""A static cache with `torch.compile` gives the captions of the default."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from tests.models import tiny
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.models.tiny import random_images

CAPTIONERS = {"ngsan": tiny, "rstnet": rstnet, "spatial_captioner": spatial_captioner}
BACKEND = "eager"
"""Traces the graphs; the backend that torch takes by itself needs a compiler of C++ on a CPU."""


@pytest.fixture
def no_graphs():
    """Forgets what was compiled, before and after."""
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()
    counters.clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTIONERS)
def test_the_decoder_that_generate_compiles(name, no_graphs):
    """As it does by itself on a GPU."""
    model, images = CAPTIONERS[name].tiny_captioner(), random_images([6, 3, 4])
    expected = model.generate(**images, min_new_tokens=3)
    settings = CompileConfig(backend=BACKEND, mode=None)
    settings._compile_all_devices = True
    found = model.generate(**images, min_new_tokens=3, cache_implementation="static", compile_config=settings)
    assert torch.equal(found, expected)
    assert counters["stats"]["unique_graphs"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTIONERS)
def test_a_compiled_model_with_beams(name, no_graphs):
    model, images = CAPTIONERS[name].tiny_captioner(), random_images([6, 3, 4])
    expected = model.generate(**images, num_beams=3)
    model.forward = torch.compile(model.forward, backend=BACKEND)
    assert torch.equal(model.generate(**images, num_beams=3, cache_implementation="static"), expected)
    assert counters["stats"]["unique_graphs"] > 0
