"""Dual encoders of transformers: preparation of inputs from images and texts, and computation of embeddings.

The default description works for every model with `get_image_features` and `get_text_features`. A family that differs
has a small subclass; [`~hf_ngsan.guests.register_guest`] adds one.
"""

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partialmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.nn.functional import logsigmoid, normalize
from transformers import BaseImageProcessor, PreTrainedConfig, PreTrainedModel

from ..io.files import sha256
from ..models.contrastive_losses import pair_losses
from ..models.images import load_image
from ..models.modeling_vision import cell_boxes
from ..registry import own_model_types

EXPORTED_SETTINGS = "dual_encoder.json"
"""File of an exported dual encoder: embedding dimension, maximum tokens of a text, and whether texts are padded."""
TOWERS = ("image", "text")


class DualEncoder:
    """A dual encoder of transformers, in evaluation mode, with its processor; the default description of a family."""

    padding: ClassVar[str] = "longest"  # padding of texts
    cell_boxes = staticmethod(cell_boxes)  # for figures, which do not import models

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self.model: Any = model
        self.processor = processor

    @property
    def image_processor(self) -> BaseImageProcessor | None:
        return self.processor.image_processor

    @property
    def longest_text(self) -> int:
        """Maximum tokens of the text encoder, including special tokens."""
        text = self.model.config.get_text_config()
        return min(self.processor.tokenizer.model_max_length, getattr(text, "max_position_embeddings", 2**31))

    @cached_property
    def dimension(self) -> int:
        """Embedding dimension; a text is embedded once to find it."""
        return self.embed_texts(self.text_inputs(["a"])).shape[-1]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Returns the numbers of tokens of texts, including special tokens."""
        ids = self.processor.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return [len(token_ids) for token_ids in ids]

    def image_inputs(self, images: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Returns the inputs of images, read by [`~hf_ngsan.models.image_processing_captioning.load_image`]."""
        return dict(self.processor.image_processor(images=list(map(load_image, images)), return_tensors="pt"))

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns the inputs of texts, truncated to [`longest_text`]."""
        cut = {"padding": self.padding, "truncation": True, "max_length": self.longest_text}
        return dict(self.processor.tokenizer(list(texts), **cut, return_tensors="pt"))

    def embed_images(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns embeddings of images, float32 `(images, dimension)` of length 1, with a graph if gradients are on."""
        return self.embedded(self.model.get_image_features, inputs)

    def embed_texts(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns embeddings of texts, float32 `(texts, dimension)` of length 1, with a graph if gradients are on."""
        return self.embedded(self.model.get_text_features, inputs)

    def embedded(self, features_of: Callable, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parameters = inspect.signature(features_of).parameters.values()
        names = {field.name for field in parameters if field.kind is not field.VAR_KEYWORD} or inputs.keys()
        features = features_of(**{name: self.placed(value) for name, value in inputs.items() if name in names})
        return normalize(getattr(features, "pooler_output", features).float(), dim=-1)

    @property
    def loss_parameters(self) -> list[torch.nn.Parameter]:
        """Weights that are used only in the model's loss: the scale of the cosines, and SigLIP's bias."""
        weights = (getattr(self.model, name, None) for name in ("logit_scale", "logit_bias", "temperature"))
        return [weight for weight in weights if isinstance(weight, torch.nn.Parameter)]

    def pair_losses(self, cosines: torch.Tensor, is_own: torch.Tensor) -> torch.Tensor:
        """Returns the loss `(M,)` of each pair of a text and its image; the model's loss is their mean.

        The arguments are cosines `(B, M)` of B images and M texts, and the mask of matching pairs. The default is
        CLIP's loss, cross-entropy over the texts and over the images of a batch (Radford et al. 2021).
        """
        return pair_losses(cosines * self.model.logit_scale.exp(), is_own, "info_nce", temperature=1.0)

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Moves an input to the device of the model; floating-point inputs also to its precision."""
        return tensor.to(self.model.device, self.model.dtype if tensor.is_floating_point() else None)


class PaddedTexts(DualEncoder):
    """SigLIP (Zhai et al. 2023), SigLIP 2 and ALIGN, which were trained with texts padded to a fixed length."""

    padding = "max_length"

    @property
    def longest_text(self) -> int:
        return min(super().longest_text, 64)


class Siglip(PaddedTexts):
    """SigLIP and SigLIP 2: binary cross-entropy for every pair of an image and a text."""

    def pair_losses(self, cosines: torch.Tensor, is_own: torch.Tensor) -> torch.Tensor:
        logits = cosines * self.model.logit_scale.exp() + self.model.logit_bias
        return -logsigmoid(torch.where(is_own, logits, -logits)).sum(0)


class Align(PaddedTexts):
    """ALIGN (Jia et al. 2021): CLIP's loss with a temperature and label smoothing of 0.1 over the batch."""

    def pair_losses(self, cosines: torch.Tensor, is_own: torch.Tensor) -> torch.Tensor:
        logits = cosines / self.model.temperature
        image_of, number = is_own.long().argmax(0), torch.arange(logits.shape[1], device=logits.device)
        others = is_own[image_of].index_put((number, number), torch.tensor(False, device=logits.device))
        text_losses = cross_entropy(logits[image_of], number, others)
        return (text_losses + cross_entropy(logits.mT, image_of, torch.zeros_like(is_own.mT))) / 2


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, left_out: torch.Tensor) -> torch.Tensor:
    """Returns cross-entropy `(rows,)` with label smoothing of 0.1, over the logits that are not left out."""
    log_probabilities = logits.masked_fill(left_out, -torch.inf).log_softmax(-1)
    target = log_probabilities.gather(-1, targets[:, None]).squeeze(-1)
    mean = log_probabilities.masked_fill(left_out, 0.0).sum(-1) / (~left_out).sum(-1)
    return -(0.9 * target + 0.1 * mean)


