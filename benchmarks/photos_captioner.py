"""The packaged captioner `ngsan-photos`: the captioner of Flickr8k, trained further on a mixture of photographs.

    python benchmarks/flickr8k_backbone.py --images DIR --checkpoint flickr8k_captioner    # the initial captioner
    python benchmarks/photos_data.py --data DIR --output photos
    VISION="--backbone efficientnet-lite2 --image-size 352 --out-features stage5 --engine onnx"
    hf-ngsan extract --images images:photos --split validation $VISION --output stage5
    hf-ngsan extract --images images:photos --split train $VISION --output stage5 --copies 2
    python benchmarks/photos_captioner.py --start flickr8k_captioner --features stage5

    # then with photographs that have no captions (photos_detections.py), and self-critically without them
    python benchmarks/photos_captioner.py --start checkpoints/ngsan-photos --features described --stages described
    python benchmarks/photos_captioner.py --start runs/photos/described-0/last --features stage5 --stages again

The vocabulary consists of the words with three or more occurrences in the captions of all photographs. A new word is
initialized with the mean of the five nearest words in MiniLM-L6. The last two stages of the backbone and the captioner
are trained by cross-entropy (`photos_tail.py`), then the decoder self-critically. The stages `described` and `again`
start from `--start` and repeat both; `described` includes the described photographs and freezes the backbone. Prints
CIDEr-D on the validation photographs of Flickr8k and of Pascal-1K after each stage, with three beams. Finished runs are
skipped, and stopped runs are resumed.
"""

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import photos_tail
import torch
from training_runs import call, spread
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from hf_ngsan.data import build_tokenizer, load_data
from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.loading.models import load_config, load_model, save_model
from hf_ngsan.metrics import CaptionMetrics
from hf_ngsan.models.text_encoders import find_text_encoder
from hf_ngsan.tasks.new_models import special_token_ids

