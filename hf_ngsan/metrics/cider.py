"""CIDEr and CIDEr-D (Vedantam, Zitnick and Parikh, CVPR 2015) over whole arrays of captions."""

import numpy as np

from .ngrams import NGramTrie, expand_ranges

SIGMA = 6.0


class ReferenceNGrams:
    """References prepared for scoring: their tf-idf vectors, findable by image.

    Args:
        sequences (`WordSequences`): the reference captions, those of an image next to each other, images in order.
        captions_per_image: int64 `(images,)`.
        document_frequency (`DocumentFrequency`): the weights.
        words: the frequency table's word id for each word id used here; left out when they are the same.
    """

    def __init__(self, sequences, captions_per_image, document_frequency, words=None):
        self.captions_per_image = np.asarray(captions_per_image, dtype=np.int64)
        self.first_caption = np.cumsum(self.captions_per_image) - self.captions_per_image
        self.document_frequency = document_frequency
        self.log_documents = np.log(float(document_frequency.num_documents))
        self.words = words
        self.num_bigrams = np.maximum(sequences.lengths - 1, 0)

        images = np.repeat(np.arange(len(self.captions_per_image)), self.captions_per_image)
        captions = NGramTrie.count(sequences, np.arange(len(sequences)))
        self.image_trie = NGramTrie.count(sequences, images)
        self.norms = self._norms(captions, len(sequences))
        self._idf = self._inverse_frequencies(self.image_trie)
        self._postings = []
        for nodes, level, image_level in zip(
            captions.locate(self.image_trie, images), captions.levels, self.image_trie.levels, strict=True
        ):
            order = np.argsort(nodes, kind="stable")
            number = np.bincount(nodes, minlength=len(image_level.keys))
            self._postings.append((np.cumsum(number) - number, number, level.groups[order], level.counts[order]))

    def __len__(self):
        """Number of images."""
        return len(self.captions_per_image)

    def _inverse_frequencies(self, trie):
        logs = self.document_frequency.log_frequencies(trie, self.words)
        return [self.log_documents - log for log in logs]

    def _norms(self, trie, size):
        return [
            np.sqrt(np.bincount(level.groups, weights=(level.counts * idf) ** 2, minlength=size))
            for level, idf in zip(trie.levels, self._inverse_frequencies(trie), strict=True)
        ]

    def score(self, candidates, images, variant="cider_d"):
        """Scores candidate captions.

        Args:
            candidates (`WordSequences`): one or more candidates.
            images: int64 `(len(candidates),)`, the image of each candidate.
            variant: "cider_d" is eq. 4 of the paper: clipped tf-idf vectors, a Gaussian penalty (sigma 6) on the
                difference in length, times 10, where length is the number of bigrams as in the public code. "cider" is
                eq. 2 and 3: the mean cosine of the tf-idf vectors over references and orders, neither clipped nor
                penalised nor multiplied.

        Returns:
            float64 `(len(candidates),)`; 0 for an empty candidate.
        """
        trie = NGramTrie.count(candidates, np.arange(len(candidates)))
        norms = self._norms(trie, len(candidates))
        located = trie.locate(self.image_trie, images)
        references = self.captions_per_image[images]
        pair_candidate, pair_caption = expand_ranges(self.first_caption[images], references)
        first_pair = np.cumsum(references) - references
        similarity = np.zeros(len(pair_candidate))
        for n, level in enumerate(trie.levels):
            shared = np.flatnonzero(located[n] >= 0)
            nodes = located[n][shared]
            starts, number, captions, counts = self._postings[n]
            owner, posting = expand_ranges(starts[nodes], number[nodes])
            idf = self._idf[n][nodes][owner]
            candidate_weight = level.counts[shared][owner] * idf
            reference_weight = counts[posting] * idf
            if variant == "cider_d":
                candidate_weight = np.minimum(candidate_weight, reference_weight)
            candidate = level.groups[shared][owner]
            pair = first_pair[candidate] + captions[posting] - self.first_caption[images[candidate]]
            dot = np.bincount(pair, weights=candidate_weight * reference_weight, minlength=len(similarity))
            scale = norms[n][pair_candidate] * self.norms[n][pair_caption]
            similarity += np.divide(dot, scale, out=dot, where=scale != 0)
        if variant == "cider_d":
            bigrams = np.maximum(candidates.lengths - 1, 0)
            difference = (bigrams[pair_candidate] - self.num_bigrams[pair_caption]).astype(float)
            similarity *= 10.0 * np.exp(-(difference**2) / (2 * SIGMA**2))
        total = np.bincount(pair_candidate, weights=similarity, minlength=len(candidates))
        return total / (len(trie.levels) * references)
