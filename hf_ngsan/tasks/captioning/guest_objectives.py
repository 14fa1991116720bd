"""Objectives for captioners of transformers: the same as for our own, with the images encoded once.

```python
guest = guest_of(model, processor)
TrainingLoop(..., GuestTeacherForcing(guest, label_smoothing=0.1))
```
"""

import inspect
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.functional import pad

from ...guests.captioners import Guest
from ...guests.image_memory import ImageMemory
from ...metrics.diagnostics import BAD_ENDINGS
from ...training.objectives.objective import Objective, Update
from ...training.objectives.policy import Policy, drawing
from ...training.objectives.self_critical import SelfCritical
from ...training.objectives.self_critical_rewards import CaptionRewards
from ...training.objectives.teacher_forcing import TeacherForcing


class OfGuest(Objective):
    """Captions as inputs of a captioner of transformers, and their logits.

    Beside the model's own, inputs have `memory`, the images that are encoded already, and `length`, that of captions.
    """

    guest: Guest

    def with_captions(self, model: Any, visual: dict, labels: torch.Tensor) -> dict:
        visual = dict(visual)
        memory = visual.pop("memory", None)
        return {**self.guest.with_captions(visual, labels), "memory": memory, "length": labels.shape[1]}

    def logits(self, model: torch.nn.Module, inputs: dict) -> torch.Tensor:
        inputs = dict(inputs)
        memory, length = inputs.pop("memory"), inputs.pop("length")
        words = inputs["decoder_input_ids" if self.guest.model.config.is_encoder_decoder else "input_ids"]
        if (images := inputs.get("pixel_values")) is not None:
            each = len(words) // len(images)
            memory = memory or self.new_memory(inputs, keeps_graph=torch.is_grad_enabled())
            if memory is None:
                inputs["pixel_values"] = images.repeat_interleave(each, dim=0)
        if "logits_to_keep" in inspect.signature(type(self.guest.model).forward).parameters:
            inputs["logits_to_keep"] = length
        with nullcontext() if memory is None else memory.active(each):
            logits = model(**inputs, use_cache=False).logits
        return logits[:, -length:]

    def new_memory(self, visual: dict, keeps_graph: bool) -> ImageMemory | None:
        """Returns a memory for images, if the encoder takes a row of pixels for each."""
        pixels, encoder = visual.get("pixel_values"), self.guest.image_encoder
        if pixels is None or pixels.ndim != 4 or encoder is None:
            return None
        return ImageMemory(self.guest.model, encoder, len(pixels), keeps_graph)


class GuestTeacherForcing(OfGuest, TeacherForcing):
    """The model's own loss: the mean cross-entropy of the tokens of captions.

    Args:
        guest: the captioner.
        label_smoothing: share of the target that is spread evenly over the vocabulary; `None` for the model's own.
    """

    def __init__(self, guest: Guest, label_smoothing: float | None = None) -> None:
        self.guest = guest
        super().__init__(guest.label_smoothing if label_smoothing is None else label_smoothing)

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        visual = dict(inputs)
        beside = {name: visual.pop(name) for name in ("labels", "caption_weights") if name in visual}
        return {**self.with_captions(model, visual, beside["labels"]), **beside}


class GuestSelfCritical(OfGuest, SelfCritical):
    """Self-critical training; all samples of an image, and its greedy caption, come from one `generate()`.

    Args:
        guest: the captioner.
        rewards: scores samples.
        settings: the section `self_critical` of a training config.
    """

    def __init__(self, guest: Guest, rewards: CaptionRewards, settings: Any) -> None:
        self.guest = guest
        super().__init__(rewards, settings, policy_of(guest, settings))

    def encode(self, model: Any, visual: dict, keeps_graph: bool) -> tuple[dict, dict]:
        encoder = self.guest.image_encoder
        frozen = encoder is not None and not any(one.requires_grad for one in encoder.parameters())
        encoded = {**visual, "memory": self.new_memory(visual, keeps_graph=keeps_graph and not frozen)}
        return encoded, encoded if keeps_graph or frozen else visual

    def draw_captions(
        self, model: Any, encoded: dict, rows: torch.Tensor, update: Update
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        number, greedy_too = self.settings.samples_per_image, self.settings.baseline == "greedy"
        if self.settings.decoding == "beam":
            samples = self.generated(encoded, num_beams=number, num_return_sequences=number)
            return samples, self.generated(encoded) if greedy_too else None
        uniforms = self.uniforms(rows, update).to(model.device)
        each = number + greedy_too
        if greedy_too:  # a row of its own
            uniforms = pad(uniforms.view(len(rows), number, -1), (0, 0, 0, 1)).flatten(0, 1)
        draw = drawing(self.policy, uniforms, each if greedy_too else None)
        drawn = self.generated(encoded, custom_generate=draw, do_sample=True, num_return_sequences=each)
        if not greedy_too:
            return drawn, None
        drawn = drawn.view(len(rows), each, -1)
        return drawn[:, :-1].flatten(0, 1), drawn[:, -1]

    def generated(self, encoded: dict, **settings: Any) -> torch.Tensor:
        """Returns new tokens of `generate()`, without those before them."""
        inputs = dict(encoded)
        memory = inputs.pop("memory")
        settings = {"do_sample": False, "num_beams": 1, **settings, "max_new_tokens": self.policy.max_new_tokens}
        settings["suppress_tokens"] = list(self.policy.suppressed_tokens) or None
        with nullcontext() if memory is None else memory.active():
            ids = self.guest.model.generate(**inputs, **settings)
        return ids[:, self.guest.before_captions(inputs).shape[1] :]

    def ends_badly(self, samples: torch.Tensor) -> torch.Tensor:
        texts = self.guest.text_of(samples)
        bad = [text.rsplit(None, 1)[-1].strip(".,").lower() in BAD_ENDINGS if text else False for text in texts]
        return ~(samples == self.policy.eos_token_id).any(-1) | torch.tensor(bad, device=samples.device)


def policy_of(guest: Guest, settings: Any) -> Policy:
    """Returns the policy of a captioner, which says no special tokens but those that captions have.

    Args:
        guest: the captioner.
        settings: the section `self_critical` of a training config.
    """
    tokenizer, end = guest.tokenizer, guest.end_token_id
    pad_token_id = end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    config: Any = guest.model.config
    size = config.get_text_config(decoder=True).vocab_size
    of_images = {getattr(config, name, None) for name in ("image_token_id", "video_token_id")} - {None}
    never = {*of_images, *tokenizer.all_special_ids, *(guest.model.generation_config.suppress_tokens or ())}
    never -= {end, *guest.caption_ids("")}
    return Policy(
        eos_token_id=end,
        pad_token_id=pad_token_id,
        start_token_id=guest.start_token_ids[-1],
        suppressed_tokens=tuple(sorted(one for one in never if one < size)),
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
    )
