"""Time from the file of a photograph to its caption in a warm process, compared to captioners of transformers.

The packaged captioner with each engine, and captioners with the sizes of BLIP-base and GIT-base, random weights and 12
generated tokens, caption the same photographs one by one. They take turns in separate processes, to measure their peak
memory. "Step by step" is the packaged captioner in PyTorch with a backbone that computes convolution, normalization and
activation separately.

    python benchmarks/latency.py
    python benchmarks/latency.py --images PHOTOS --threads 1 --rounds 5
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch
from guests import make_captioner, make_tokenizer
from pipeline_batches import write_photos
from transformers import CLIPImageProcessor, GitConfig, GitForCausalLM, GitProcessor, PreTrainedModel, pipeline
from transformers.utils import logging
from vision_batches import step_by_step

import hf_ngsan  # noqa: F401  # registers the pipeline
from hf_ngsan.extraction import list_images
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.models import load_model

TOKENS = {"max_new_tokens": 12, "min_new_tokens": 12}
BLIP_WORDS, GIT_WORDS = 30_519, 30_517
"""Vocabulary sizes of Salesforce/blip-image-captioning-base and microsoft/git-base-coco, with special tokens."""
WARM_UP = 2


class Captioner(NamedTuple):
    model: PreTrainedModel
    caption: Callable[[str], object]

    def mib_of_weights(self) -> float:
        return sum(weight.nbytes for weight in self.model.state_dict().values()) / 2**20


def packaged(engine: str, num_beams: int) -> Captioner:
    model, processor = load_model(CAPTIONER, "captioning")
    captioner = pipeline("image-to-text", model=model, processor=processor, engine=engine)
    return Captioner(model, lambda path: captioner(path, num_beams=num_beams))


def blip() -> Captioner:
    model, processor = make_captioner(384, 768, 12, BLIP_WORDS)
    captioner = pipeline("image-to-text", model=model, processor=processor)
    return Captioner(model, lambda path: captioner(path, **TOKENS))


def git() -> Captioner:
    torch.manual_seed(0)
    tokenizer = make_tokenizer(GIT_WORDS)
    model = GitForCausalLM(GitConfig(vocab_size=len(tokenizer), bos_token_id=2, eos_token_id=3)).eval()
    captioner = pipeline("image-to-text", model=model, processor=GitProcessor(CLIPImageProcessor(), tokenizer))
    return Captioner(model, lambda path: captioner(path, **TOKENS))


CAPTIONERS: dict[str, Callable[[], Captioner]] = {
    "packaged, greedily, step by step": lambda: packaged("torch", 1),
    "packaged, greedily, PyTorch": lambda: packaged("torch", 1),
    "packaged, greedily, ONNX Runtime": lambda: packaged("onnx", 1),
    "packaged, 3 beams, PyTorch": lambda: packaged("torch", 3),
    "packaged, 3 beams, ONNX Runtime": lambda: packaged("onnx", 3),
    "BLIP-base's shape, greedily": blip,
    "GIT-base's shape, greedily": git,
}
STEP_BY_STEP = "packaged, greedily, step by step"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--images", metavar="DIR", help="a folder of photographs; by default, generated ones of 640 x 480 pixels"
    )
    parser.add_argument("--number", type=int, default=20, help="photographs per round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, torch.get_num_threads()], help="(1 and all)")
    parser.add_argument("--only", nargs="+", choices=CAPTIONERS, default=list(CAPTIONERS), metavar="CAPTIONER")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(name: str, paths: list[str], threads: int) -> dict:
    """Returns milliseconds of each photograph, and MiB of the weights and of the peak memory."""
    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    captioner = CAPTIONERS[name]()
    took = []
    with ExitStack() as stack:
        if name == STEP_BY_STEP:
            stack.enter_context(step_by_step())
        for path in [*paths[:WARM_UP], *paths]:
            started_at = time.perf_counter()
            captioner.caption(path)
            took.append(1000 * (time.perf_counter() - started_at))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"milliseconds": took[WARM_UP:], "weights": captioner.mib_of_weights(), "peak": peak}


def in_own_process(name: str, folder: str, threads: int, number: int) -> dict:
    command = [sys.executable, __file__, "--worker", name, "--images", folder, "--threads", str(threads)]
    settings = {**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
    completed = subprocess.run(
        [*command, "--number", str(number)], check=True, stdout=subprocess.PIPE, text=True, env=settings
    )
    return json.loads(completed.stdout.splitlines()[-1])


def main() -> None:
    options = parse_arguments()
    if options.worker is not None:
        listed = list_images(options.images)
        paths = [str(listed.folder / image.file_name) for image in listed.images[: options.number]]
        print(json.dumps(measure(options.worker, paths, *options.threads)))
        return
    with tempfile.TemporaryDirectory() as drawn:
        if options.images is None:
            write_photos(Path(drawn), options.number)
        for threads in sorted(set(options.threads)):
            print_table(options, options.images or drawn, threads)


def print_table(options: argparse.Namespace, folder: str, threads: int) -> None:
    """Prints the measurements for a number of threads."""
    rounds: dict[str, list[dict]] = {name: [] for name in options.only}
    for _ in range(options.rounds):
        for name, runs in rounds.items():
            runs.append(in_own_process(name, folder, threads, options.number))
    print(f"\n{threads} thread{'s' * (threads > 1)}, {options.rounds} rounds of {options.number} photographs\n")
    print("| captioner | images/s | p50, ms | p99, ms | weights, MiB | peak memory, MiB | p50 against step by step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    medians = {name: [statistics.median(run["milliseconds"]) for run in runs] for name, runs in rounds.items()}
    for name, runs in rounds.items():
        took = [each for run in runs for each in run["milliseconds"]]
        p99 = statistics.quantiles(took, n=100)[98]
        bases = medians.get(STEP_BY_STEP, medians[name])
        ratios = [value / base for value, base in zip(medians[name], bases, strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        cells = [f"{1000 * len(took) / sum(took):.1f}", f"{statistics.median(took):.1f}", f"{p99:.1f}"]
        cells += [f"{runs[0]['weights']:.0f}", str(max(run["peak"] for run in runs)), ratio]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
