"""CLIPScore and RefCLIPScore (Hessel et al. 2021): similarity of captions and images, by a dual encoder.

```python
from hf_ngsan.guests import dual_encoder_of
from hf_ngsan.metrics import ClipScore

metric = ClipScore(dual_encoder_of(model, processor))
metric.compute(predictions=["a dog runs"], images=["photo.jpg"])  # {"clip_score": 0.74}
```

With image v, caption c and references R, all embeddings of length 1:

```text
CLIPScore = w * max(cos(c, v), 0),    RefCLIPScore = harmonic mean of CLIPScore and max(cos(c, r), 0 for r in R)
```
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

PROMPT = "A photo depicts"  # before every text, as in the paper's code
WEIGHT = 2.5
"""w of eq. 1: with this factor, most scores of ViT-B/32 are between 0 and 1."""


class ClipScore:
    """Computes the mean CLIPScore of captions and, with references, their mean RefCLIPScore.

    Args:
        encoder: a [`~hf_ngsan.guests.dual_encoders.DualEncoder`] that reads images.
        prompt: text before each caption and reference; `""` for none.
        weight: w in eq. 1 of Hessel et al. (2021).
        truncate: whether captions that are too long for the text encoder are truncated; otherwise they are an error.
        batch_size: number of images or texts per batch.
    """

    def __init__(
        self,
        encoder: Any,
        *,
        prompt: str = PROMPT,
        weight: float = WEIGHT,
        truncate: bool = False,
        batch_size: int = 64,
    ) -> None:
        self.encoder, self.prompt, self.weight = encoder, prompt, weight
        self.truncate, self.batch_size = truncate, batch_size
        if encoder.image_processor is None:
            raise ValueError("CLIPScore needs a dual encoder that reads images; this one has no vision encoder.")

    def compute(
        self,
        *,
        predictions: Sequence[str],
        images: Sequence[Any],
        references: Sequence[Sequence[str]] | None = None,
        per_image: bool = False,
    ) -> dict[str, Any]:
        """Scores captions.

        Args:
            predictions: a caption for each image.
            images: anything that [`~hf_ngsan.models.image_processing_captioning.load_image`] reads; read in batches.
            references: captions of each image, at least one.
            per_image: whether to also return the scores of each image, as lists under "per_image".

        Returns:
            `clip_score` and, with references, `ref_clip_score`; both from 0 to `weight` or 1.
        """
        numbers = [len(texts) for texts in references or ()]
        if not len(images) == len(predictions) == len(images if references is None else numbers) > 0 or 0 in numbers:
            problem = f"There are {len(predictions)} predictions and {len(images)} images"
            raise ValueError(f"{problem}; every image needs one, and also references if another image has some.")
        captions = self.embed_texts(predictions)
        batches = (images[start : start + self.batch_size] for start in range(0, len(images), self.batch_size))
        embedded_images = np.concatenate([self.embed_images(batch) for batch in batches])
        values = {"clip_score": self.weight * cosines(captions, embedded_images)}
        if references is not None:
            known = self.embed_texts([text for texts in references for text in texts])
            first = np.cumsum(numbers) - np.array(numbers)
            nearest = np.maximum.reduceat(cosines(np.repeat(captions, numbers, axis=0), known), first)
            both = values["clip_score"] + nearest
            product = 2 * values["clip_score"] * nearest
            values["ref_clip_score"] = np.divide(product, both, out=np.zeros_like(both), where=both > 0)
        scores: dict[str, Any] = {name: float(image_scores.mean()) for name, image_scores in values.items()}
        if per_image:
            scores["per_image"] = {name: image_scores.tolist() for name, image_scores in values.items()}
        return scores

    @torch.inference_mode()
    def embed_images(self, images: Sequence[Any]) -> np.ndarray:
        inputs = self.encoder.image_inputs(list(images))
        return self.encoder.embed_images(inputs).cpu().double().numpy()  # MPS has no float64

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        texts = [f"{self.prompt} {text}".strip() for text in texts]
        lengths = [] if self.truncate else self.encoder.lengths(texts)
        for text, length in zip(texts, lengths, strict=False):
            if length > self.encoder.longest_text:
                problem = f"{text!r:.80} has {length} tokens, and the text encoder accepts {self.encoder.longest_text}"
                raise ValueError(f"{problem}; shorten it, or truncate captions: truncate=True (--truncate-captions).")
        batches = (texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size))
        embeddings = [self.encoder.embed_texts(self.encoder.text_inputs(batch)) for batch in batches]
        return torch.cat(embeddings).cpu().double().numpy()


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns max(cos, 0) of rows `(rows, dimension)` of length 1; float64 `(rows,)`."""
    return np.maximum((first * second).sum(-1), 0.0)
