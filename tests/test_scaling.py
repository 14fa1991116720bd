"""Models as callables over batches of columns, without Ray and with datasets."""

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, concatenate_datasets

from hf_ngsan.data import load_data
from hf_ngsan.guests.dual_encoders import dual_encoder_of
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.scaling import Captioner, Embedder, ImageEncoder
from hf_ngsan.tasks.retrieval_search import embed_pixels
from tests.data.images.photos import encoded
from tests.models.mhsan.tiny import VISION, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor

BROKEN = 2
"""Position of the photo that cannot be read."""
READ = [place for place in range(len(PHOTOS)) if place != BROKEN]


@pytest.fixture
def batch():
    contents = [encoded(photo) for photo in PHOTOS]
    contents[BROKEN] = b"no image"
    return {"bytes": np.array(contents, dtype=object), "path": np.array([f"{n}.png" for n in range(len(PHOTOS))])}


def test_captions_are_those_of_the_pipeline(batch, captioner):
    table = Captioner(str(captioner), num_beams=2)(batch)
    answers = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())(
        [PHOTOS[place] for place in READ], num_beams=2, return_scores=True
    )
    actual = table.to_pydict()
    assert table.column_names == ["path", "caption", "score", "error"]
    assert [actual["caption"][place] for place in READ] == [answer[0]["generated_text"] for answer in answers]
    assert [actual["score"][row] for row in READ] == pytest.approx([item[0]["score"] for item in answers], abs=1e-5)
    assert actual["caption"][BROKEN] is actual["score"][BROKEN] is None
    assert [place for place, error in enumerate(actual["error"]) if error] == [BROKEN]


def test_embeddings_are_those_of_the_model(batch, dual_encoder):
    encoder = dual_encoder_of(tiny_model(vision_config=VISION), tiny_processor(pixels=True))
    expected = embed_pixels(encoder, encoder.image_inputs([PHOTOS[place] for place in READ]))
    actual = Embedder(str(dual_encoder))(batch)
    assert actual.schema.field("embedding").type == pa.list_(pa.float32(), encoder.dimension)
    embeddings = actual["embedding"].to_pylist()
    assert embeddings[BROKEN] is None
    assert np.allclose([embeddings[place] for place in READ], expected, atol=1e-6)


def test_encoded_images_are_features_that_training_reads(batch, vision, tmp_path):
    encode = ImageEncoder(str(vision))
    batch["captions"] = np.array([None] * len(PHOTOS), dtype=object)
    batch["captions"][:] = [["a photo"]] * len(PHOTOS)
    halves = [encode({name: values[part] for name, values in batch.items()}) for part in (slice(2), slice(2, None))]
    rows = concatenate_datasets([Dataset(table) for table in halves])
    assert rows["error"][BROKEN] and rows["visual_features"][BROKEN] is None
    full = encode(batch)
    assert Dataset(full).to_list() == rows.to_list()
    readable = rows.filter(lambda row: row["error"] is None).remove_columns(["error", "path"])
    readable.add_column("split", ["train"] * len(READ)).save_to_disk(tmp_path / "features")
    read = load_data(f"features:{tmp_path}/features", "train")
    assert [row["visual_features"].shape for row in read] == [(4, 8)] * len(READ)
    assert len(set(read["image_id"])) == len(READ)
