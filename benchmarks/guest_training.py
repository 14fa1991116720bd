"""Gain of self-critical training over teacher forcing for captioners of transformers, over seeds.

A tiny BLIP and a tiny GIT with random weights learn to caption synthetic scenes from pixels with a packaged training
config, first by teacher forcing, then self-critically. CIDEr-D is for the test split, which is not used for selection.

    python benchmarks/guest_training.py --output runs/guest_training
    python benchmarks/guest_training.py --output runs/guest_training --families git --seeds 0

Each run is a process with one CPU thread; finished runs are skipped, and stopped runs are resumed.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from training_runs import by_variant, call, spread
from transformers import (
    BertTokenizerFast,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    BlipProcessor,
    CLIPImageProcessor,
    GitConfig,
    GitForCausalLM,
    GitProcessor,
)

from hf_ngsan.data.scenes import load_scenes
from hf_ngsan.io.files import write_text_atomically

SIDE, HIDDEN, LAYERS = 64, 96, 3
DATA = f"scenes:images=true,image_size={SIDE},size=4000,validation=200,test=500"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"]
REQUIRED = 0.05


def make_tokenizer(folder: Path) -> BertTokenizerFast:
    words = {word for row in load_scenes("train", size=500) for text in row["captions"] for word in text.split()}
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *sorted(words)])}
    return BertTokenizerFast(vocab=vocabulary, extra_special_tokens=["[DEC]"])


def make(family: str, folder: Path, seed: int) -> None:
    """Saves a model with random weights and its processor."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(folder)
    sizes = {
        "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 4 * HIDDEN,
    }  # fmt: skip
    vision = {**sizes, "image_size": SIDE, "patch_size": 8, "initializer_range": 0.02}
    text = {**sizes, "vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 3, "max_position_embeddings": 32}
    if family == "blip":
        text |= {"bos_token_id": 5, "sep_token_id": 3, "encoder_hidden_size": HIDDEN}
        model = BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision))
        processor = BlipProcessor(BlipImageProcessor(size={"height": SIDE, "width": SIDE}), tokenizer)
    else:
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # as BLIP's
        model = GitForCausalLM(GitConfig(**text, **dropout, bos_token_id=2, vision_config=vision))
        images = CLIPImageProcessor(size={"height": SIDE, "width": SIDE}, do_center_crop=False)
        processor = GitProcessor(images, tokenizer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def run(family: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Returns test scores after teacher forcing and after self-critical training."""
    start, folder = options.output / f"{family}-start-{seed}", options.output / f"{family}-{seed}"
    if not (start / "config.json").is_file():
        make(family, start, seed)
    if not (folder / "xe.json").is_file() or not (folder / "scst.json").is_file():
        settings = [f"model.init_from={start}", f"data.spec={DATA}", f"training.output_dir={folder}"]
        settings += [f"training.seed={seed}", "training.num_threads=1", *SETTINGS, *options.overrides]
        call(folder, "train", "--config", f"guests/{family}", *settings, "--resume")
        for stage, place in (("xe", folder / "xe"), ("scst", folder / "best")):
            scores = call(folder, "evaluate", "--model", place, "--data", DATA, "--num-beams", 1)
            write_text_atomically(folder / f"{stage}.json", scores)
    return {stage: json.loads((folder / f"{stage}.json").read_text())["cider_d"] for stage in ("xe", "scst")}


SETTINGS = [
    "training.stage=auto", "training.epochs=12", "training.batch_size=50", "training.learning_rate=0.001",
    "training.warmup_epochs=1", "training.schedule=cosine", "training.label_smoothing=0.0",
    "data.captions_per_image=2", "data.max_caption_length=16",
    "self_critical.epochs=3", "self_critical.learning_rate=0.0001", "self_critical.samples_per_image=5",
    "self_critical.max_new_tokens=16", "evaluation.num_beams=1", "evaluation.max_new_tokens=16",
]  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/guest_training"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--families", nargs="+", default=["blip", "git"], choices=["blip", "git"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the training config")
    return parser.parse_intermixed_args()


def main() -> None:
    options = parse_arguments()
    results = by_variant(lambda family, seed: run(family, seed, options), options.families, options.seeds, options.jobs)
    print(
        "| captioner | teacher forcing | self-critical | gain | CPU minutes per run |\n| --- | --- | --- | --- | --- |"
    )
    for family, runs in results.items():
        columns = [
            [scores["xe"] for scores in runs],
            [scores["scst"] for scores in runs],
            [scores["scst"] - scores["xe"] for scores in runs],
        ]
        minutes = [cpu_minutes(options.output / f"{family}-{seed}.cpu") for seed in options.seeds]
        print(f"| {family} | " + " | ".join(spread(values) for values in [*columns, minutes]) + " |")
        print(f"  gain of each seed: {', '.join(f'{gain:.3f}' for gain in columns[2])} (required {REQUIRED} each)")


def cpu_minutes(file: Path) -> float:
    return sum(float(line.split()[0]) for line in file.read_text().splitlines() if line.endswith("train")) / 60


if __name__ == "__main__":
    main()