class RobertaTexts(DualEncoder):
    """AltCLIP (Chen et al. 2022): the text encoder counts positions from the id of the padding token on."""

    @property
    def longest_text(self) -> int:
        return super().longest_text - self.model.config.get_text_config().pad_token_id - 1


class BlipRetrieval(DualEncoder):
    """BLIP's retrieval model (Li et al. 2022), without its image-text matching head."""

    def embed_images(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        states = self.model.vision_model(self.placed(inputs["pixel_values"])).last_hidden_state
        return normalize(self.model.vision_proj(states[:, 0]).float(), dim=-1)

    def embed_texts(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        placed = {name: self.placed(inputs[name]) for name in ("input_ids", "attention_mask")}
        states = self.model.text_encoder(**placed).last_hidden_state
        return normalize(self.model.text_proj(states[:, 0]).float(), dim=-1)


class OwnDualEncoder(DualEncoder):
    """A dual encoder of this package; its embeddings have length 1, and it may read visual features."""

    @property
    def image_processor(self) -> Any:
        return None if self.model.vision is None else self.processor.image_processor

    @property
    def longest_text(self) -> int:
        return self.processor.tokenizer.model_max_length

    @property
    def dimension(self) -> int:
        return self.model.config.projection_dim

    def image_inputs(self, images: Sequence[Any]) -> dict[str, torch.Tensor]:
        return dict(self.processor(images=list(map(load_image, images))))

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        from ..data.vocabulary import with_words  # imports `datasets`, which takes seconds

        return dict(self.processor(text=with_words(self.processor.tokenizer, texts), truncation=True))

    def embedded(self, features_of: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        placed = {name: value.to(self.model.device) for name, value in inputs.items()}
        return features_of(**placed).pooler_output.float()


class ExportedDualEncoder(DualEncoder):
    """A dual encoder written by [`~hf_ngsan.exporting.folder.write_exported_dual_encoder`], with its processor."""

    @property
    def longest_text(self) -> int:
        return self.model.settings["longest_text"]

    @property
    def dimension(self) -> int:
        return self.model.settings["dimension"]

    @property
    def padding(self) -> str:  # type: ignore[override]
        return "max_length" if self.model.settings["fixed_length"] else "longest"

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        from ..data.vocabulary import with_words

        is_own = self.model.config.model_type in own_model_types()
        return super().text_inputs(with_words(self.processor.tokenizer, texts) if is_own else texts)


class ExportedModel(torch.nn.Module):
    """The two graphs of a dual encoder exported by `hf-ngsan export`, with the interface for commands."""

    checksum: torch.Tensor

    def __init__(self, folder: str | Path, config: PreTrainedConfig) -> None:
        super().__init__()
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
        except ImportError:
            needed = 'an exported dual encoder, which needs ONNX Runtime; pip install "hf-ngsan[export]"'
            raise ValueError(f"{folder} is {needed}.") from None
        self.config, self.name_or_path = config, str(folder)
        self.settings: dict[str, Any] = json.loads(Path(folder, EXPORTED_SETTINGS).read_text(encoding="utf-8"))
        digest, self.sessions = hashlib.sha256(), {}
        for tower in TOWERS:
            for file in sorted(Path(folder).glob(f"{tower}.onnx*")):  # with its weights, if they are in a separate file
                digest.update(bytes.fromhex(sha256(file)))
            path = str(Path(folder) / f"{tower}.onnx")
            self.sessions[tower] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        # Part of the weights, so that the fingerprint of an index identifies these graphs.
        self.register_buffer("checksum", torch.tensor(list(digest.digest()), dtype=torch.uint8))

    device, dtype = torch.device("cpu"), torch.float32

    def run(self, tower: str, **inputs: torch.Tensor) -> torch.Tensor:
        session = self.sessions[tower]
        arrays = {argument.name: inputs[argument.name].cpu().numpy() for argument in session.get_inputs()}
        return torch.from_numpy(session.run(None, arrays)[0])

    get_image_features, get_text_features = partialmethod(run, "image"), partialmethod(run, "text")


def is_exported(folder: str | Path) -> bool:
    return (Path(folder) / EXPORTED_SETTINGS).is_file()


DUAL_ENCODERS: dict[str, type[DualEncoder]] = {
    "siglip": Siglip,
    "siglip2": Siglip,
    "align": Align,
    "altclip": RobertaTexts,
    "BlipForImageTextRetrieval": BlipRetrieval,
}
"""Descriptions by model type, or by class name if a model type has several uses."""


def dual_encoder_of(model: PreTrainedModel, processor: Any) -> DualEncoder:
    """Returns the description of a dual encoder of transformers or of this package, exported or not."""
    if isinstance(model, ExportedModel):
        return ExportedDualEncoder(model, processor)
    model_type = model.config.model_type
    default = OwnDualEncoder if model_type in own_model_types() else DualEncoder
    description = DUAL_ENCODERS.get(type(model).__name__) or DUAL_ENCODERS.get(model_type, default)
    return description(model, processor)
