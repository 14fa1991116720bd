"""METEOR in Python against the official program: equal values, and time including its start (extra `eval`, Java).

Both score the same captions (by default 5,000 images x 5 references, from a COCO captions file, repeated as needed) in
turn; the result is the ratio of each pair. For each image, one caption is scored against the others after a few random
edits. The program starts in each repeat, as in the evaluation. The index of paraphrases is created before.

    python benchmarks/meteor.py --captions captions_val2017.json
    python benchmarks/meteor.py --captions captions_val2017.json --images 20000 --references 1 --edits 8 --repeats 1
"""

import argparse
import random
import resource
import statistics
import time

import numpy as np

from hf_ngsan.data.coco_files import read_references
from hf_ngsan.metrics import Meteor, PTBTokenizer
from hf_ngsan.metrics.meteor import shared_scorer

REQUIRED_RATIO, REQUIRED_DIFFERENCE = 1, 1e-6


def edited(words, vocabulary, edits, generator):
    """Returns words with some of them dropped, added, repeated or moved."""
    words = list(words)
    for _ in range(generator.randint(0, edits)):
        place, kind = generator.randrange(len(words) + 1), generator.randrange(4)
        if kind == 0:
            del words[place : place + 1]
        elif kind == 1:
            words.insert(place, generator.choice(vocabulary))
        elif words:
            moved = words.pop(generator.randrange(len(words))) if kind == 2 else generator.choice(words)
            words.insert(place, moved)
    return words


def edited_captions(path, images, references, edits):
    """Returns tokenized predictions and references."""
    by_image = list(read_references(path).values())
    numbers = [len(captions) for captions in by_image]
    tokenized = iter(PTBTokenizer().tokenize([text for captions in by_image for text in captions]))
    by_image = [[next(tokenized) for _ in range(number)] for number in numbers]
    vocabulary = sorted({word for captions in by_image for text in captions for word in text.split()})
    generator = random.Random(0)
    rows = []
    for index in range(images):
        captions = list(by_image[index % len(by_image)])
        generator.shuffle(captions)
        words = edited(captions[0].split(), vocabulary, edits, generator)
        others = captions[1:] + captions[:1] + by_image[generator.randrange(len(by_image))]
        rows.append((" ".join(words), others[:references]))
    return [prediction for prediction, _ in rows], [captions for _, captions in rows]


def official_scores(predictions, references):
    """Starts the program, and returns METEOR of the corpus and of each image."""
    from pycocoevalcap.meteor.meteor import Meteor as Program

    program = Program()
    captions = {row: [prediction] for row, prediction in enumerate(predictions)}
    return program.compute_score(dict(enumerate(references)), captions)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", required=True, help="a COCO captions file")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--references", type=int, default=5, help="references an image")
    parser.add_argument("--edits", type=int, default=3, help="maximum number of edits of a prediction")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    predictions, references = edited_captions(args.captions, args.images, args.references, args.edits)
    start = time.perf_counter()
    shared_scorer()
    print(f"reading the data: {time.perf_counter() - start:.1f} s")

    times = {"java": [], "python": []}
    for _ in range(args.repeats):
        scores = {}
        for backend, taken in times.items():
            shared_scorer.cache_clear()
            start = time.perf_counter()
            if backend == "java":
                scores[backend] = official_scores(predictions, references)
            else:
                scored = Meteor(tokenizer=None).compute(predictions=predictions, references=references, per_image=True)
                scores[backend] = scored["meteor"], scored["per_image"]["meteor"]
            taken.append(time.perf_counter() - start)

    print(f"{args.images} images x {args.references} references, {args.repeats} repeats, with start")
    for name, taken in times.items():
        print(f"{name:<12}{statistics.median(taken):8.2f} s   ({min(taken):.2f} to {max(taken):.2f})")
    ratios = [theirs / ours for theirs, ours in zip(times["java"], times["python"], strict=True)]
    print(
        f"{'ratio':<12}{statistics.median(ratios):8.2f}     ({min(ratios):.2f} to {max(ratios):.2f})"
        f"   required: at least {REQUIRED_RATIO}"
    )
    images = [np.array(scores[backend][1]) for backend in times]
    difference = np.abs(images[0] - images[1])
    corpus = abs(scores["java"][0] - scores["python"][0])
    print(
        f"{'difference':<12}{difference.max():8.1e}     of the corpus {corpus:.1e}; "
        f"{np.count_nonzero(difference > REQUIRED_DIFFERENCE)} of {len(difference)} images above "
        f"{REQUIRED_DIFFERENCE:.0e}"
    )
    print(f"{'memory':<12}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB of this process at most")


if __name__ == "__main__":
    main()
