"""Recall@K, median rank and mAP@R of image-text retrieval; ranks by counting instead of sorting.

The rank of an item is one more than the number of items before it. Counting them takes one comparison per item; the
usual argsort of every row sorts all of them to look up one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Ties = Literal["index", "pessimistic", "optimistic"]
RECALL_AT = (1, 5, 10)
TIES = ("index", "pessimistic", "optimistic")


def retrieval_metrics(
    similarity: np.ndarray | torch.Tensor,
    caption_images: Sequence[int] | np.ndarray | torch.Tensor | None = None,
    folds: int = 1,
    recall_at: Sequence[int] = RECALL_AT,
    ties: Ties = "index",
) -> dict[str, float]:
    """Measures recall@K and median rank in both directions.

    Image to text: a query image has found its text if any of its captions is among the first K. Text to image: every
    caption is a query with one right image.

    Args:
        similarity: array or tensor `(images, captions)`, larger is more similar.
        caption_images: `(captions,)`, the image of each caption; by default each image has the same number of captions,
            next to each other and in the order of images.
        folds: number of parts of equal size, each a run of images with their captions, to average over. On the 5,000
            images of the COCO test split 1 is the 5K protocol and 5 the 1K protocol.
        recall_at: the values of K.
        ties: see `retrieval_ranks`.

    Returns:
        `dict`: `image_to_text_r1`, `..._r5`, `..._r10` and `text_to_image_r1`, ... in percent,
        `image_to_text_median_rank` and `text_to_image_median_rank` (1 is best), and `rsum`, the sum of all recalls.

    Raises:
        ValueError: shapes do not fit, an image has no caption, a value is not a number, or the images cannot be divided
            into `folds` equal parts.

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
    images = len(similarity)
    if not isinstance(folds, int) or folds < 1 or images % folds:
        raise ValueError(f"{images} images cannot be divided into {folds} equal folds.")
    size = images // folds
    results = []
    for fold in range(folds):
        captions = np.flatnonzero(caption_images // size == fold)
        columns = similarity[fold * size : (fold + 1) * size]
        if folds > 1:
            columns = np.ascontiguousarray(columns[:, captions])
        results.append(retrieval_metrics_of_fold(columns, caption_images[captions] - fold * size, recall_at, ties))
    return {name: float(np.mean([result[name] for result in results])) for name in results[0]}


def retrieval_metrics_of_fold(
    similarity: np.ndarray, caption_images: np.ndarray, recall_at: Sequence[int], ties: Ties
) -> dict[str, float]:
    image_ranks, text_ranks = retrieval_ranks(similarity, caption_images, ties)
    result: dict[str, float] = {}
    for direction, ranks in (("image_to_text", image_ranks), ("text_to_image", text_ranks)):
        for k in recall_at:
            result[f"{direction}_r{k}"] = float(100.0 * np.mean(ranks <= k))
    result["rsum"] = sum(result.values())
    result["image_to_text_median_rank"] = float(np.median(image_ranks))
    result["text_to_image_median_rank"] = float(np.median(text_ranks))
    return result


def retrieval_ranks(
    similarity: np.ndarray | torch.Tensor,
    caption_images: Sequence[int] | np.ndarray | torch.Tensor | None = None,
    ties: Ties = "index",
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rank of the right answer to each query; 1 is the first place.

    Args:
        similarity: array or tensor `(images, captions)`, larger is more similar.
        caption_images: `(captions,)`, the image of each caption; see `retrieval_metrics`.
        ties: the order of equal similarities. "index" is that of a stable descending sort: the smaller index first.
            "pessimistic" puts the right answer behind every wrong one equal to it, "optimistic" before. A model that
            finds everything equally similar has 100% recall with "optimistic" only.

    Returns:
        `(image_to_text, text_to_image)`: int64 `(images,)` and `(captions,)`. An image's rank is that of the best of
        its captions.

    Raises:
        ValueError: see `retrieval_metrics`.
    """
    similarity, caption_images = check_similarity(similarity, caption_images)
    if ties not in TIES:
        raise ValueError(f"ties must be one of {', '.join(TIES)}, not {ties!r}.")
    by_image = np.argsort(caption_images, kind="stable")
    ends = np.cumsum(np.bincount(caption_images, minlength=len(similarity))).tolist()
    own = similarity[caption_images, np.arange(len(caption_images))][by_image]
    in_order = bool((np.diff(by_image) == 1).all())

    image_ranks = np.empty(len(similarity), dtype=np.int64)
    text_counts = BetterImages(own, ties)
    start = 0
    for image, end in enumerate(ends):
        row = similarity[image]
        if np.isnan(np.dot(row, row)):
            column = np.flatnonzero(np.isnan(row))[0]
            raise ValueError(f"similarity holds a value that is not a number, at image {image}, caption {column}.")
        image_ranks[image] = image_rank(row, by_image[start:end], ties)
        text_counts.add(row if in_order else row[by_image], end)
        start = end
    text_ranks = np.empty(len(own), dtype=np.int64)
    text_ranks[by_image] = text_counts.ranks()
    return image_ranks, text_ranks


def image_rank(row: np.ndarray, own: np.ndarray, ties: Ties) -> int:
    """Returns the rank of the best of an image's own captions, from its similarity to all captions."""
    values = row[own]
    best = values.max()
    not_worse = np.count_nonzero(row >= best)
    own_best = own[values == best]
    if not_worse == len(own_best) or ties == "pessimistic":
        return int(1 + not_worse - len(own_best))
    before = np.count_nonzero(row > best)
    if ties == "index":
        before += np.count_nonzero(row[: own_best[0]] == best)
    return int(1 + before)


class BetterImages:
    """Counts, row by row, the images to which a caption is more similar than to its own.

    Comparisons are summed in 8 bits, which is many times faster than in the 64 bits of the counts. A caption can have
    255 better images after 255 rows, the largest number of 8 bits, so the sums are moved to the counts then: the 256th
    row could turn 255 into 0.

    Args:
        own: `(captions,)`, the similarity of each caption to its image; captions in the order of images.
        ties: see `retrieval_ranks`.

    Example: three images with a caption each. Image 2 is more similar to caption 1 than its own image is, and image 0
    is as similar and stands before it; so its own image is third.

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.metrics.retrieval import BetterImages
    >>> similarity = np.array([[0.9, 0.5, 0.2], [0.4, 0.5, 0.7], [0.1, 0.6, 0.3]])
    >>> counts = BetterImages(similarity.diagonal(), ties="index")
    >>> for image, row in enumerate(similarity):
    ...     counts.add(row, end=image + 1)
    >>> counts.ranks().tolist()
    [1, 3, 2]

    ```
    """

    def __init__(self, own: np.ndarray, ties: Ties) -> None:
        self.own = own
        self.ties = ties
        self.counts = np.zeros(len(own), dtype=np.int64)
        self.block = np.zeros(len(own), dtype=np.uint8)
        self.rows_in_block = 0
        self.better = np.empty(len(own), dtype=bool)

    def add(self, row: np.ndarray, end: int) -> None:
        """Adds the next image; captions from `end` on belong to later images."""
        # By index, this image precedes its equals among the answers to later images' captions.
        strict = {"index": end, "optimistic": len(row), "pessimistic": 0}[self.ties]
        np.greater(row[:strict], self.own[:strict], out=self.better[:strict])
        np.greater_equal(row[strict:], self.own[strict:], out=self.better[strict:])
        self.block += self.better.view(np.uint8)
        self.rows_in_block += 1
        if self.rows_in_block == 255:
            self.counts += self.block
            self.block[:] = 0
            self.rows_in_block = 0

    def ranks(self) -> np.ndarray:
        """Returns the rank of the right image for each caption, int64 `(captions,)`."""
        # With >= everywhere the right image has counted itself.
        return self.counts + self.block + (self.ties != "pessimistic")


def map_at_r(similarity: np.ndarray | torch.Tensor, positives: Mapping[int, Collection[int]]) -> float:
    """Returns the mean average precision at R (Musgrave et al. 2020), as in ECCV Caption (Chun et al. 2022).

    R is the number of right answers of a query. Its score is the mean over the ranks r = 1, …, R: a right answer at
    rank r counts with the precision of the first r answers, a wrong one with 0.

    Args:
        similarity: array or tensor `(queries, items)`, larger is more similar; of equal items the first comes first.
        positives: the right items of each query; queries that are left out do not count.

    Returns:
        The mean over queries, in percent.

    Raises:
        ValueError: there are no queries, a query has no right item, a query or item does not exist, or a similarity is
            not a number.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.metrics.retrieval import map_at_r
    >>> map_at_r(np.array([[0.9, 0.5, 0.7]]), {0: [0, 1]})  # right at rank 1, wrong at rank 2
    50.0

    ```
    """
    if not positives:
        raise ValueError("positives is empty: give at least one query with its right items.")
    values = as_array(similarity)
    scores = []
    for query, items in positives.items():
        right = np.unique(np.asarray(list(items), dtype=np.int64))
        inside = 0 <= query < len(values) and len(right) and right[0] >= 0 and right[-1] < values.shape[1]
        if not inside:
            raise ValueError(
                f"Query {query} has the right items {right.tolist()!s:.100}; it needs one at least, and both must lie "
                f"within the {values.shape} of similarity."
            )
        row = values[query]
        if np.isnan(row).any():
            raise ValueError(f"similarity holds a value that is not a number, at query {query}.")
        found = np.isin(np.argsort(-row, kind="stable")[: len(right)], right)
        precisions = np.cumsum(found) / np.arange(1, len(found) + 1)
        scores.append(float(np.mean(precisions * found)))
    return 100 * float(np.mean(scores))


def check_similarity(
    similarity: np.ndarray | torch.Tensor, caption_images: Sequence[int] | np.ndarray | torch.Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as arrays, with the default of `caption_images`; raises the errors of [`retrieval_metrics`]."""
    similarity = np.ascontiguousarray(as_array(similarity))
    if similarity.ndim != 2 or 0 in similarity.shape:
        raise ValueError(f"similarity must have the shape (images, captions), not {similarity.shape}.")
    if similarity.dtype.kind != "f":
        similarity = similarity.astype(np.float64)
    if similarity.dtype == np.float16:
        similarity = similarity.astype(np.float32)
    images, captions = similarity.shape
    if caption_images is None:
        if captions % images:
            raise ValueError(
                f"{captions} captions cannot belong to {images} images in equal numbers; pass caption_images."
            )
        return similarity, np.repeat(np.arange(images), captions // images)
    caption_images = as_array(caption_images)
    if caption_images.shape != (captions,) or caption_images.dtype.kind not in "iu":
        raise ValueError(
            f"caption_images must hold the image index of each of the {captions} captions, but is "
            f"{caption_images.dtype} of shape {caption_images.shape}."
        )
    caption_images = caption_images.astype(np.int64)
    if caption_images.min() < 0 or caption_images.max() >= images:
        raise ValueError(f"caption_images must lie between 0 and {images - 1}, the rows of similarity.")
    without = np.flatnonzero(np.bincount(caption_images, minlength=images) == 0)
    if len(without):
        raise ValueError(f"Image {without[0]} has no caption; leave images without captions out.")
    return similarity, caption_images


def as_array(values: Sequence[int] | np.ndarray | torch.Tensor) -> np.ndarray:
    """Returns an array or a tensor as an array; bfloat16, which numpy lacks, becomes float32."""
    detach = getattr(values, "detach", None)
    if detach is None:
        return np.asarray(values)
    tensor = detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
