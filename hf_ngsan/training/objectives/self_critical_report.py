"""What self-critical training shows of itself: numbers, a line of them, and warnings."""

import math

MOST_BAD_ENDINGS = 0.05
COLLAPSE = 2.0
"""Nats per word by which the references may become less likely while the reward rises."""
SECONDS = ("sampling_seconds", "reward_seconds", "update_seconds")


def summarize(sums: dict[str, float]) -> dict[str, float]:
    """Returns means over samples: `reward`, `baseline`, `advantage_spread` (standard deviation), `caption_length` in
    words, `bad_endings` and `greedy_samples` (shares); per step `entropy`, per reference word
    `reference_log_likelihood` (both in nats); seconds of drawing, rewarding and the rest for a process's batch."""
    samples, batches = sums["samples"], sums["batches"]
    mean_advantage = sums["advantages"] / samples
    variance = sums["squared_advantages"] / samples - mean_advantage**2
    summary = {name: sums[name] / samples for name in ("loss", "reward", "baseline")}
    summary |= {
        "advantage_spread": math.sqrt(max(variance, 0.0)),
        "entropy": sums["entropy"] / max(sums["steps"], 1),
        "caption_length": sums["words"] / samples,
        "bad_endings": sums["bad_endings"] / samples,
        "greedy_samples": sums["greedy_samples"] / samples,
    }
    if sums.get("reference_words"):
        summary["reference_log_likelihood"] = sums["reference_log_likelihood"] / sums["reference_words"]
    return summary | {name: sums[name] / batches for name in SECONDS}


def describe(summary: dict[str, float]) -> str:
    return (
        f"reward {summary['reward']:.3f}, baseline {summary['baseline']:.3f} ± {summary['advantage_spread']:.3f}, "
        f"entropy {summary['entropy']:.2f}, {summary['caption_length']:.1f} words, "
        f"{summary['bad_endings']:.1%} bad endings, {summary['greedy_samples']:.0%} greedy, "
        + " + ".join(f"{summary[name]:.2f}" for name in SECONDS)
        + " s sampling + reward + update"
    )


def find_warnings(history: list[dict]) -> list[str]:
    """Returns what is amiss in the last of the epochs of this stage."""
    first, last = history[0], history[-1]
    found = []
    if last["bad_endings"] > MOST_BAD_ENDINGS:
        found.append(
            f"{last['bad_endings']:.1%} of the sampled captions end badly, with a word like 'a' or 'of' or without "
            f"an end, more than {MOST_BAD_ENDINGS:.0%}: look at the captions and at max_new_tokens, or set "
            "self_critical.bad_ending_penalty."
        )
    fallen = first.get("reference_log_likelihood", 0.0) - last.get("reference_log_likelihood", 0.0)
    if last["reward"] > first["reward"] and fallen > COLLAPSE:
        found.append(
            f"the reward rises, but a word of the reference captions has become {math.exp(fallen):.1f} times less "
            "likely since the first self-critical epoch: the model may be exploiting the reward; lower "
            "self_critical.learning_rate, stop earlier or add another reward."
        )
    return found
