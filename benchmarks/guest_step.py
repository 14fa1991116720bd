"""One self-critical step of a BLIP with random weights, against a step with plain transformers.

This package generates all samples and the greedy caption in one `generate()`, and computes the log-probabilities from
the same encoding of the images. Plain transformers samples with `generate`, captions greedily with `generate`, and runs
`forward` for the log-probabilities; each call encodes the images. Both compute gradients of the loss. They take turns
in separate processes, to measure their peak memory; one step before the timed one is for warming up.

    python benchmarks/guest_step.py --rounds 3
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from guests import make_captioner
from torch.nn import functional
from transformers import BlipForConditionalGeneration
from transformers.utils import logging

from hf_ngsan.data.collator import IGNORED_LABEL
from hf_ngsan.guests.captioners import guest_of
from hf_ngsan.tasks.captioning_models import GuestSelfCritical
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives.self_critical import SelfCriticalSettings
from hf_ngsan.training.objectives.self_critical_rewards import TextRewards
from hf_ngsan.training.task import Update

REQUIRED = 1.5
REFERENCES = [["word1 word2 word3", "word4 word5"], ["word6 word7"], ["word8 word9 word10"], ["word2 word11"]]


class Steps:
    """Both kinds of a step, with the same images, number of samples and length of captions."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model, processor = make_captioner(options.side, options.hidden, options.layers)
        with torch.no_grad():  # so that captions do not end early
            self.model.text_decoder.cls.predictions.bias[3] -= 100.0
        self.guest = guest_of(self.model, processor)
        settings = SelfCriticalSettings(
            samples_per_image=options.samples, max_new_tokens=options.tokens, baseline="greedy"
        )
        references = [REFERENCES[row % len(REFERENCES)] for row in range(options.images)]
        self.rewards = TextRewards(references, self.guest.text_of, self.guest.end_token_id, weights={"cider_d": 1.0})
        self.objective = GuestSelfCritical(self.guest, self.rewards, settings)
        torch.manual_seed(0)
        self.pixels = torch.randn(options.images, 3, options.side, options.side)
        self.rows = torch.arange(options.images)

    def ours(self) -> None:
        batch = MicroBatch({"pixel_values": self.pixels, "row_index": self.rows}, self.options.images)
        (inputs,) = self.objective.prepare(self.model, [batch], Update(0, 0, one_process=True))
        loss, _ = self.objective.loss(self.model, inputs)
        loss.backward()

    def plain(self) -> None:
        model: BlipForConditionalGeneration = self.model
        number, length = self.options.samples, {"max_new_tokens": self.options.tokens}
        samples = model.generate(self.pixels, do_sample=True, num_return_sequences=number, top_k=0, **length)
        greedy = model.generate(self.pixels, do_sample=False, **length)
        images = self.rows.repeat_interleave(number)
        rewards, baselines = self.rewards(samples[:, 1:], images), self.rewards(greedy[:, 1:], self.rows)
        advantages = rewards - baselines.repeat_interleave(number)
        logits = model(self.pixels.repeat_interleave(number, dim=0), input_ids=samples[:, :-1]).logits
        losses = functional.cross_entropy(
            logits.flatten(0, 1), samples[:, 1:].flatten(), ignore_index=IGNORED_LABEL, reduction="none"
        )
        (losses.view_as(samples[:, 1:]).sum(-1) * advantages).sum().backward()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--samples", type=int, default=5, help="of each image")
    parser.add_argument("--tokens", type=int, default=12, help="of each caption")
    parser.add_argument("--side", type=int, default=384, help="side of images in pixels")
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kind", choices=("ours", "plain"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    if options.kind:
        step = getattr(Steps(options), options.kind)
        for _ in range(2):
            started_at = time.perf_counter()
            step()
            seconds = time.perf_counter() - started_at
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"seconds": seconds, "gigabytes": peak}))
        return
    ratios, peaks = [], []
    for number in range(options.rounds):
        results = {kind: measured(kind) for kind in ("ours", "plain")}
        ratios.append(results["plain"]["seconds"] / results["ours"]["seconds"])
        peaks.append(results["ours"]["gigabytes"] / results["plain"]["gigabytes"])
        print(f"round {number + 1}: {results}, {ratios[-1]:.2f} times as fast")
    print(
        f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}; required {REQUIRED}), "
        f"with {statistics.median(peaks):.2f} of its memory"
    )


def measured(kind: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--kind", kind]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
