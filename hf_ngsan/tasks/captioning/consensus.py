"""Weights that make teacher forcing listen more to the captions on which an image's annotators agree."""

from collections.abc import Sequence

import numpy

SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.05, 3.0


def consensus_weights(captions: Sequence[Sequence[str]], power: float = 1.0) -> list[list[float]]:
    """Weighs each caption by its CIDEr-D against the other captions of its image.

    After the weighted cross-entropy of Phan et al., *Consensus-based Sequence Training for Video Captioning*, 2017. A
    weight is (the caption's score / the mean score of its image) ** power, kept within [0.05, 3], so that every image
    has about the same say. The only caption of an image weighs 1.

    Args:
        captions: for each image its captions; the document frequencies are theirs.
        power: 0 gives every caption the weight 1.

    Returns:
        For each image the weights of its captions.
    """
    from ...metrics import CiderD, DocumentFrequency

    pairs = [
        (caption, [*texts[:index], *texts[index + 1 :]])
        for texts in captions
        if len(texts) > 1
        for index, caption in enumerate(texts)
    ]
    scores = iter(())
    if pairs and power:
        metric = CiderD(document_frequency=DocumentFrequency.from_captions(captions))
        candidates, references = (list(column) for column in zip(*pairs, strict=True))
        result = metric.compute(predictions=candidates, references=references, per_image=True)
        scores = iter(result["per_image"]["cider_d"])

    weights = []
    for texts in captions:
        if len(texts) < 2 or not power:
            weights.append([1.0] * len(texts))
            continue
        own = numpy.array([next(scores) for _ in texts]) + 1e-3
        relative = (own / own.mean()) ** power
        weights.append(relative.clip(SMALLEST_WEIGHT, LARGEST_WEIGHT).tolist())
    return weights
