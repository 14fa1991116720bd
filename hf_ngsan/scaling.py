"""Models as callables over batches of columns, for `map_batches` of Ray Data or `map(batched=True)` of datasets.

```python
photos = ray.data.read_binary_files("s3://bucket/photos", include_paths=True)
photos.map_batches(Captioner, batch_size=64, concurrency=8, num_gpus=1).write_parquet("s3://bucket/captions")
```

Each object loads its model once, in its constructor. The image column has anything that
[`~hf_ngsan.models.image_processing_captioning.load_image`] reads: bytes of files, paths, arrays or PIL images. The
result has all columns but this one. The row of an unreadable image has the reason in the column `error`, and nulls.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch

from .data.contract import caption_features
from .extraction.extract import encoded
from .extraction.vision import load_vision
from .guests.dual_encoders import dual_encoder_of
from .io.messages import one_sentence
from .io.packaged import CAPTIONER, DUAL_ENCODER
from .loading.models import load_model
from .loading.pipelines import CaptioningPipeline
from .models.images import load_image
from .tasks.captioning_generation import load_captioners
from .tasks.retrieval_search import embed_pixels


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class ImageMapper(ABC):
    """Base class: reads the images in a column and adds the columns of the model, with these Arrow types."""

    def __init__(self, column: str, types: Mapping[str, pa.DataType]) -> None:
        self.column, self.types = column, types

    def __call__(self, batch: Mapping[str, Any] | pa.Table) -> pa.Table:
        columns = batch.to_pydict() if isinstance(batch, pa.Table) else {name: list(batch[name]) for name in batch}
        images: list[Any] = []
        errors: list[str | None] = []
        for source in columns.pop(self.column):
            try:
                images.append(load_image(source))
                errors.append(None)
            except Exception as error:  # libraries raise many exceptions for unreadable images
                errors.append(one_sentence(error))
        added = self.process_images(images) if images else {}
        for name, kind in self.types.items():
            values = iter(added.get(name, ()))
            columns[name] = pa.array([None if error else next(values) for error in errors], kind)
        return pa.table({**columns, "error": pa.array(errors, pa.string())})

    @abstractmethod
    def process_images(self, images: list) -> dict[str, list]:
        """Returns the columns for PIL images."""


class ImageEncoder(ImageMapper):
    """Adds `visual_features (N, D)`, `visual_boxes (N, 4)`, `width` and `height`: rows of the feature contract.

    If there is a column `path` but no `image_id`, ids are 63 bits of the SHA-256 of the paths, and so do not depend on
    the number of workers. `Dataset.from_parquet(files).save_to_disk(folder)` makes the Parquet files a dataset that
    `features:` reads.

    Args:
        backbone, fields: arguments of [`~hf_ngsan.extraction.load_vision`].
        column: name of the image column.
        dtype: data type of the features, `"float16"` or `"float32"`.
    """

    def __init__(self, backbone: str, column: str = "bytes", dtype: str = "float16", **fields: Any) -> None:
        self.dtype = dtype
        self.model: Any
        self.model, self.image_processor = load_vision(backbone, **fields)
        self.model.to(device())
        schema = caption_features(self.model.config.feature_size, dtype=dtype, size=True).arrow_schema
        names = ("visual_features", "visual_boxes", "width", "height")
        super().__init__(column, {name: schema.field(name).type for name in names})

    def __call__(self, batch: Mapping[str, Any] | pa.Table) -> pa.Table:
        table = super().__call__(batch)
        if "path" in table.column_names and "image_id" not in table.column_names:
            digests = [hashlib.sha256(path.encode()).digest() for path in table["path"].to_pylist()]
            ids = [int.from_bytes(digest[:8], "big") >> 1 for digest in digests]
            table = table.append_column("image_id", pa.array(ids, pa.int64()))
        return table

    def process_images(self, images: list) -> dict[str, list]:
        inputs = dict(self.image_processor(images=images, return_tensors="pt"))
        names = [f"image {number} of the batch" for number in range(len(images))]
        rows = encoded(self.model, inputs, self.dtype, names)
        return {
            "visual_features": [list(row["visual_features"]) for row in rows],
            "visual_boxes": [list(row["visual_boxes"]) for row in rows],
            "width": [image.width for image in images],
            "height": [image.height for image in images],
        }


class Captioner(ImageMapper):
    """Adds `caption` and `score`, the mean log-probability of its words.

    Args:
        model: folder or name of a captioner with a vision encoder.
        column: name of the image column.
        generate_arguments: arguments of `generate()`, such as `num_beams=3`.
    """

    def __init__(self, model: str = CAPTIONER, column: str = "bytes", **generate_arguments: Any) -> None:
        super().__init__(column, {"caption": pa.string(), "score": pa.float32()})
        captioner: Any
        captioner, processor = load_captioners([model])
        self.pipeline = CaptioningPipeline(model=captioner.to(device()), processor=processor)
        self.generate_arguments = generate_arguments

    def process_images(self, images: list) -> dict[str, list]:
        answers = self.pipeline(images, batch_size=len(images), return_scores=True, **self.generate_arguments)
        best = [answer[0] for answer in answers]
        return {"caption": [answer["generated_text"] for answer in best], "score": [answer["score"] for answer in best]}


class Embedder(ImageMapper):
    """Adds `embedding (D,)`, float32; searches compare embeddings by inner products.

    Args:
        model: folder or name of a dual encoder with a vision encoder.
        column: name of the image column.
    """

    def __init__(self, model: str = DUAL_ENCODER, column: str = "bytes") -> None:
        dual_encoder: Any
        dual_encoder, processor = load_model(model, "retrieval")
        self.encoder = dual_encoder_of(dual_encoder.to(device()), processor)
        super().__init__(column, {"embedding": pa.list_(pa.float32(), self.encoder.dimension)})

    def process_images(self, images: list) -> dict[str, list]:
        return {"embedding": list(embed_pixels(self.encoder, self.encoder.image_inputs(images)))}