CONFIG = "ngsan/flickr8k"
SETTINGS = [
    "model.model_type=ngsan_tail",
    "data.min_word_count=3",
    "data.new_words=null",
    'training.freeze=["*.depthwise.convolution.weight", "*.stage6.[01].*"]',
    "training.batch_size=40",
    "training.ema_decay=0.99",
    "training.num_threads=1",
    "training.tracker=null",
    "training.save_every_steps=100",
]
CROSS_ENTROPY = [
    "training.stage=xe",
    "training.epochs=3",
    "training.learning_rate=4e-4",
    "training.vision_learning_rate=1.2e-4",
    "training.warmup_epochs=0",
]
SELF_CRITICAL = ["training.stage=scst", "self_critical.epochs=3", "self_critical.learning_rate=6e-4"]
DESCRIBED = [
    "training.stage=xe",
    "training.epochs=1",
    "training.learning_rate=3e-4",
    "training.warmup_epochs=0",
    'training.freeze=["*.encoder.tail.*"]',
]
AGAIN = ["training.stage=scst", "self_critical.epochs=1", "self_critical.learning_rate=6e-4"]
STAGES = {
    "xe": ("cross-entropy", CROSS_ENTROPY),
    "scst": ("+ self-critical", SELF_CRITICAL),
    "described": ("+ described photographs, cross-entropy", DESCRIBED),
    "again": ("+ self-critical again", AGAIN),
}
TAIL = ("--import", "photos_tail")
VALIDATION, CAPTIONS = "validation.md", "validation_captions.json"
"""Files in the folder of the runs, with the scores of all stages, and in that of a run."""
NEIGHBOURS = 5
TEXT_ENCODER = "all-minilm-l6-v2"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", required=True, metavar="DIR", help="a captioner with an EfficientNet-Lite2")
    parser.add_argument("--features", required=True, metavar="DIR", help="features of stage 5 from hf-ngsan extract")
    parser.add_argument("--output", type=Path, default=Path("runs/photos"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=["xe", "scst"], help="(xe scst)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def make_start(options: argparse.Namespace) -> Path:
    """Writes the initial captioner of all seeds, for cells of stage 5 and with the vocabulary of all photographs."""
    folder = options.output / "start"
    if load_config(options.start, "captioning").model_type == photos_tail.TailConfig.model_type:
        return Path(options.start)
    if folder.exists():
        return folder
    captioner, processor = load_model(options.start, "captioning")
    tokenizer = tokenizer_of(options.features)
    fields = captioner.config.to_dict()
    known = {name: fields[name] for name in vars(photos_tail.TailConfig()) if name in fields}
    for name in ("model_type", "auto_map", "architectures", "vision_config", "features_provenance", "weights_from"):
        known.pop(name, None)
    known |= {"visual_feature_size": 120, "vision_config": None, **special_token_ids(tokenizer)}
    model = photos_tail.TailForConditionalGeneration(photos_tail.TailConfig(**known))
    photos_tail.copy_captioner(captioner, model)
    copy_words(captioner, processor.tokenizer, model, tokenizer)
    model.generation_config = captioner.generation_config
    save_model(model, photos_tail.NGSANProcessor(image_processor=None, tokenizer=tokenizer), folder)
    return folder


def tokenizer_of(features: str) -> PreTrainedTokenizerBase:
    """Returns the tokenizer for all photographs, with the words with three or more occurrences."""
    rows = load_data(f"features:{features}", "train")
    photograph_captions = dict(zip(rows["file_name"], rows["captions"], strict=True))  # each photograph once
    return build_tokenizer((text for texts in photograph_captions.values() for text in texts), min_count=3)


@torch.no_grad()
def copy_words(captioner: Any, captioner_tokenizer: Any, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Copies the weights of known words to a model with the vocabulary of `tokenizer`; a new word gets the mean of the
    nearest known words."""
    old = captioner_tokenizer.get_vocab()
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    places = [[old[word]] if word in old else near for word, near in zip(words, nearest(words, old), strict=True)]
    for weight, others in (
        (model.get_input_embeddings().weight, captioner.get_input_embeddings().weight),
        (model.lm_head.weight, captioner.lm_head.weight),
        (model.lm_head.bias, captioner.lm_head.bias),
    ):
        weight.copy_(torch.stack([others[place].float().mean(0) for place in places]))
    print(f"{len(words)} words and special tokens, {sum(word not in old for word in words)} of them new")


def nearest(words: list[str], known: dict[str, int]) -> list[list[int]]:
    """Returns for each word the ids of the known words with the nearest vectors in the text encoder."""
    source = find_text_encoder(TEXT_ENCODER)
    tokenizer, encoder = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source).eval()
    candidates = [word for word in known if not word.startswith("<")]

    def vectors(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        states = encoder(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
        return torch.nn.functional.normalize(states.sum(1), dim=-1)

    with torch.inference_mode():
        near = (vectors(words) @ vectors(candidates).T).topk(NEIGHBOURS).indices
    return [[known[candidates[place]] for place in row] for row in near.tolist()]


def train(options: argparse.Namespace, stage: str, seed: int, *settings: str) -> Path:
    run = options.output / f"{stage}-{seed}"
    if not (run / "best").exists():
        base = [f"data.spec=features:{options.features}", f"training.output_dir={run}", f"training.seed={seed}"]
        settings = (*SETTINGS, *base, *settings, *options.overrides)
        call(run, *TAIL, "train", "--config", CONFIG, *settings, "--resume")
    return run


def train_seed(options: argparse.Namespace, start: Path, seed: int) -> dict[str, dict[str, float]]:
    results, initial = {}, start
    for stage in options.stages:
        run = train(options, stage, seed, *STAGES[stage][1], f"model.init_from={initial}")
        # Cross-entropy lowers the CIDEr-D of a captioner after self-critical training, until this is repeated.
        results[stage] = measured(options.features, run)
        initial = run / ("last" if stage == "described" else "best")
    return results


def is_pascal(file_name: str) -> bool:
    return file_name.startswith("2008_")


def measured(features: str, run: Path, model: str = "best") -> dict[str, float]:
    """Returns CIDEr-D on the validation photographs of Flickr8k and of Pascal-1K."""
    file, data = run / CAPTIONS, f"features:{features}"
    if not file.exists():
        model_options = ["--model", run / model, "--num-beams", 3]
        call(run, *TAIL, "evaluate", *model_options, "--data", data, "--split", "validation", "--output", file)
    rows = load_data(data, "validation")
    captions = {entry["image_id"]: entry["caption"] for entry in json.loads(file.read_text())}
    scores = {}
    for name, expected in (("flickr8k", False), ("pascal1k", True)):
        chosen = [row for row in rows if is_pascal(row["file_name"]) == expected]
        predictions = [captions[row["image_id"]] for row in chosen]
        scores[name] = CaptionMetrics().compute(
            predictions=predictions, references=[list(row["captions"]) for row in chosen]
        )["cider_d"]
    return scores


def main() -> None:
    options = parse_arguments()
    start = make_start(options)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = dict(
            zip(options.seeds, pool.map(lambda seed: train_seed(options, start, seed), options.seeds), strict=True)
        )
    lines = ["| stage | seeds | Flickr8k | Pascal-1K |", "| --- | --- | --- | --- |"]
    for stage in options.stages:
        cells = [spread([result[stage][name] for result in results.values()]) for name in ("flickr8k", "pascal1k")]
        lines.append(f"| {STAGES[stage][0]} | {len(results)} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    write_text_atomically(options.output / VALIDATION, table + "\n")
    print(table)


if __name__ == "__main__":
    main()
