"""Speed of the caption metrics against pycocoevalcap (extra `eval`, with Java).

Both tokenize and score the same captions (by default 5,000 images x 5 references) with BLEU, ROUGE-L and CIDEr-D in
turn; the result is the ratio of each pair. Captions are generated, or from a COCO captions file, repeated as needed.

    python benchmarks/metrics.py --repeats 5
    python benchmarks/metrics.py --captions captions_val2017.json
"""

import argparse
import contextlib
import io
import itertools
import statistics
import time

import numpy as np

from hf_ngsan.data.coco_files import read_references
from hf_ngsan.metrics import CaptionMetrics

REQUIRED_RATIO, REQUIRED_DIFFERENCE = 10, 1e-9


def made_up_captions(images, references, seed=0):
    """Generates captions similar to COCO's: Zipf's law, a full stop in three of four, some commas and quotes.

    The captions of an image differ in a third of their words.
    """
    generator = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfw"))
    words = ["".join(generator.choice(letters, generator.integers(2, 9))) for _ in range(6000)]
    extras = ["man's", "tee-shirt", "doesn't", '"stop"', "11:30", "(left)", "U.S."]

    def draw(number):
        return generator.zipf(1.25, number) % len(words)

    rows = []
    for _ in range(images):
        scene, row = draw(generator.integers(8, 15)), []
        for _ in range(references + 1):
            changed = generator.random(len(scene)) < 1 / 3
            caption = [words[i] for i in np.where(changed, draw(len(scene)), scene)]
            if generator.random() < 0.1:
                caption[generator.integers(len(caption))] = extras[generator.integers(len(extras))]
            if generator.random() < 0.1:
                caption[3] += ","
            row.append(" ".join(["A", *caption]) + "." * (generator.random() < 0.75))
        rows.append(row)
    return [row[0] for row in rows], [row[1:] for row in rows]


def captions_of_file(path, images, references):
    """Returns captions of a file, repeated as needed; predictions are first captions without their third words."""
    rows = [row[:references] for row in read_references(path).values() if len(row) >= references]
    rows = list(itertools.islice(itertools.cycle(rows), images))
    first = [row[0].split() for row in rows]
    return [" ".join(words[:2] + words[3:]) for words in first], rows


def score_with_pycocoevalcap(predictions, references):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenizer = PTBTokenizer()
    results = tokenizer.tokenize({i: [{"caption": p}] for i, p in enumerate(predictions)})
    truth = tokenizer.tokenize({i: [{"caption": r} for r in rs] for i, rs in enumerate(references)})
    with contextlib.redirect_stdout(io.StringIO()):
        bleu, _ = Bleu(4).compute_score(truth, results)
    return dict(
        zip(("bleu_1", "bleu_2", "bleu_3", "bleu_4"), bleu, strict=True),
        rouge_l=Rouge().compute_score(truth, results)[0],
        cider_d=Cider().compute_score(truth, results)[0],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--references", type=int, default=5, help="references an image")
    parser.add_argument("--captions", help="a COCO captions file; by default, generated captions")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if args.captions:
        predictions, references = captions_of_file(args.captions, args.images, args.references)
    else:
        predictions, references = made_up_captions(args.images, args.references)

    metrics = CaptionMetrics(metrics=("bleu", "rouge_l", "cider_d"))
    ours, theirs = [], []
    for _ in range(args.repeats):
        start = time.perf_counter()
        expected = score_with_pycocoevalcap(predictions, references)
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        scores = metrics.compute(predictions=predictions, references=references)
        ours.append(time.perf_counter() - start)

    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    print(
        f"{args.images} images x {args.references} references: tokens, BLEU, ROUGE-L, CIDEr-D; {args.repeats} repeats"
    )
    for name, times in (("pycocoevalcap", theirs), ("CaptionMetrics", ours)):
        print(f"{name:<16}{statistics.median(times):8.3f} s   ({min(times):.3f} to {max(times):.3f})")
    print(
        f"{'ratio':<16}{statistics.median(ratios):8.1f}     ({min(ratios):.1f} to {max(ratios):.1f})"
        f"   required: at least {REQUIRED_RATIO}"
    )
    difference = max(abs(scores[name] - value) for name, value in expected.items())
    print(f"{'difference':<16}{difference:8.1e}   required: at most {REQUIRED_DIFFERENCE:.0e}")


if __name__ == "__main__":
    main()
