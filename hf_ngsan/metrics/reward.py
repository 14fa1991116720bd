"""CIDEr-D of sampled captions as a training reward, on token ids."""

from dataclasses import dataclass

import numpy as np
import torch

from .cider import cider_scores
from .groups import ScoredGroups
from .ngrams import WordSequences, expand_ranges
from .token_ids import cut_sequences


@dataclass(frozen=True)
class PreparedReferences:
    """The references of a number of images, cut and laid out so that those of any image can be fetched at once.

    Attributes:
        captions (`WordSequences`): all captions, image by image.
        first, number: int64 `(images,)`, the first caption of each image and how many it has.
    """

    captions: WordSequences
    first: np.ndarray
    number: np.ndarray

    def __len__(self):
        return len(self.first)


class CiderDReward:
    """The reward of self-critical training (Rennie et al., CVPR 2017): CIDEr-D of each sampled caption.

    Works on token ids, without a way back to text: document frequencies, references and candidates must come from one
    tokenizer. A caption is everything up to and including its first end token; what follows does not count.

    Args:
        document_frequency (`DocumentFrequency`): counted on token ids of the training captions, with their end tokens.
        eos_token_id (`int`, *optional*): the end token; by default the one stored with `document_frequency`.
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

    def __init__(self, document_frequency, eos_token_id=None, ignored_token_ids=None):
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

    def prepare(self, references):
        """Prepares references, those of a batch or of a whole data set, so that it is done once.

        Args:
            references: for each image the list of its captions as token ids (lists, arrays or tensors).

        Returns:
            `PreparedReferences`, to be passed to the reward in place of `references`.

        Raises:
            ValueError: an image without references, or something other than whole numbers.
        """
        references = [list(image) for image in references]
        for row, image in enumerate(references):
            if not image:
                raise ValueError(f"Image {row} has no references; every image needs at least one.")
        captions = self.cut([caption for image in references for caption in image])
        number = np.fromiter(map(len, references), dtype=np.int64, count=len(references))
        return PreparedReferences(captions, np.cumsum(number) - number, number)

    def __call__(self, candidate_ids, references, image_indices=None):
        """Scores candidates; equal candidates of an image are scored once.

        Args:
            candidate_ids (`torch.Tensor` of shape `(R, T)`): token ids.
            references: what `prepare` returned, or the references of each of B images, to be prepared now.
            image_indices (of shape `(R,)`, *optional*): the image of each candidate, counted in `references`. Without
                it R must be a multiple of B, and the candidates of an image stand next to each other as `generate`
                returns them.

        Returns:
            `torch.DoubleTensor` of shape `(R,)` on the device of `candidate_ids`.

        Raises:
            ValueError: shapes that do not fit, an image index out of range, or an image without references.
        """
        if not isinstance(references, PreparedReferences):
            references = self.prepare(references)
        if candidate_ids.ndim != 2:
            raise ValueError(f"candidate_ids must have the shape (R, T), not {tuple(candidate_ids.shape)}.")
        images = image_of_each(len(candidate_ids), len(references), image_indices)
        candidates, images, inverse = drop_duplicates(self.cut(candidate_ids), images)
        scores = self.score(candidates, images, references)[inverse]
        return torch.from_numpy(scores).to(candidate_ids.device)

    def cut(self, sequences):
        return cut_sequences(sequences, self.eos_token_id, self.ignored_token_ids)

    def score(self, candidates, images, references):
        used, candidate_images = np.unique(images, return_inverse=True)
        reference_images, captions = expand_ranges(references.first[used], references.number[used])
        groups = ScoredGroups(references.captions.take(captions), reference_images, candidates, candidate_images)
        logs = self.document_frequency.log_frequencies(groups.levels)
        return cider_scores(groups, logs, self.document_frequency.num_documents)


def image_of_each(candidates, images, indices):
    if indices is None:
        if candidates and (not images or candidates % images):
            raise ValueError(
                f"{candidates} candidates cannot be shared out evenly among the references of {images} images; "
                "pass image_indices."
            )
        return np.repeat(np.arange(images), candidates // max(images, 1))
    indices = torch.as_tensor(indices).cpu().numpy()
    if indices.shape != (candidates,) or indices.dtype.kind not in "iu":
        raise ValueError(f"image_indices must be {candidates} whole numbers, not {indices.dtype} {indices.shape}.")
    if candidates and (indices.min() < 0 or indices.max() >= images):
        raise ValueError(f"image_indices must lie between 0 and {images - 1}, the images with references.")
    return indices.astype(np.int64)


def drop_duplicates(candidates, images):
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
