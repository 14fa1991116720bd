"""A training step of NG-SAN against one of SAN: time and peak memory on the same batch.

A step is forward, backward and Adam in train mode, with every image encoded once for all of its captions. Time: steps
of the two models take turns in one process, and the result is the ratio of each pair; on a CPU, times are processor
times. Memory: each model takes two steps in a fresh process; on a CPU, it is the increase of the peak resident size
after the model is created, and on a GPU the peak memory allocated by torch.

    python benchmarks/ngsan_step.py
    python benchmarks/ngsan_step.py --images 10 --hidden-size 256 --layers 2 --pairs 10
"""

import argparse
import json
import resource
import subprocess
import sys

import torch
from paired_steps import TrainingStep, describe, in_turns, ratios

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration

MODELS = {"SAN": {"query_norm": None, "geometric_bias": []}, "NG-SAN": {}}
TIME_LIMIT, MEMORY_LIMIT = 1.15, 1.2


def training_step(name: str, sizes: argparse.Namespace) -> TrainingStep:
    torch.manual_seed(0)
    config = NGSANConfig(
        vocab_size=sizes.vocabulary,
        visual_feature_size=sizes.feature_size,
        hidden_size=sizes.hidden_size,
        intermediate_size=4 * sizes.hidden_size,
        num_hidden_layers=sizes.layers,
        **MODELS[name],
    )
    model = NGSANForConditionalGeneration(config)
    corners = torch.rand(sizes.images, sizes.regions, 2, 2).sort(dim=2).values
    batch = {
        "visual_features": torch.rand(sizes.images, sizes.regions, sizes.feature_size),
        "visual_boxes": corners.flatten(2),
        "attention_mask": torch.ones(sizes.images, sizes.regions, dtype=torch.long),
        "labels": torch.randint(4, sizes.vocabulary, (sizes.images * sizes.captions, sizes.words)),
    }
    return TrainingStep(model, batch, sizes.device)


def resident_megabytes() -> float:
    """Returns the peak memory of this process (getrusage counts kilobytes on Linux, bytes on macOS)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def peak_megabytes_of_this_process(name: str, sizes: argparse.Namespace) -> float:
    before = resident_megabytes()
    step = training_step(name, sizes)
    step()
    step()
    if step.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1024**2
    return resident_megabytes() - before


def peak_megabytes(name: str) -> float:
    """Returns the peak memory of training a model, measured in a fresh process with the same arguments."""
    command = [sys.executable, __file__, *sys.argv[1:], "--memory-of", name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--captions", type=int, default=5, help="of each image")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--words", type=int, default=17, help="words of each caption, including its end")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=9491)
    parser.add_argument(
        "--pairs", type=int, default=7, help="pairs of timed steps, after one that is not timed (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-of", choices=MODELS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    if sizes.memory_of:
        print(json.dumps(peak_megabytes_of_this_process(sizes.memory_of, sizes)))
        return
    memory = {name: peak_megabytes(name) for name in MODELS}
    seconds = in_turns({name: training_step(name, sizes).seconds for name in MODELS}, sizes.pairs)
    print(f"median of {sizes.pairs} pairs of steps (smallest to largest)")
    for name in MODELS:
        print(f"{name:<8}{describe(seconds[name])} s   {memory[name]:8.0f} MiB")
    print(f"time    {describe(ratios(seconds))}   required: at most {TIME_LIMIT}")
    print(f"memory  {memory['NG-SAN'] / memory['SAN']:7.3f}   required: at most {MEMORY_LIMIT}")


if __name__ == "__main__":
    main()
