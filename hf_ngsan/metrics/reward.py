"""CIDEr-D of sampled captions as a training reward, on token ids."""

import numpy as np
import torch

from .cider import ReferenceNGrams
from .ngrams import WordSequences
from .token_ids import cut_sequences


class CiderDReward:
    """The reward of self-critical training (Rennie et al., CVPR 2017): CIDEr-D of each sampled caption.

    Works on token ids, without a way back to text: document frequencies, references and candidates must come from one
    tokenizer. A caption is everything up to and including its first end token; what follows does not count.

    Args:
        document_frequency (`DocumentFrequency`): counted on token ids of the training captions, each with its end token.
        eos_token_id (`int`, *optional*): the end token; by default the one stored with `document_frequency`.
        ignored_token_ids: tokens that are no words (start, padding), by default those stored with `document_frequency`;
            negative ids are always left out.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan.metrics import CiderDReward, DocumentFrequency
    >>> train = [[[5, 6, 7, 2]], [[5, 8, 9, 2]], [[6, 9, 4, 2]]]  # captions by image, 2 ends a caption
    >>> reward = CiderDReward(DocumentFrequency.from_captions(train, eos_token_id=2))
    >>> references = reward.prepare(train[:2])  # once; then for every batch:
    >>> candidates = torch.tensor([[5, 6, 7, 2], [9, 9, 2, 0], [5, 8, 9, 2], [8, 2, 0, 0]])  # two an image
    >>> reward(candidates, references).round(decimals=2)
    tensor([10.00,  0.00, 10.00,  1.88], dtype=torch.float64)

    ```
    """

    def __init__(self, document_frequency, eos_token_id=None, ignored_token_ids=None):
        if document_frequency.vocabulary is not None:
            raise ValueError(
                "CiderDReward needs document frequencies counted on token ids, but these were counted on text: pass token "
                "ids to DocumentFrequency.from_captions."
            )
        self.document_frequency = document_frequency
        self.eos_token_id = document_frequency.eos_token_id if eos_token_id is None else eos_token_id
        self.ignored_token_ids = (
            document_frequency.ignored_token_ids if ignored_token_ids is None else tuple(ignored_token_ids)
        )

    def prepare(self, references):
        """Prepares the references of a batch or of a whole data set, so that they are counted once.

        Args:
            references: for each image the list of its captions as token ids (lists, arrays or tensors).

        Returns:
            `ReferenceNGrams`, to be passed to the reward in place of `references`.
        """
        references = [list(image) for image in references]
        for row, image in enumerate(references):
            if not image:
                raise ValueError(f"Image {row} has no references; every image needs at least one.")
        flat = [caption for image in references for caption in image]
        return ReferenceNGrams(self._cut(flat), [len(image) for image in references], self.document_frequency)

    def __call__(self, candidate_ids, references, image_indices=None):
        """Scores candidates; equal candidates of an image are scored once.

        Args:
            candidate_ids (`torch.Tensor` of shape `(R, T)`): token ids.
            references: what `prepare` returned, or the references of each of B images to be prepared now.
            image_indices (of shape `(R,)`, *optional*): the image of each candidate, counted in `references`. Without it R
                must be a multiple of B and the candidates of an image stand next to each other, as `generate` returns them.

        Returns:
            `torch.DoubleTensor` of shape `(R,)` on the device of `candidate_ids`.

        Raises:
            ValueError: shapes that do not fit, an image index out of range, or an image without references.
        """
        if not isinstance(references, ReferenceNGrams):
            references = self.prepare(references)
        if candidate_ids.ndim != 2:
            raise ValueError(f"candidate_ids must have the shape (R, T), not {tuple(candidate_ids.shape)}.")
        images = self._images(len(candidate_ids), len(references), image_indices)
        rows = np.column_stack([images, candidate_ids.detach().cpu().numpy()]).astype(np.int64, copy=False)
        candidates = self._cut(rows[:, 1:])
        distinct, distinct_images, inverse = _unique_candidates(candidates, images)
        scores = references.score(distinct, distinct_images)[inverse]
        return torch.from_numpy(scores).to(candidate_ids.device)

    def _cut(self, sequences):
        return cut_sequences(sequences, self.eos_token_id, self.ignored_token_ids)

    @staticmethod
    def _images(candidates, images, indices):
        if indices is None:
            if images == 0 or candidates % images:
                raise ValueError(
                    f"{candidates} candidates cannot be shared out evenly among the references of {images} images; pass "
                    "image_indices."
                )
            return np.repeat(np.arange(images), candidates // images)
        indices = np.asarray(torch.as_tensor(indices).cpu(), dtype=np.int64)
        if indices.shape != (candidates,):
            raise ValueError(f"image_indices must have the shape ({candidates},), not {indices.shape}.")
        if len(indices) and (indices.min() < 0 or indices.max() >= images):
            raise ValueError(f"image_indices must lie between 0 and {images - 1}, the references prepared.")
        return indices


def _unique_candidates(candidates, images):
    """Keeps one of several equal captions of an image; `inverse` leads from each caption to the one kept."""
    ends = np.cumsum(candidates.lengths)
    matrix = np.full((len(candidates), 1 + int(candidates.lengths.max(initial=0))), -1, dtype=np.int64)
    matrix[:, 0] = images
    rows = np.repeat(np.arange(len(candidates)), candidates.lengths)
    columns = np.arange(len(candidates.words)) - np.repeat(ends - candidates.lengths, candidates.lengths)
    matrix[rows, 1 + columns] = candidates.words
    distinct, inverse = np.unique(matrix, axis=0, return_inverse=True)
    words = distinct[:, 1:]
    kept = WordSequences(words[words >= 0], (words >= 0).sum(axis=1))
    return kept, distinct[:, 0], inverse.reshape(-1)
