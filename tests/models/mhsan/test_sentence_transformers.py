"""A saved dual encoder can be loaded by sentence-transformers, without additional code or files."""

import numpy as np
import pytest
import torch

from hf_ngsan.loading.models import save_model
from tests.models.mhsan.tiny import VISION, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS

TEXTS = ["red ball", "a blue box", "a large green ring"]


@pytest.mark.slow
def test_sentence_transformers_encodes_images_and_texts_as_we_do(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model, processor = tiny_model(vision_config=VISION), tiny_processor(pixels=True)
    save_model(model, processor, tmp_path)
    with torch.no_grad():
        output = model(**processor(images=PHOTOS, text=TEXTS))
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path))
    texts, images = loaded.encode(TEXTS), loaded.encode(PHOTOS)
    np.testing.assert_allclose(texts, output.text_embeds.numpy(), atol=1e-6)
    np.testing.assert_allclose(images, output.image_embeds.numpy(), atol=1e-6)
    similarities = output.image_embeds @ output.text_embeds.T
    torch.testing.assert_close(loaded.similarity(images, texts), similarities, atol=1e-5, rtol=1e-5)
    assert loaded.get_embedding_dimension() == model.config.projection_dim
    shortened = loaded.encode(TEXTS, truncate_dim=5)
    np.testing.assert_allclose(shortened, texts[:, :5], atol=1e-6)
    assert loaded.encode(TEXTS, precision="int8").dtype == np.int8
