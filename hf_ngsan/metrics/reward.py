"""CIDEr-D of sampled captions as a training reward, on token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from .document_frequency import DocumentFrequency
from .formulas import cider_scores
from .ngrams import ScoredGroups, WordSequences, cut_sequences, expand_ranges

if TYPE_CHECKING:
    from .ngrams import TokenIds, TokenIdSequences


@dataclass(frozen=True)
class PreparedReferences:
    """The references of images, cut and stored in one array, so that those of any image can be sliced.

    Attributes:
        captions (`WordSequences`): all captions, image by image.
        first, number: int64 `(images,)`, the first caption of each image and the number of its captions.
    """

    captions: WordSequences
    first: np.ndarray
    number: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


class CiderDReward:
    """The reward of self-critical training (Rennie et al., CVPR 2017): CIDEr-D of each sampled caption.

    It works on token ids and never on text, so document frequencies, references and candidates must come from one
    tokenizer. A caption reaches up to its first end token, which counts; what follows does not.

    Args:
        document_frequency: counted on token ids of the training captions, with their end tokens.
        eos_token_id: the end token; by default the one stored with `document_frequency`.
        ignored_token_ids: tokens that are no words (start, padding), by default those stored with
            `document_frequency`; negative ids are always left out.

    Raises:
        ValueError: the document frequencies were counted on text.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan.metrics import CiderDReward, DocumentFrequency
    >>> train = [[[5, 6, 7, 2]], [[5, 8, 9, 2]], [[6, 9, 4, 2]]]  # captions by image, 2 ends a caption
    >>> reward = CiderDReward(DocumentFrequency.from_captions(train, eos_token_id=2))
    >>> references = reward.prepare(train[:2])  # once; then for every batch:
    >>> candidates = torch.tensor([[5, 6, 7, 2], [9, 9, 2, 0], [5, 8, 9, 2], [8, 2, 0, 0]])  # two an image
    >>> reward(candidates, references).round(decimals=2)
    tensor([10.0000,  0.0000, 10.0000,  2.1000], dtype=torch.float64)

    ```
    """

    def __init__(
        self,
        document_frequency: DocumentFrequency,
        eos_token_id: int | None = None,
        ignored_token_ids: Sequence[int] | None = None,
    ) -> None:
        if document_frequency.vocabulary is not None:
            raise ValueError(
                "CiderDReward needs document frequencies counted on token ids, but these were counted on text: "
                "pass token ids to DocumentFrequency.from_captions."
            )
        self.document_frequency = document_frequency
        self.eos_token_id = document_frequency.eos_token_id if eos_token_id is None else eos_token_id
        self.ignored_token_ids = (
            document_frequency.ignored_token_ids if ignored_token_ids is None else tuple(ignored_token_ids)
        )

    def prepare(self, references: Iterable[Iterable[TokenIds]]) -> PreparedReferences:
        """Prepares the references of a batch or of a whole dataset, so that it is done once.

        Args:
            references: for each image the list of its captions as token ids (lists, arrays or tensors).

        Returns:
            The references in the form that the reward takes without preparing them again.

        Raises:
            ValueError: an image has no references, or token ids are no integers.
        """
        images = [list(image) for image in references]
        for row, image in enumerate(images):
            if not image:
                raise ValueError(f"Image {row} has no references; every image needs at least one.")
        captions = self.cut([caption for image in images for caption in image])
        number = np.fromiter(map(len, images), dtype=np.int64, count=len(images))
        return PreparedReferences(captions, np.cumsum(number) - number, number)

    def __call__(
        self,
        candidate_ids: torch.Tensor,
        references: PreparedReferences | Iterable[Iterable[TokenIds]],
        image_indices: torch.Tensor | np.ndarray | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Scores candidates; equal candidates of an image are scored once.

        Args:
            candidate_ids (`torch.Tensor` of shape `(R, T)`): token ids.
            references: the result of `prepare`, or the references of each of B images, to be prepared now.
            image_indices: `(R,)`, the image of each candidate, counted in `references`. Without it R must be a multiple
                of B, and the candidates of an image stand next to each other, as `generate` returns them.

        Returns:
            `torch.DoubleTensor` of shape `(R,)` on the device of `candidate_ids`.

        Raises:
            ValueError: shapes do not fit, an image index is out of range, or an image has no references.
        """
        if not isinstance(references, PreparedReferences):
            references = self.prepare(references)
        if candidate_ids.ndim != 2:
            raise ValueError(f"candidate_ids must have the shape (R, T), not {tuple(candidate_ids.shape)}.")
        images = image_of_each(len(candidate_ids), len(references), image_indices)
        candidates, images, inverse = drop_duplicates(self.cut(candidate_ids), images)
        scores = self.score(candidates, images, references)[inverse]
        return torch.from_numpy(scores).to(candidate_ids.device)

    def cut(self, sequences: TokenIdSequences) -> WordSequences:
        """Returns captions as the reward counts them: up to the end token, without ignored tokens."""
        return cut_sequences(sequences, self.eos_token_id, self.ignored_token_ids)

    def score(self, candidates: WordSequences, images: np.ndarray, references: PreparedReferences) -> np.ndarray:
        """Returns CIDEr-D of each candidate, float64 `(candidates,)`; `images` must not decrease."""
        used, candidate_images = np.unique(images, return_inverse=True)
        reference_images, captions = expand_ranges(references.first[used], references.number[used])
        groups = ScoredGroups(references.captions.take(captions), reference_images, candidates, candidate_images)
        logs = self.document_frequency.log_frequencies(groups.levels)
        return cider_scores(groups, logs, self.document_frequency.num_documents)


def image_of_each(
    candidates: int, images: int, indices: torch.Tensor | np.ndarray | Sequence[int] | None
) -> np.ndarray:
    """Returns the image of each candidate, int64 `(candidates,)`; raises the errors of [`CiderDReward`]."""
    if indices is None:
        if candidates and (not images or candidates % images):
            raise ValueError(
                f"{candidates} candidates cannot be split evenly among the references of {images} images; pass "
                "image_indices."
            )
        return np.repeat(np.arange(images), candidates // max(images, 1))
    array = torch.as_tensor(indices).cpu().numpy()
    if array.shape != (candidates,) or array.dtype.kind not in "iu":
        raise ValueError(f"image_indices must be {candidates} integers, not {array.dtype} of shape {array.shape}.")
    if candidates and (array.min() < 0 or array.max() >= images):
        raise ValueError(f"image_indices must lie between 0 and {images - 1}, the images with references.")
    return array.astype(np.int64)


def drop_duplicates(candidates: WordSequences, images: np.ndarray) -> tuple[WordSequences, np.ndarray, np.ndarray]:
    """Keeps one of several equal captions of an image, in the order of images.

    Returns:
        `(candidates, images, inverse)`, where `inverse` leads from each caption to the one kept.
    """
    width = int(candidates.lengths.max(initial=0))
    inside = np.arange(width) < candidates.lengths[:, None]
    rows = np.full((len(candidates), 1 + width), -1, dtype=np.int64)
    rows[:, 0] = images
    rows[:, 1:][inside] = candidates.words
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    words = distinct[:, 1:]
    kept = WordSequences(words[words >= 0], (words >= 0).sum(axis=1))
    return kept, distinct[:, 0], inverse.reshape(-1)
