"""Captioners of transformers: preparation of inputs from images and texts, and decoding of captions.

The default description works for models whose processor and `generate` need only images and texts. A family that
differs has a small subclass; [`register_guest`] adds one. Pipelines, commands and training depend on no model type.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import transformers
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoProcessor,
    AutoTokenizer,
    BaseImageProcessor,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    VisionTextDualEncoderProcessor,
)
from transformers.feature_extraction_utils import BatchFeature
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.utils import ModelOutput

from ..data.collator import IGNORED_LABEL
from ..io import DEFAULT_CAPTION_LENGTH
from ..models.decoding import with_search
from ..models.images import load_image
from .dual_encoders import DUAL_ENCODERS, DualEncoder

LENGTHS = {"max_new_tokens", "max_length", "generation_config"}
CROSS_ATTENTION = re.compile(r"crossattention\..*\b(key|value|c_attn)$")
"""Names of layers in BERT-like and GPT-2-like decoders whose inputs are only images."""


class Guest:
    """A captioner of transformers, in evaluation mode, with its processor; the default description of a family.

    `default_prompt` is the text for the model if none is given. With `follows_prompts`, it is an instruction, as for
    Florence-2; otherwise captions begin with it, as for BLIP.
    """

    default_prompt: ClassVar[str | None] = None
    follows_prompts: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self.model: Any = model
        self.processor = processor

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    def inputs(self, image: Image.Image, text: str = "") -> BatchFeature:
        """Returns the arguments of `generate` for an upright RGB image; without a text, the default prompt is used."""
        return self.process(image, text or self.default_prompt)

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        """Calls the processor; `text` is `None` if there is no text."""
        return self.processor(images=image, **({} if text is None else {"text": text}), return_tensors="pt")

    def decode(self, sequences: torch.Tensor, inputs: BatchFeature) -> list[str]:
        """Decodes generated ids `(rows, length)`, any number of rows per image, into captions without prompts."""
        asked = inputs.get("input_ids")
        if self.follows_prompts and asked is not None:
            asked = asked.repeat_interleave(len(sequences) // len(asked), dim=0)
            if sequences.shape[1] >= asked.shape[1] and torch.equal(sequences[:, : asked.shape[1]], asked):
                sequences = sequences[:, asked.shape[1] :]
        return self.text_of(sequences)

    def text_of(self, sequences: torch.Tensor) -> list[str]:
        """Decodes generated ids `(rows, length)` after the prompt into captions."""
        return self.cleaned(self.tokenizer.batch_decode(sequences, skip_special_tokens=True))

    def cleaned(self, texts: list[str]) -> list[str]:
        """Returns decoded texts as captions, without double, leading and trailing spaces."""
        return [" ".join(text.split()) for text in texts]

    # For training only.

    label_smoothing: float = 0.0
    """Label smoothing of the model's loss, the mean cross-entropy of the tokens of captions."""
    beside_words: ClassVar[Mapping[str, int]] = {
        "token_type_ids": 0,
        "mm_token_type_ids": 0,
        "image_embeds_position_mask": 0,
    }
    """Inputs with a value for each token, and their value at tokens of captions."""

    @property
    def image_encoder(self) -> torch.nn.Module | None:
        """The part whose only input is images, one row of `pixel_values` each; `None` if there is none."""
        encoder = self.model.get_encoder("image")
        return None if encoder is self.model else encoder

    @property
    def end_token_id(self) -> int:
        """The last token of captions."""
        ends, default = self.model.generation_config.eos_token_id, self.tokenizer.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return default if default in ends or ends == [None] else ends[0]

    @property
    def start_token_ids(self) -> list[int]:
        """The tokens before the caption if the inputs have none."""
        settings = self.model.generation_config
        start = settings.decoder_start_token_id
        return [settings.bos_token_id if start is None else start]

    def caption_ids(self, caption: str) -> list[int]:
        """Returns the tokens of a training caption, including its end."""
        return [*self.tokenizer(caption, add_special_tokens=False)["input_ids"], self.end_token_id]

    def before_captions(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the decoder tokens before captions, `(images, length)`."""
        name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        if name in inputs:
            return inputs[name]
        images = next(iter(inputs.values()))
        return torch.tensor([self.start_token_ids], device=images.device).repeat(len(images), 1)

    def batch(self, images: Sequence[Any], captions: Sequence[Sequence[str | None]] | None) -> dict[str, torch.Tensor]:
        """Returns the inputs of images, and `labels (images * C, T)` of C captions each, with -100 after their ends.

        A missing caption is `None`. Raises a ValueError for images whose inputs have different shapes.
        """
        groups = list(batches(self.inputs(load_image(image)) for image in images))
        if len(groups) > 1:
            kind = self.model.config.model_type
            raise ValueError(f"The inputs of {kind} differ in shape; set gradient_accumulation_steps to batch_size.")
        inputs = dict(groups[0][1])
        if captions:
            ids = [[] if text is None else self.caption_ids(text) for texts in captions for text in texts]
            longest = max(map(len, ids))
            inputs["labels"] = torch.tensor([row + [IGNORED_LABEL] * (longest - len(row)) for row in ids])
        return inputs

    def with_captions(self, inputs: Mapping[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns arguments of `forward` such that the last T logits belong to the captions, labels `(B * C, T)`.

        Captions of an image are next to each other; all inputs except `pixel_values` are repeated for them.
        """
        before = self.before_captions(inputs)
        each = len(labels) // len(before)
        model_inputs = dict(inputs)
        for name in inputs.keys() - {"pixel_values"}:
            model_inputs[name] = inputs[name].repeat_interleave(each, dim=0)
        is_word = labels != IGNORED_LABEL
        before, words = before.repeat_interleave(each, dim=0), labels.masked_fill(~is_word, 0)[:, :-1]
        ids = torch.cat([before, words], dim=1)
        if self.model.config.is_encoder_decoder:
            return {**model_inputs, "decoder_input_ids": ids}
        known = model_inputs.get("attention_mask", torch.ones_like(before))
        for name in self.beside_words.keys() & model_inputs.keys():
            number = torch.full_like(words, self.beside_words[name], dtype=model_inputs[name].dtype)
            model_inputs[name] = torch.cat([model_inputs[name], number], dim=1)
        mask = torch.cat([known, is_word[:, :-1].to(known.dtype)], dim=1)
        return {**model_inputs, "input_ids": ids, "attention_mask": mask}


class Blip(Guest):
    """BLIP (Li et al. 2022)."""

    @property
    def label_smoothing(self) -> float:  # type: ignore[override]
        return self.model.config.text_config.label_smoothing

    @property
    def end_token_id(self) -> int:
        return self.model.config.text_config.sep_token_id

    @property
    def start_token_ids(self) -> list[int]:
        return [self.model.config.text_config.bos_token_id]


class Blip2(Guest):
    """BLIP-2 (Li et al. 2023): each image is a number of tokens before the text."""

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        inputs, config = super().process(image, text), self.model.config
        if text is None and config.image_token_index is not None:
            ids = [config.image_token_index] * config.num_query_tokens
            if not config.is_encoder_decoder:
                ids.append(config.text_config.bos_token_id)
            inputs["input_ids"] = torch.tensor([ids])
            inputs["attention_mask"] = torch.ones(1, len(ids), dtype=torch.long)
        return inputs


class Git(Guest):
    """GIT (Wang et al. 2022): the text begins the sequence, without an end token."""

    @property
    def image_encoder(self) -> torch.nn.Module | None:
        return self.model.git.image_encoder

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        inputs = super().process(image, None)
        if text is not None:
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            inputs["input_ids"] = torch.tensor([[self.tokenizer.cls_token_id, *ids]])
        return inputs


class VisionEncoderDecoder(Guest):
    """Any vision encoder with any text decoder (ViT-GPT2, TrOCR): the decoder input begins with the text."""

    @property
    def image_encoder(self) -> torch.nn.Module | None:
        return self.model.encoder

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        inputs = self.processor.image_processor(image, return_tensors="pt")
        if text is not None:
            settings, config = self.model.generation_config, self.model.config.decoder
            start = [settings.decoder_start_token_id, settings.bos_token_id, config.bos_token_id]
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            inputs["decoder_input_ids"] = torch.tensor([[next(token for token in start if token is not None), *ids]])
        return inputs


class Florence2(Guest):
    """Florence-2 (Xiao et al. 2024): the prompts are tasks, such as `<CAPTION>` and `<DETAILED_CAPTION>`."""

    default_prompt = "<CAPTION>"
    follows_prompts = True

    def caption_ids(self, caption: str) -> list[int]:
        return [self.tokenizer.bos_token_id, *super().caption_ids(caption)]


class Kosmos2(Guest):
    """Kosmos-2 (Peng et al. 2023): marks of phrases and boxes are removed from captions."""

    default_prompt = "An image of"

    def cleaned(self, texts: list[str]) -> list[str]:
        return super().cleaned([self.processor.post_process_generation(text)[0] for text in texts])


class PaliGemma(Guest):
    """PaliGemma (Beyer et al. 2024): the prompt names the task and the language."""

    default_prompt = "caption en"
    follows_prompts = True
    beside_words = {"token_type_ids": 1}

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        return super().process(image, f"{self.processor.image_token}{text}")

    def with_captions(self, inputs: Mapping[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        prompt = torch.zeros_like(inputs["input_ids"])  # prompt tokens attend to each other; caption tokens are causal
        return super().with_captions({**inputs, "token_type_ids": prompt}, labels)


class InstructBlip(Guest):
    """InstructBLIP (Dai et al. 2023): the question goes to the language model and to the query transformer."""

    default_prompt = "Describe this image in one sentence."
    follows_prompts = True


class Chat(InstructBlip):
    """Chat models (SmolVLM, Qwen-VL, LLaVA, ...): the prompt is a question in the processor's chat template."""

    def process(self, image: Image.Image, text: str | None) -> BatchFeature:
        content = [{"type": "image"}, {"type": "text", "text": text}]
        chat = self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        return self.processor(images=[image], text=[chat], return_tensors="pt")


GUESTS: dict[str, type[Guest]] = {
    "blip": Blip,
    "blip-2": Blip2,
    "git": Git,
    "vision-encoder-decoder": VisionEncoderDecoder,
    "instructblip": InstructBlip,
    "florence2": Florence2,
    "kosmos-2": Kosmos2,
    "paligemma": PaliGemma,
}
"""Descriptions by model type."""


def register_guest(model_type: str, description: type[Guest] | type[DualEncoder]) -> None:
    """Adds the description of a captioner or dual encoder, or replaces an existing one.

    The model may be part of transformers, or registered with `AutoConfig` and `AutoModel` by another package.
    """
    table: dict = DUAL_ENCODERS if issubclass(description, DualEncoder) else GUESTS
    table[model_type] = description


def guest_of(model: PreTrainedModel, processor: Any) -> Guest:
    """Returns the description of a captioner: that of its model type, of chat models, or the default."""
    chats = getattr(processor, "chat_template", None) is not None
    return GUESTS.get(model.config.model_type, Chat if chats else Guest)(model, processor)


def batches(inputs: Iterable[BatchFeature]) -> Iterator[tuple[list[int], BatchFeature]]:
    """Yields indices and joined inputs of images whose shapes agree, so that no padding is needed."""
    alike: dict[tuple, list[tuple[int, BatchFeature]]] = {}
    for place, image in enumerate(inputs):
        alike.setdefault(tuple((name, image[name].shape) for name in sorted(image)), []).append((place, image))
    for group in alike.values():
        places, parts = zip(*group, strict=True)
        yield list(places), BatchFeature({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def generated(guest: Guest, inputs: BatchFeature, **generate_arguments: Any) -> tuple[BatchFeature, torch.Tensor]:
    """Moves inputs of the same shapes to the model's device; returns them and the sequences of `generate`."""
    settings = guest.model.generation_config
    if "generation_config" not in generate_arguments:  # the text decoder of BLIP has no generation config
        defaults = {name: getattr(settings, name) for name in ("num_beams", "length_penalty", "max_new_tokens")}
        if "max_length" in generate_arguments:
            del defaults["max_new_tokens"]
        generate_arguments = {name: value for name, value in defaults.items() if value is not None} | generate_arguments
    if not (LENGTHS & generate_arguments.keys() or settings.max_new_tokens or settings.max_length):
        # generate() would use the same, with a warning at every call
        generate_arguments["max_new_tokens"] = DEFAULT_CAPTION_LENGTH
    inputs = inputs.to(guest.model.device, guest.model.dtype)
    outputs = guest.model.generate(**inputs, **with_search(generate_arguments, guest.processor))
    return inputs, getattr(outputs, "sequences", outputs)


def caption_images_of(guest: Guest, images: Sequence[Any], texts: Sequence[str] | None, **arguments: Any) -> list[str]:
    """Returns a caption for each image with the model's `generate`, one sequence per image.

    Images are anything that [`~hf_ngsan.models.image_processing_captioning.load_image`] reads; for texts, see
    [`Guest.inputs`].
    """
    texts = [""] * len(images) if texts is None else texts
    inputs_of_images = [guest.inputs(load_image(image), text) for image, text in zip(images, texts, strict=True)]
    captions: dict[int, str] = {}
    for places, together in batches(inputs_of_images):
        inputs, sequences = generated(guest, together, **arguments)
        captions |= dict(zip(places, guest.decode(sequences, inputs), strict=True))
    return [captions[place] for place in range(len(images))]


def task_of_guest(described: Mapping) -> str | None:
    """Returns the task of a model of another package from its config.json: "captioning", "retrieval" or None.

    Captioners are models that `AutoModelForImageTextToText` loads, and dual encoders are models with
    `get_image_features` and `get_text_features`. Models outside of transformers need [`register_guest`].
    """
    name = str((described.get("architectures") or [None])[0])
    if name in DUAL_ENCODERS:
        return "retrieval"
    if name in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values():
        return "captioning"
    kind, model_type = getattr(transformers, name, None), described.get("model_type")
    if kind is not None:
        is_dual = hasattr(kind, "get_image_features") and hasattr(kind, "get_text_features")
        return "retrieval" if is_dual else None
    return "retrieval" if model_type in DUAL_ENCODERS else "captioning" if model_type in GUESTS else None


def image_text_processor(folder: str, parts: Sequence[Any] = ()) -> ProcessorMixin:
    """Returns the processor of a checkpoint, or a new one from its tokenizer and image processor (or `parts`)."""
    parts = parts or [AutoProcessor.from_pretrained(folder, trust_remote_code=False)]  # nosec B615

    def first(kind: type) -> Any:
        return next((part for part in parts if isinstance(part, kind)), None)

    if (processor := first(ProcessorMixin)) is not None:
        return processor
    return VisionTextDualEncoderProcessor(
        first(BaseImageProcessor) or AutoImageProcessor.from_pretrained(folder, trust_remote_code=False),  # nosec B615
        first(PreTrainedTokenizerBase) or AutoTokenizer.from_pretrained(folder, trust_remote_code=False),  # nosec B615
    )


class ImageMemory:
    """Encodes images once for all captions that are sampled, scored and trained with them.

    While it is active, the image encoder of the model returns its first output again, with the rows of an image next to
    each other. Keys and values of images in cross-attention are also computed only once per image. With `keeps_graph`,
    the encoding has a graph, even inside `generate()`.
    """

    def __init__(self, model: torch.nn.Module, encoder: torch.nn.Module, num_images: int, keeps_graph: bool) -> None:
        self.encoder, self.num_images, self.keeps_graph = encoder, num_images, keeps_graph
        self.projections = [layer for name, layer in model.named_modules() if CROSS_ATTENTION.search(name)]
        self.output: Any = None

    @contextmanager
    def active(self, captions_per_image: int = 1) -> Iterator[None]:
        """Makes the model use the memory; `captions_per_image` is the number of rows for each image."""

        def remembered(forward: Callable, *args: Any, **kwargs: Any) -> Any:
            values = [*args, *kwargs.values()]
            rows = next(len(value) for value in values if torch.is_tensor(value)) * captions_per_image
            if self.output is None:
                once = {name: self.once(value) for name, value in kwargs.items()}
                with torch.set_grad_enabled(self.keeps_graph):
                    self.output = forward(*map(self.once, args), **once)
            return repeated(self.output, rows // self.num_images)

        def projected(forward: Callable, states: torch.Tensor) -> torch.Tensor:
            each = len(states) // self.num_images
            return forward(states) if each == 1 else forward(states[::each].contiguous()).repeat_interleave(each, dim=0)

        changed = [(self.encoder, remembered), *((layer, projected) for layer in self.projections)]
        try:
            for module, function in changed:
                module.forward = functools.wraps(module.forward)(functools.partial(function, module.forward))
            yield
        finally:
            for module, _ in changed:
                del module.forward

    def once(self, value: Any) -> Any:
        return value[:: len(value) // self.num_images] if torch.is_tensor(value) else value


def repeated(output: Any, each: int) -> Any:
    """Repeats each row of a model output `each` times."""
    if torch.is_tensor(output):
        return output if each == 1 else output.repeat_interleave(each, dim=0)
    if isinstance(output, ModelOutput):
        return type(output)(**{name: repeated(value, each) for name, value in output.items()})
    return tuple(repeated(value, each) for value in output) if isinstance(output, tuple) else output
