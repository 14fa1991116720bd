"""Speed of CIDEr-D rewards on token ids, against a plain dictionary implementation.

Both score the same candidates (by default 250, five for each of 50 images, with five references of 12 words) in turn;
the result is the ratio of each pair. `PlainCiderD` is written like the public implementations, dictionary by
dictionary; the tests check it against the values of the official evaluation.

    python benchmarks/cider_reward.py --repeats 20
"""

import argparse
import statistics
import time
from collections import Counter

import numpy as np
import torch

from hf_ngsan.metrics import CiderDReward, DocumentFrequency

REQUIRED_RATIO, REQUIRED_DIFFERENCE = 20, 1e-12
VOCABULARY, END = 10_000, 2


class PlainCiderD:
    """CIDEr-D with one dictionary per caption and n-gram order.

    Args:
        frequencies: `{n-gram: number of documents}`.
        num_documents: number of documents.
    """

    def __init__(self, frequencies, num_documents):
        self.frequencies = frequencies
        self.log_documents = np.log(float(num_documents))

    def score(self, candidate, references):
        """Returns CIDEr-D of one candidate, a list of words, against its references."""
        vector, norm, length = self._vector(candidate)
        total = np.zeros(4)
        for reference in references:
            other, other_norm, other_length = self._vector(reference)
            for n in range(4):
                value = 0.0
                for ngram, weight in vector[n].items():
                    shared = other[n].get(ngram, 0.0)
                    value += min(weight, shared) * shared
                if norm[n] and other_norm[n]:
                    value /= norm[n] * other_norm[n]
                total[n] += value * np.exp(-((length - other_length) ** 2) / (2 * 6.0**2))
        return 10.0 * total.mean() / len(references)

    def _vector(self, words):
        counts = Counter(tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1))
        vector, norm = [{} for _ in range(4)], np.zeros(4)
        for ngram, count in counts.items():
            weight = count * (self.log_documents - np.log(max(1.0, self.frequencies.get(ngram, 0.0))))
            vector[len(ngram) - 1][ngram] = weight
            norm[len(ngram) - 1] += weight**2
        return vector, np.sqrt(norm), max(len(words) - 1, 0)


def random_captions(generator, images, captions, words):
    """Returns captions by image: words sampled by Zipf's law, an end token after each caption."""
    drawn = generator.zipf(1.3, (images, captions, words)) % (VOCABULARY - 3) + 3
    return [[[*caption, END] for caption in image] for image in drawn.tolist()]


def sampled_candidates(generator, references, samples):
    """Returns candidates that share words with their references: some words of a reference replaced."""
    candidates = np.array([[image[s % len(image)] for s in range(samples)] for image in references])
    candidates = candidates.reshape(-1, candidates.shape[-1])
    replaced = generator.random(candidates.shape) < 0.3
    replaced[:, -1] = False
    candidates[replaced] = generator.integers(3, VOCABULARY, replaced.sum())
    return torch.from_numpy(candidates)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--samples", type=int, default=5, help="candidates an image")
    parser.add_argument("--references", type=int, default=5, help="references an image")
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--train-images", type=int, default=5000, help="images for the document frequencies")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    generator = np.random.default_rng(0)
    train = random_captions(generator, max(args.train_images, args.images), args.references, args.words)
    frequency = DocumentFrequency.from_captions(train, eos_token_id=END)
    candidates = sampled_candidates(generator, train[: args.images], args.samples)
    images = torch.arange(args.images).repeat_interleave(args.samples)

    reward = CiderDReward(frequency)
    references = reward.prepare(train)
    plain = PlainCiderD(frequency.to_dict(), frequency.num_documents)
    ours, theirs = [], []
    for _ in range(args.repeats):
        start = time.perf_counter()
        expected = [plain.score(c, train[i]) for c, i in zip(candidates.tolist(), images.tolist(), strict=True)]
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        rewards = reward(candidates, references, images)
        ours.append(time.perf_counter() - start)

    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    print(f"{len(candidates)} candidates, {args.references} references of {args.words} words; {args.repeats} repeats")
    for name, times in (("dictionaries", theirs), ("CiderDReward", ours)):
        print(
            f"{name:<14}{1e3 * statistics.median(times):9.2f} ms   ({1e3 * min(times):.2f} to {1e3 * max(times):.2f})"
        )
    print(
        f"{'ratio':<14}{statistics.median(ratios):9.1f}      ({min(ratios):.1f} to {max(ratios):.1f})"
        f"   required: at least {REQUIRED_RATIO}"
    )
    difference = np.abs(rewards.numpy() - expected).max()
    print(f"{'difference':<14}{difference:9.1e}   required: less than {REQUIRED_DIFFERENCE:.0e}")


if __name__ == "__main__":
    main()
