"""The section `self_critical` of a training config."""

from dataclasses import dataclass

from ...ground.bounds import MAX_CAPTION_LENGTH, MAX_CAPTIONS
from ..settings import ScheduleSettings, another_default, setting


@dataclass(frozen=True)
class SelfCriticalSettings(ScheduleSettings):
    """How captions are drawn, rewarded and compared in the stage `scst`; the batch is that of section `training`."""

    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 5e-6)
    schedule: str = another_default(ScheduleSettings, "schedule", "constant")
    warmup_epochs: int = another_default(ScheduleSettings, "warmup_epochs", 0)
    decoding: str = setting("sample", "how captions are drawn: sample or beam", choices=("sample", "beam"))
    samples_per_image: int = setting(
        5, "captions drawn for each image; the width of the beam search", minimum=1, maximum=MAX_CAPTIONS
    )
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    top_p: float = setting(1.0, "sampling keeps the likeliest words with this probability; 1 = all", minimum=1e-3)
    max_new_tokens: int = setting(
        20, "longest sample in tokens, its end included", minimum=1, maximum=MAX_CAPTION_LENGTH
    )
    baseline: str = setting(
        "leave_one_out",
        "reward that a sample is compared with: greedy, mean or leave_one_out",
        choices=("greedy", "mean", "leave_one_out"),
    )
    dropout: bool = setting(
        False, "log-probabilities of the captions, which are drawn without dropout, are taken with it"
    )
    freeze_encoder: bool = setting(
        False, "the encoder keeps its weights and has no dropout: only the decoder is trained, which is faster"
    )
    cider_d_weight: float = setting(1.0, "weight of CIDEr-D (0 to 10) in the reward", minimum=0.0)
    bleu_4_weight: float = setting(0.0, "weight of the sentence's BLEU-4 (0 to 1) in the reward", minimum=0.0)
    end_token_in_reward: bool = setting(
        True, "the end token counts as a word in CIDEr-D, BLEU-4 and document frequencies; scores differ by this"
    )
    bad_ending_penalty: float = setting(
        0.0, "taken off the reward of a caption that ends with a word like 'a' or 'of', or not at all", minimum=0.0
    )
    reward_function: str | None = setting(
        None, "package.module:function of (captions, references) that returns a number for each caption; null = none"
    )
    reward_function_weight: float = setting(1.0, "weight of that function in the reward")
    document_frequency: str | None = setting(
        None, "file of document frequencies on token ids; null = those of the training captions"
    )
