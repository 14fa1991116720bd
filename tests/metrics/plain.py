"""Slow implementations of BLEU, ROUGE-L and CIDEr by their definitions, for comparison."""

import math
from collections import Counter


def ngrams(words, n):
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def bleu(predictions, references):
    """BLEU-1 to 4 of tokenized captions: of the corpus, and of each image."""
    images = [_bleu_counts(p.split(), [r.split() for r in rs]) for p, rs in zip(predictions, references, strict=True)]
    totals = [[sum(image[k][n] for image in images) for n in range(4)] for k in (0, 1)]
    total = (*totals, sum(image[2] for image in images), sum(image[3] for image in images))
    return _bleu(*total), [_bleu(*image) for image in images]


def _bleu_counts(candidate, references):
    matches = []
    for n in range(1, 5):
        counts = Counter(ngrams(candidate, n))
        matches.append(sum(min(c, max(ngrams(r, n).count(g) for r in references)) for g, c in counts.items()))
    closest = min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]
    return matches, [max(len(candidate) - n, 0) for n in range(4)], len(candidate), closest


def _bleu(matches, guesses, length, reference_length):
    product, values = 1.0, []
    for n in range(4):
        product *= (matches[n] + 1e-15) / (guesses[n] + 1e-9)
        values.append(product ** (1 / (n + 1)))
    ratio = (length + 1e-15) / (reference_length + 1e-9)
    penalty = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    return [value * penalty for value in values]


def rouge_l(prediction, references, beta=1.2):
    words = prediction.split(" ")
    if not prediction:
        return 0.0
    common = [(_subsequence(words, reference.split(" ")), len(reference.split(" "))) for reference in references]
    precision = max(c for c, _ in common) / len(words)
    recall = max(c / length for c, length in common)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision) if precision else 0.0


def _subsequence(first, second):
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def document_frequencies(images):
    """The number of images in which each n-gram occurs; captions are lists of words."""
    frequencies = Counter()
    for captions in images:
        frequencies.update({g for words in captions for n in range(1, 5) for g in ngrams(words, n)})
    return frequencies


def cider(candidate, references, frequencies, num_documents):
    """Eq. 2 and 3 of Vedantam et al., times 10 as in their public code; captions are lists of words."""
    total = 0.0
    for n in range(1, 5):
        mine = _tf_idf(candidate, n, frequencies, num_documents)
        for reference in references:
            other = _tf_idf(reference, n, frequencies, num_documents)
            norms = math.dist([*mine.values()], [0] * len(mine)) * math.dist([*other.values()], [0] * len(other))
            if norms:
                total += sum(weight * other.get(g, 0) for g, weight in mine.items()) / norms
    return 10 * total / 4 / len(references)


def _tf_idf(words, n, frequencies, num_documents):
    counts = Counter(ngrams(words, n))
    # The paper divides by the number of n-grams, which does not change the cosine.
    return {
        g: count / sum(counts.values()) * math.log(num_documents / max(1, frequencies.get(g, 0)))
        for g, count in counts.items()
    }
