"""A self-critical training step: the share of the rewards, and its time against only sampling and an update.

A step samples captions with random weights, rewards them with CIDEr-D on token ids and a function of their text (which
includes detokenization), monitors one reference caption per image, and updates the weights. "Alone" is sampling as many
captions, one forward and backward pass over them, and Adam. The two take turns in one process, and the result is the
ratio of each pair; on a CPU, times are processor times, which are robust to other load on the machine.

    python benchmarks/self_critical.py
    python benchmarks/self_critical.py --images 10 --hidden-size 128 --layers 1 --pairs 5
"""

import argparse
import statistics
import time

import numpy
import torch
from torch.nn import functional

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration
from hf_ngsan.data import build_tokenizer
from hf_ngsan.data.collator import IGNORED_LABEL
from hf_ngsan.training.batches import MicroBatch
from hf_ngsan.training.objectives import CaptionRewards, Policy, SelfCritical, Update
from hf_ngsan.training.objectives.policy import beam_search, image_uniforms, labels_of, sampling_generate
from hf_ngsan.training.objectives.self_critical import SelfCriticalSettings

REWARD_LIMIT, TIME_LIMIT = 0.05, 1.3
TRAINING_IMAGES, REFERENCES, WORDS = 2000, 5, 10
END_LOGIT = 7.0
"""Added to the logit of the end token, so that random weights generate captions of about ten words."""


class SelfCriticalStep:
    """A captioner with random weights, its objective, and one batch."""

    def __init__(self, sizes: argparse.Namespace):
        torch.manual_seed(0)
        random = numpy.random.default_rng(0)
        words = [f"w{index}" for index in range(sizes.vocabulary)]
        tokenizer = build_tokenizer(words, min_count=1)
        chosen = random.zipf(1.3, (TRAINING_IMAGES, REFERENCES, WORDS)) % sizes.vocabulary
        references = [[" ".join(words[index] for index in caption) for caption in image] for image in chosen]
        rewards = CaptionRewards(
            references,
            tokenizer,
            {"cider_d": 1.0},
            {"brevity": (lambda captions, _: [-len(c) for c in captions], 1e-3)},
        )
        config = NGSANConfig(
            vocab_size=len(tokenizer),
            visual_feature_size=sizes.feature_size,
            hidden_size=sizes.hidden_size,
            intermediate_size=4 * sizes.hidden_size,
            num_hidden_layers=sizes.layers,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )
        self.model = NGSANForConditionalGeneration(config).to(sizes.device).eval()
        with torch.no_grad():
            self.model.lm_head.bias[tokenizer.eos_token_id] += END_LOGIT
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0)
        self.samples = sizes.samples
        self.policy = Policy.of(self.model, max_new_tokens=sizes.tokens)
        settings = SelfCriticalSettings(samples_per_image=sizes.samples, max_new_tokens=sizes.tokens)
        self.objective = SelfCritical(self.timed(rewards), settings, self.policy)
        corners = torch.rand(sizes.images, sizes.regions, 2, 2).sort(dim=2).values
        visual = {
            "visual_features": torch.rand(sizes.images, sizes.regions, sizes.feature_size),
            "visual_boxes": corners.flatten(2),
            "attention_mask": torch.ones(sizes.images, sizes.regions, dtype=torch.long),
        }
        self.visual = {name: tensor.to(sizes.device) for name, tensor in visual.items()}
        labels = tokenizer([text for image in references[: sizes.images] for text in image], padding=True)["input_ids"]
        self.batch = {
            **self.visual,
            "labels": torch.tensor(labels, device=sizes.device),
            "row_index": torch.arange(sizes.images, device=sizes.device),
        }

    def timed(self, rewards: CaptionRewards):
        def reward(*arguments: torch.Tensor) -> torch.Tensor:
            started_at = time.perf_counter()
            scores = rewards(*arguments)
            self.reward_seconds = time.perf_counter() - started_at
            return scores

        return reward

    def full(self, draw: int) -> dict[str, torch.Tensor]:
        batches = [MicroBatch(self.batch, len(self.batch["row_index"]))]
        (inputs,) = self.objective.prepare(self.model, batches, Update(0, draw, one_process=True))
        loss, counts = self.objective.loss(self.model, inputs)
        self.update(loss / self.objective.weight(inputs))
        return counts

    def alone(self, draw: int):
        keys = [(0, draw, row) for row in range(len(self.batch["row_index"]))]
        with torch.no_grad():
            states = self.model.get_encoder()(**self.visual).last_hidden_state
            uniforms = image_uniforms(keys, self.samples, self.policy.max_new_tokens)
            draw = sampling_generate(self.policy, uniforms.to(states.device))
            samples = beam_search(self.model, self.policy, states, self.visual["attention_mask"], custom_generate=draw)
        labels = labels_of(samples, self.policy.eos_token_id)
        start = self.model.prepare_decoder_input_ids_from_labels(labels)
        logits = self.model(**self.visual, decoder_input_ids=start, use_cache=False).logits
        self.update(functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL))

    def update(self, loss: torch.Tensor):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self, work, draw: int):
        on_gpu = next(self.model.parameters()).is_cuda
        clock = time.perf_counter if on_gpu else time.process_time
        if on_gpu:
            torch.cuda.synchronize()
        started_at = clock()
        result = work(draw)
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - started_at, result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--samples", type=int, default=5, help="of each image")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--tokens", type=int, default=20, help="maximum tokens of a sample (%(default)s)")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=9487)
    parser.add_argument(
        "--pairs", type=int, default=5, help="pairs of timed steps, after one that is not timed (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def describe(values: list[float], digits: int = 3) -> str:
    return f"{statistics.median(values):7.{digits}f}   ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    step = SelfCriticalStep(sizes)
    full, alone, shares, lengths = [], [], [], []
    for draw in range(sizes.pairs + 1):
        seconds_alone, _ = step.seconds(step.alone, draw)
        seconds, counts = step.seconds(step.full, draw)
        if draw:
            alone.append(seconds_alone)
            full.append(seconds)
            shares.append(step.reward_seconds / seconds)
            lengths.append(float(counts["words"] / counts["samples"]))
    ratios = [ours / theirs for ours, theirs in zip(full, alone, strict=True)]
    print(
        f"median of {sizes.pairs} pairs of steps (smallest to largest); {statistics.mean(lengths):.1f} words per sample"
    )
    print(f"self-critical step      {describe(full)} s")
    print(f"sampling + update alone {describe(alone)} s")
    print(f"step / alone            {describe(ratios)}   required: at most {TIME_LIMIT}")
    print(f"rewards / step          {describe(shares, 4)}   required: at most {REWARD_LIMIT}")


if __name__ == "__main__":
    main()
