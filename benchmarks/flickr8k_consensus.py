"""Consensus (minimum Bayes risk) decoding: score of the caption that agrees best with others, against beam search.

    python benchmarks/flickr8k_consensus.py --data images:DIR

Each image gets the captions of eight beams and 20 samples at temperature 0.7. A candidate's expected CIDEr-D is its
mean CIDEr-D against the others as references, weighted by their probabilities as beams or by their frequencies as
samples (Kumar and Byrne 2004); document frequencies are those of the training captions. Prints CIDEr-D on the
validation split of the first beam and of the candidates with the highest expectation, with the 95% interval of the
difference.
"""

import argparse
from collections import Counter

import numpy as np
import torch

from hf_ngsan.data.collator import visual_arguments
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.metrics import CiderD, DocumentFrequency
from hf_ngsan.metrics.comparison import compare
from hf_ngsan.models.text_scores import token_log_probabilities
from hf_ngsan.tasks.caption_rows import load_rows, rows_for
from hf_ngsan.tasks.captioning_generation import load_captioners
from hf_ngsan.training.batches import take

BEAMS, SAMPLES, TEMPERATURE = 8, 20, 0.7


def candidates(model, processor, batch: list[dict]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Returns for each row its beams with their probabilities, and its samples with their frequencies."""
    inputs = processor(**visual_arguments(batch))
    with torch.inference_mode():
        beams = model.generate(**inputs, num_beams=BEAMS, num_return_sequences=BEAMS, do_sample=False)
        total = token_log_probabilities(model, inputs, beams).sum(-1).view(-1, BEAMS).softmax(-1).tolist()
        drawn = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0, "num_return_sequences": SAMPLES}
        samples = model.generate(**inputs, num_beams=1, length_penalty=None, **drawn)
    beam_texts, drawn_texts = ([text.strip() for text in processor.batch_decode(ids, True)] for ids in (beams, samples))
    pairs = []
    for row, weights in enumerate(total):
        texts = beam_texts[row * BEAMS : (row + 1) * BEAMS]
        counts = Counter(drawn_texts[row * SAMPLES : (row + 1) * SAMPLES])
        pairs.append((dict(zip(texts, weights, strict=True)), {text: n / SAMPLES for text, n in counts.items()}))
    return pairs


def expectations(metric: CiderD, chosen: list[list[str]], evidence: list[dict[str, float]]) -> list[np.ndarray]:
    """Returns the expected CIDEr-D of the candidates of each image."""
    pairs = [
        (text, other) for texts, others in zip(chosen, evidence, strict=True) for text in texts for other in others
    ]
    scored = metric.compute(
        predictions=[text for text, _ in pairs], references=[[other] for _, other in pairs], per_image=True
    )
    values, start, by_image = np.array(scored["per_image"]["cider_d"]), 0, []
    for texts, others in zip(chosen, evidence, strict=True):
        size = len(texts) * len(others)
        by_image.append(values[start : start + size].reshape(len(texts), -1) @ np.array([*others.values()]))
        start += size
    return by_image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="SPEC", help="photographs or features, with both splits")
    parser.add_argument("--model", default=CAPTIONER, help="(%(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="use only the first N images, to test the script")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (%(default)s)")
    options = parser.parse_args()
    model, processor = load_captioners([options.model])
    rows = rows_for(model, processor, load_rows(options.data, "validation", limit=options.limit), options.data)
    metric = CiderD(DocumentFrequency.from_captions(load_rows(options.data, "train")["captions"]))
    torch.manual_seed(options.seed)
    pairs = [
        pair
        for start in range(0, len(rows), 50)
        for pair in candidates(model, processor, take(rows, range(start, min(start + 50, len(rows)))))
    ]
    beams, samples = [beams for beams, _ in pairs], [samples for _, samples in pairs]
    both = [[*{**weights, **other}] for weights, other in pairs]
    first = [next(iter(weights)) for weights in beams]
    ways = {
        "beams, by beams": ([*map(list, beams)], beams),
        "beams, by samples": ([*map(list, beams)], samples),
        "beams and samples, by samples": (both, samples),
    }
    references = rows["captions"]
    base = np.array(CiderD().compute(predictions=first, references=references, per_image=True)["per_image"]["cider_d"])
    print(f"first of {BEAMS} beams: CIDEr-D {base.mean():.4f}, {len(rows)} images, seed {options.seed}")
    for name, (chosen, evidence) in ways.items():
        best = [
            texts[int(values.argmax())]
            for texts, values in zip(chosen, expectations(metric, chosen, evidence), strict=True)
        ]
        scored = CiderD().compute(predictions=best, references=references, per_image=True)
        differences = np.array(scored["per_image"]["cider_d"]) - base
        low, high = compare(differences).interval
        print(f"{name}: {differences.mean():+.4f} ({low:+.4f} to {high:+.4f})")


if __name__ == "__main__":
    main()
