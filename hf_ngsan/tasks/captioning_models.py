"""Makes or loads the captioner of a training config, and attaches vision encoders."""

import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, ProcessorMixin
from transformers.image_utils import SizeDict

from ..extraction import load_vision
from ..guests.captioners import Guest, ImageMemory
from ..loading.models import changed_config, derive_from, find_model_folder, load_captioner, load_config, load_model
from ..loading.provenance import backbone_settings, is_provenance, provenance_difference, vision_provenance
from ..metrics.diagnostics import BAD_ENDINGS
from ..models.configuration_vision import VisionConfig, lasting_name, make_backbone_config
from ..training.objectives.policy import Policy, sampling_generate
from ..training.objectives.self_critical import SelfCritical
from ..training.objectives.self_critical_rewards import CaptionRewards
from ..training.objectives.teacher_forcing import TeacherForcing
from ..training.task import Objective, Update
from . import new_models
from .caption_rows import new_tokenizer
from .new_words import learn_new_words

if TYPE_CHECKING:
    from .settings import CaptioningConfig

logger = logging.getLogger(__name__)

UNKNOWN_WORD_ID = 3
ONLY_OURS = (
    "data.image_size",
    "data.new_words",
    "training.word_dropout",
)  # captioners of transformers do not have them


def new_captioner(
    config: "CaptioningConfig", captions: Sequence[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Creates the model, on the CPU, and the processor of a training config, for the words of the training captions.

    With `model.init_from`, both come from a trained captioner, and the other fields of the section change its
    configuration. New words of the captions are added to its vocabulary, except in purely self-critical training, where
    a model learns from generated captions only. A model without a vision encoder needs the dimension of the features.
    """
    fields = dict(config.model)
    guest = new_models.trained_guest(config, "captioning", ONLY_OURS)
    if guest is not None:
        new_models.set_generation_defaults(guest[0], config.evaluation)
        return guest
    if "init_from" in fields:
        model, processor = fine_tuned_captioner(fields, config.data.image_size)
        if config.training.stage != "scst":
            learn_new_words(model, processor.tokenizer, captions, config.data.new_words)
    else:
        kind = new_models.new_config_class(fields, "captioning")
        tokenizer = tokenizer_of_trained_part(fields, kind)
        if tokenizer is None:
            tokenizer = new_tokenizer(captions, config.data)
        new_models.set_feature_size(fields, kind, visual_feature_size, config.data.spec)
        model = new_models.new_model(
            kind(**fields, **new_models.special_token_ids(tokenizer)), "AutoModelForImageTextToText"
        )
        processor = new_models.new_processor(model, tokenizer, config.data.image_size)
    for name in ("num_frames", "seconds_per_frame"):
        if getattr(config.data, name) is not None and processor.image_processor is not None:
            setattr(processor.image_processor, name, getattr(config.data, name))
    new_models.set_generation_defaults(model, config.evaluation)
    model.generation_config.suppress_tokens = [UNKNOWN_WORD_ID]
    return model, processor


def tokenizer_of_trained_part(fields: dict, kind: Any) -> Any:
    """Returns the tokenizer of the trained language model in the fields, if any; the captioner shares it."""
    key = kind.key_of_language_model(fields) if hasattr(kind, "key_of_language_model") else None
    if key is None:
        return None
    if not isinstance(fields.get(key), str):
        logger.warning(f"Warning: the language model is not trained; set model.{key}=DIR.")
        return None
    _, processor = load_model(fields[key], "language_modeling")
    fields[key] = find_model_folder(fields[key])
    return processor.tokenizer


def fine_tuned_captioner(fields: dict, image_size: int | None) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads the captioner in `init_from`; it keeps its vision encoder unless the config names another backbone."""
    folder, config = new_models.config_to_change(fields, "captioning")
    trained = config.vision_config
    is_new = has_another_backbone(fields.get("vision_config"), trained)
    how_trained = {}
    if not is_new and fields.get("vision_config") is not None:
        changed = {**trained.to_dict(), **fields["vision_config"], "pretrained": trained.pretrained}
        changed["transformers_version"] = None  # makes unknown keys errors, as in a config of a user
        new_vision = changed_config(config, {"vision_config": changed}).vision_config
        how_trained = {"frozen": new_vision.frozen, "save_frozen_weights": new_vision.save_frozen_weights}
        as_saved = {name: getattr(trained, name) for name in how_trained}  # loading needs to know where the weights are
        fields["vision_config"] = {**changed, **as_saved}
    model, processor = load_captioner(folder, new_vision=is_new, **fields)
    vision: Any = model.base_model.vision
    if how_trained:
        vision.config.update(how_trained)
        vision.requires_grad_(True).train(vision.training)
    if vision is None:
        processor = type(processor)(tokenizer=processor.tokenizer)
    elif is_new or processor.image_processor is None:
        processor = type(processor)(new_models.new_image_processor(vision, image_size), processor.tokenizer)
    else:
        if image_size is not None:
            processor.image_processor.size = SizeDict(height=image_size, width=image_size)
        new_models.check_image_size(vision, processor.image_processor)
    return model, processor


def has_another_backbone(vision: Mapping | None, trained: VisionConfig | None) -> bool:
    """Returns whether a `vision_config` describes another backbone than that of a trained captioner."""
    if vision is None or trained is None:
        return vision is not None
    source, described = vision.get("pretrained"), vision.get("backbone_config")
    backbone: Any = trained.backbone_config
    if source is not None and (trained.pretrained is None or lasting_name(source) != lasting_name(trained.pretrained)):
        return True
    if described is None:
        return False
    return backbone_settings(make_backbone_config(described, vision.get("out_features"))) != backbone_settings(backbone)


def attach_vision(
    captioner: str | os.PathLike, backbone: str | os.PathLike, *, leave_out_backbone: bool = False, **fields: Any
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner that was trained on features, with the vision encoder that extracted its features.

    Captions of photographs then equal those of their features. Checksums of vision encoder and preprocessing must be
    the same; if the captioner has none, only the feature dimension is compared, with a log message. `backbone` and
    `fields` are arguments of [`~hf_ngsan.extraction.load_vision`]; the weights of the backbone may be left out of the
    saved model.
    """
    config = load_config(captioner, "captioning")
    if config.vision_config is not None:
        raise ValueError(f"{captioner} already has a vision encoder.")
    if leave_out_backbone and os.path.isdir(backbone):
        raise ValueError(f"{backbone} is a local folder, so its weights must be saved with the model.")
    recorded = config.features_provenance
    if is_provenance(recorded) and recorded["kind"] in ("boxes", "frames"):
        fields["kind"] = recorded["kind"]
    vision, image_processor = load_vision(backbone, **fields)
    if is_provenance(recorded):
        if difference := provenance_difference(recorded, vision_provenance(vision, image_processor)):
            trained_on = f"those that {captioner} was trained on ({recorded['backbone_type']})"
            raise ValueError(f"{backbone} would make features with {difference} than {trained_on}.")
        vision.config.feature_dtype = "float16" if recorded.get("dtype") == "float16" else None
    elif vision.config.feature_size != config.visual_feature_size:
        dimensions = f"{vision.config.feature_size}, and that of {captioner} is {config.visual_feature_size}"
        raise ValueError(f"The feature dimension of {backbone} is {dimensions}; give the backbone of its features.")
    else:
        unchecked = "%s has no record of the origin of its features; only the feature dimension of %s was compared."
        logger.warning(unchecked, captioner, backbone)
    model, processor = load_captioner(captioner, new_vision=True, vision_config=vision.config.to_dict())
    model.base_model.get_submodule("vision").load_state_dict(vision.state_dict())
    model.config.vision_config.save_frozen_weights = not leave_out_backbone
    derive_from(model, [str(backbone)])
    return model, type(processor)(image_processor, processor.tokenizer)


class GuestObjective(Objective):
    """Inputs of a captioner of transformers, with the `memory` of encoded images and the `length` of captions."""

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
        """Returns a memory for images, if the encoder has one row of pixels per image."""
        pixels, encoder = visual.get("pixel_values"), self.guest.image_encoder
        if pixels is None or pixels.ndim != 4 or encoder is None:
            return None
        return ImageMemory(self.guest.model, encoder, len(pixels), keeps_graph)


class GuestTeacherForcing(GuestObjective, TeacherForcing):
    """The model's loss, the mean cross-entropy of a caption's tokens; label smoothing is the model's by default."""

    def __init__(self, guest: Guest, label_smoothing: float | None = None) -> None:
        self.guest = guest
        super().__init__(guest.label_smoothing if label_smoothing is None else label_smoothing)

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        visual = dict(inputs)
        beside = {name: visual.pop(name) for name in ("labels", "caption_weights") if name in visual}
        return {**self.with_captions(model, visual, beside["labels"]), **beside}


class GuestSelfCritical(GuestObjective, SelfCritical):
    """Self-critical training; all samples of an image come from one call of `generate()`."""

    def __init__(self, guest: Guest, rewards: CaptionRewards, settings: Any) -> None:
        self.guest = guest
        super().__init__(rewards, settings, policy_of(guest, settings))

    def encode(self, model: Any, visual: dict, keeps_graph: bool) -> tuple[dict, dict]:
        encoder = self.guest.image_encoder
        frozen = encoder is not None and not any(weight.requires_grad for weight in encoder.parameters())
        encoded = {**visual, "memory": self.new_memory(visual, keeps_graph=keeps_graph and not frozen)}
        return encoded, encoded if keeps_graph or frozen else visual

    def draw_captions(
        self, model: Any, encoded: dict, rows: torch.Tensor, update: Update
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        number = self.settings.samples_per_image
        greedy = self.generated(encoded) if self.settings.baseline == "greedy" else None
        if self.settings.decoding == "beam":
            return self.generated(encoded, num_beams=number, num_return_sequences=number), greedy
        draw = sampling_generate(self.policy, self.uniforms(rows, update).to(model.device))
        return self.generated(encoded, custom_generate=draw, do_sample=True, num_return_sequences=number), greedy

    def generated(self, encoded: dict, **settings: Any) -> torch.Tensor:
        """Returns the new tokens of `generate()`, without the prompt."""
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
    """Returns the policy of a captioner, which generates only the special tokens that captions have."""
    tokenizer, end = guest.tokenizer, guest.end_token_id
    pad_token_id = end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    config: Any = guest.model.config
    size = config.get_text_config(decoder=True).vocab_size
    image_ids = {getattr(config, name, None) for name in ("image_token_id", "video_token_id")} - {None}
    never = {*image_ids, *tokenizer.all_special_ids, *(guest.model.generation_config.suppress_tokens or ())}
    never -= {end, *guest.caption_ids("")}
    return Policy(
        eos_token_id=end,
        pad_token_id=pad_token_id,
        start_token_id=guest.start_token_ids[-1],
        suppressed_tokens=tuple(sorted(token for token in never if token < size)),
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
    )
