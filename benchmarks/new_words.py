"""Tests whether a captioner learns new words by fine-tuning, with invented names for kinds of objects.

    python benchmarks/new_words.py --data images:general_photos --kinds sheep bus --others images:flickr8k

For each kind, twelve training photographs are sampled; in their captions, an invented word replaces the names of the
kind (`NAMES` of `photos_kinds.py`). The packaged captioner is fine-tuned on them with `ngsan/fine_tune`, as described
in docs/own_photographs.md, and captions other photographs of both kinds: the validation split, and eight other training
photographs of each. Prints the number of captions with the right word and with the wrong word, and CIDEr-D on other
photographs before and after. The packaged captioner was trained on all training photographs, with their usual words.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np
from photos_kinds import PATTERNS

from hf_ngsan import load_model
from hf_ngsan.data.images.sources import open_split
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.metrics import CiderD
from hf_ngsan.tasks import load_training_config, train
from hf_ngsan.tasks.caption_rows import load_rows, rows_for
from hf_ngsan.tasks.captioning_generation import generate_captions

WORDS, EACH, NEW = ("zorbel", "quimpet"), 12, 8


def write_photographs(rows, kinds: list[str], folder: Path, seed: int) -> list[int]:
    """Writes twelve photographs of each kind with their captions; returns the indices of the others of the kinds."""
    random, others, lines = np.random.default_rng(seed), [], []
    for kind, word in zip(kinds, WORDS, strict=True):
        places = random.permutation([place for place, name in enumerate(rows["category"]) if name == kind]).tolist()
        others += places[EACH : EACH + NEW]
        for place in places[:EACH]:
            name = f"{place}.jpg"
            rows[place]["image"].convert("RGB").save(folder / name, quality=95)
            lines += [(name, PATTERNS[kind].sub(word, caption)) for caption in rows[place]["captions"]]
    with open(folder / "metadata.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("file_name", "caption"), *lines])
    return others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="images:SOURCE", help="photographs with a column category")
    parser.add_argument("--kinds", nargs=2, default=["sheep", "bus"], choices=PATTERNS, metavar="KIND")
    parser.add_argument("--others", metavar="SPEC", help="photographs whose captions should not become worse")
    parser.add_argument("--limit", type=int, default=100, help="number of other photographs (%(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the training config")
    options = parser.parse_args()
    source = options.data.removeprefix("images:")
    columns = ["image", "captions", "category"]
    rows, new = (open_split(source, split)[0].select_columns(columns) for split in ("train", "validation"))
    new = new.select([place for place, kind in enumerate(new["category"]) if kind in options.kinds])
    others = load_rows(options.others, "validation", limit=options.limit) if options.others else None

    def score(model, processor) -> float:
        captions = generate_captions(model, processor, rows_for(model, processor, others, options.others))
        return CiderD().compute(predictions=captions, references=list(others["captions"]))["cider_d"]

    if others is not None:
        print(f"CIDEr-D on {len(others)} other photographs before: {score(*load_model(CAPTIONER)):.3f}", flush=True)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            photos = Path(folder, "photos")
            photos.mkdir()
            rest = rows.select(write_photographs(rows, options.kinds, photos, seed))
            settings = [f"data.spec=images:{photos}", f"training.output_dir={folder}/run", f"training.seed={seed}"]
            start = time.process_time()
            result = train(load_training_config("ngsan/fine_tune", [*settings, *options.set]))
            seconds = time.process_time() - start
            model, processor = load_model(result.best_dir)
        facts = [f"seed {seed}, {' and '.join(options.kinds)}, best epoch {result.best_epoch}, {seconds:.0f} s"]
        for name, group in (("validation", new), ("other training", rest)):
            captions = generate_captions(model, processor, rows_for(model, processor, group, options.data))
            right = dict(zip(options.kinds, WORDS, strict=True))
            pairs = [
                (right[kind], set(caption.split())) for kind, caption in zip(group["category"], captions, strict=True)
            ]
            named = sum(word in caption for word, caption in pairs)
            wrong = sum(bool(({*WORDS} - {word}) & caption) for word, caption in pairs)
            facts.append(f"{named} of {len(pairs)} {name} photographs named, {wrong} by the wrong word")
        facts += [f"CIDEr-D on others {score(model, processor):.3f}"] if others is not None else []
        print("; ".join(facts), flush=True)


if __name__ == "__main__":
    main()
