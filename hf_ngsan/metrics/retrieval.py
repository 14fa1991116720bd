"""Recall@K and median rank of image-text retrieval; ranks are computed by counting instead of sorting rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

RECALL_AT = (1, 5, 10)


def retrieval_metrics(
    similarity: np.ndarray | torch.Tensor,
    caption_images: Sequence[int] | np.ndarray | torch.Tensor | None = None,
    folds: int = 1,
    recall_at: Sequence[int] = RECALL_AT,
) -> dict[str, float]:
    """Measures recall@K and median rank in both directions, as Karpathy and Fei-Fei (2015) report them.

    Image to text: a query image counts as found if any of its captions is among the first K. Text to image: every
    caption is a query with one right image.

    Args:
        similarity: array or tensor `(images, captions)`, larger is more similar.
        caption_images: `(captions,)`, the image of each caption; by default, each image has the same number of
            captions, next to each other and in the order of images.
        folds: number of equal parts (consecutive images with their captions) to average over. For the 5,000 images of
            the COCO test split, 1 is the 5K protocol and 5 the 1K protocol.
        recall_at: the values of K.

    Returns:
        `dict`: `image_to_text_r1`, `..._r5`, `..._r10` and `text_to_image_r1`, ... in percent,
        `image_to_text_median_rank` and `text_to_image_median_rank` (1 is best), and `rsum`, the sum of all recalls.

    Raises:
        ValueError: shapes do not match, an image has no caption, a value is NaN, or the images cannot be divided into
            `folds` equal parts.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.metrics.retrieval import retrieval_metrics
    >>> similarity = np.array([[0.9, 0.2, 0.3, 0.5], [0.4, 0.6, 0.7, 0.1]])  # two images with two captions each
    >>> metrics = retrieval_metrics(similarity, recall_at=(1, 2))
    >>> metrics["image_to_text_r1"], metrics["text_to_image_r1"]
    (100.0, 50.0)

    ```
    """
    similarity, caption_images = check_similarity(similarity, caption_images)
    if folds < 1 or len(similarity) % folds:
        raise ValueError(f"{len(similarity)} images cannot be divided into {folds} equal folds.")
    size = len(similarity) // folds
    results = []
    for fold in range(folds):
        captions = np.flatnonzero(caption_images // size == fold)
        part = similarity[fold * size : (fold + 1) * size]
        part = part if folds == 1 else part[:, captions]
        image_ranks, text_ranks = retrieval_ranks(part, caption_images[captions] - fold * size)
        result: dict[str, float] = {}
        for direction, ranks in (("image_to_text", image_ranks), ("text_to_image", text_ranks)):
            result |= {f"{direction}_r{k}": float(100.0 * np.mean(ranks <= k)) for k in recall_at}
        result["rsum"] = sum(result.values())
        result["image_to_text_median_rank"] = float(np.median(image_ranks))
        result["text_to_image_median_rank"] = float(np.median(text_ranks))
        results.append(result)
    return {name: float(np.mean([result[name] for result in results])) for name in results[0]}


def retrieval_ranks(
    similarity: np.ndarray | torch.Tensor, caption_images: Sequence[int] | np.ndarray | torch.Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rank of the right answer to each query, counted from 1; equal similarities keep their order.

    Arguments and errors are those of [`retrieval_metrics`].

    Returns:
        `(image_to_text, text_to_image)`: int64 `(images,)` and `(captions,)`. An image's rank is its best caption's.
    """
    similarity, caption_images = check_similarity(similarity, caption_images)
    by_image = np.argsort(caption_images, kind="stable")
    ends = np.cumsum(np.bincount(caption_images, minlength=len(similarity))).tolist()
    matching = similarity[caption_images, np.arange(len(caption_images))][by_image]
    in_order = bool((np.diff(by_image) == 1).all())

    image_ranks = np.empty(len(similarity), dtype=np.int64)
    # Number of images before the right one of each caption, with captions in image order. Sums of up to 255 rows are
    # kept in 8 bits, which is eight times faster than 64 bits.
    before, before_in_block = np.zeros(len(matching), dtype=np.int64), np.zeros(len(matching), dtype=np.uint8)
    precedes = np.empty(len(matching), dtype=bool)
    start = 0
    for image, end in enumerate(ends):
        row = similarity[image]
        if np.isnan(np.dot(row, row)):
            column = np.flatnonzero(np.isnan(row))[0]
            raise ValueError(f"similarity has NaN at image {image}, caption {column}.")
        own_captions = by_image[start:end]
        best = own_captions[row[own_captions].argmax()]
        not_worse = np.flatnonzero(row >= row[best])
        image_ranks[image] = 1 + np.count_nonzero((not_worse < best) | (row[not_worse] > row[best]))

        # In a tie, this image comes first only for captions of later images.
        row = row if in_order else row[by_image]
        np.greater(row[:end], matching[:end], out=precedes[:end])
        np.greater_equal(row[end:], matching[end:], out=precedes[end:])
        before_in_block += precedes.view(np.uint8)
        if image % 255 == 254:
            before += before_in_block
            before_in_block[:] = 0
        start = end
    text_ranks = np.empty(len(matching), dtype=np.int64)
    text_ranks[by_image] = 1 + before + before_in_block
    return image_ranks, text_ranks


def check_similarity(
    similarity: np.ndarray | torch.Tensor, caption_images: Sequence[int] | np.ndarray | torch.Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as arrays, with the default for `caption_images`; raises the errors of [`retrieval_metrics`]."""
    similarity = np.ascontiguousarray(to_numpy(similarity))
    if similarity.dtype not in (np.float32, np.float64):
        similarity = similarity.astype(np.float32 if similarity.dtype == np.float16 else np.float64)
    images, captions = similarity.shape
    if caption_images is None:
        caption_images = np.repeat(np.arange(images), captions // images)
    caption_images = to_numpy(caption_images).astype(np.int64)
    if caption_images.shape != (captions,) or caption_images.min() < 0 or caption_images.max() >= images:
        raise ValueError(f"caption_images must have {captions} indices of images, from 0 to {images - 1}.")
    without = np.flatnonzero(np.bincount(caption_images, minlength=images) == 0)
    if len(without):
        raise ValueError(f"Image {without[0]} has no caption; leave images without captions out.")
    return similarity, caption_images


def to_numpy(values: Sequence[int] | np.ndarray | torch.Tensor) -> np.ndarray:
    """Converts a tensor to an array; bfloat16, which NumPy lacks, becomes float32."""
    detach = getattr(values, "detach", None)
    if detach is None:
        return np.asarray(values)
    tensor = detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
