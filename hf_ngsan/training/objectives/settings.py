"""Settings of the objectives: sections of training configs, which are read without torch."""

from dataclasses import dataclass

from ..config import ScheduleSettings, setting


@dataclass(frozen=True)
class ContrastiveSettings:
    """Settings of the comparison of images and texts."""

    loss: str = setting(
        "hardest",
        "hardest, all = triplets of hardest or all negatives, or info_nce",
        choices=("hardest", "all", "info_nce"),
    )
    hardest_negatives: int = setting(1, "hardest: how many negatives, on each side of a pair", minimum=1)
    negated_positives: bool = setting(False, "hardest: a pair may be its own negative, as MHSAN was released")
    margin: float = setting(0.2, "triplet losses: by how much a pair shall be more similar than a negative", minimum=0)
    temperature: float = setting(0.07, "info_nce: similarities are divided by it", minimum=1e-4)
    loss_reduction: str = setting("mean", "over the pairs of a batch: mean or sum", choices=("mean", "sum"))
    diversity_weight: float = setting(0.0, "weight of the penalty for attention heads that are alike", minimum=0)
    squared_diversity: bool = setting(True, "whether that penalty is squared, as in eq. 5 of Park et al. 2020")


@dataclass(frozen=True)
class DistillationSettings(ScheduleSettings):
    """Settings of the stage `distill`; section `training` has the batch and the teachers."""

    images: str | None = setting(None, "dataset of the training images, captions or not; null = data.spec")
    samples_per_image: int = setting(5, "captions drawn for each image", minimum=1)
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    max_new_tokens: int = setting(20, "longest sample in tokens, its end included", minimum=1)


@dataclass(frozen=True)
class SelfCriticalSettings(ScheduleSettings):
    """Settings of the stage `scst`: how captions are drawn, rewarded and compared; section `training` has the batch."""

    decoding: str = setting("sample", "how captions are drawn: sample or beam", choices=("sample", "beam"))
    samples_per_image: int = setting(5, "captions drawn for each image; the width of the beam search", minimum=1)
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    top_p: float = setting(1.0, "sampling keeps the likeliest words with this probability; 1 = all", minimum=1e-3)
    max_new_tokens: int = setting(20, "longest sample in tokens, its end included", minimum=1)
    baseline: str = setting(
        "leave_one_out", "a reward: greedy, mean or leave_one_out", choices=("greedy", "mean", "leave_one_out")
    )
    dropout: bool = setting(False, "log-probabilities are taken with dropout; captions are drawn without it")
    freeze_encoder: bool = setting(False, "only the decoder is trained, which is faster")
    cider_d_weight: float = setting(1.0, "weight of CIDEr-D (0 to 10) in the reward", minimum=0.0)
    bleu_4_weight: float = setting(0.0, "weight of the sentence's BLEU-4 (0 to 1) in the reward", minimum=0.0)
    meteor_weight: float = setting(0.0, "weight of METEOR (0 to 1) in the reward; needs the extra eval", minimum=0.0)
    clip_score_model: str | None = setting(None, "dual encoder whose CLIPScore (0 to 2.5) is a reward; null = none")
    clip_score_weight: float = setting(1.0, "weight of that CLIPScore in the reward", minimum=0.0)
    end_token_in_reward: bool = setting(True, "the end token is a word in CIDEr-D, BLEU-4 and document frequencies")
    bad_ending_penalty: float = setting(0.0, "off the reward of an ending like 'a' or 'of', or of none", minimum=0.0)
    reward_function: str | None = setting(None, "package.module:function of (captions, references); null = none")
    reward_function_weight: float = setting(1.0, "weight of that function in the reward")
