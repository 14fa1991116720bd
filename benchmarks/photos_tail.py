"""NG-SAN with the last two stages of an EfficientNet-Lite2, whose features are the maps of stage 5.

Stages 1 to 5 are frozen while `ngsan-photos` is trained, so they encode each photograph and its augmented copies once,
and every epoch starts at stage 6, in half the time of a training from pixels. `hf-ngsan --import photos_tail` registers
the model type; `photos_captioner.py` converts captioners with a vision encoder to it and back.
"""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from hf_ngsan import register_model_type
from hf_ngsan.models.backbone_sources import packaged_backbone_config
from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteConfig, make_efficientnet_stage
from hf_ngsan.models.modeling_ngsan import NGSANEncoder, NGSANForConditionalGeneration, NGSANModel
from hf_ngsan.models.modeling_vision import BATCH_NORMS, cell_boxes
from hf_ngsan.models.processing_ngsan import NGSANProcessor  # noqa: F401  # a class of the model type

BACKBONE = "efficientnet-lite2"
STAGES = ("stage6", "stage7")
ENCODER_PARTS = ("input_proj", "geometry_embedding", "layers")


class TailConfig(NGSANConfig):
    model_type = "ngsan_tail"
    remote_classes = {
        "AutoConfig": "photos_tail.TailConfig",
        "AutoModel": "photos_tail.TailModel",
        "AutoModelForImageTextToText": "photos_tail.TailForConditionalGeneration",
        "AutoProcessor": "photos_tail.NGSANProcessor",
    }


class Tail(nn.Module):
    """The last stages of the backbone, with frozen statistics of batch normalization."""

    is_vision_encoder = True  # it is trained with `training.vision_learning_rate`

    def __init__(self) -> None:
        super().__init__()
        backbone = NGSANEfficientNetLiteConfig(**packaged_backbone_config(BACKBONE))
        self.config = SimpleNamespace(has_own_backbone=True)
        self.stages = nn.ModuleDict({name: make_efficientnet_stage(backbone, int(name[-1]) - 1) for name in STAGES})
        self.feature_size = backbone.hidden_sizes[-1]

    def train(self, mode: bool = True) -> "Tail":
        super().train(mode)
        for module in self.modules():
            if isinstance(module, BATCH_NORMS):
                module.eval()
        return self

    def forward(self, visual_features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Converts the cells `(B, 4 N, 120)` of stage 5 to cells `(B, N, 352)` and their boxes `(B, N, 4)`."""
        side = round(visual_features.shape[1] ** 0.5)
        maps = visual_features.mT.unflatten(2, (side, side)).to(memory_format=torch.channels_last)
        for stage in self.stages.values():
            maps = stage(maps)
        boxes = cell_boxes(*maps.shape[-2:]).to(maps.device)
        return maps.flatten(2).mT, boxes.expand(maps.shape[0], -1, -1)


class TailEncoder(NGSANEncoder):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.tail = Tail()
        self.config = copy.copy(config)
        self.config.visual_feature_size = self.tail.feature_size
        self.input_proj = nn.Linear(self.tail.feature_size, config.hidden_size)

    def forward(self, visual_features: Any = None, *_: Any, **kwargs: Any) -> BaseModelOutput:  # type: ignore[override]
        features, boxes = self.tail(visual_features.to(self.dtype))
        kwargs = {name: value for name, value in kwargs.items() if name not in ("visual_boxes", "attention_mask")}
        return super().forward(features, visual_boxes=boxes, **kwargs)


class TailModel(NGSANModel):
    config_class = TailConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = TailEncoder(config)
        self.post_init()

    def forward(self, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:  # all cells are real
        return super().forward(*args, **kwargs)


class TailForConditionalGeneration(NGSANForConditionalGeneration):
    config_class = TailConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = TailModel(config)
        self.post_init()


register_model_type(TailConfig, "captioning")


@torch.no_grad()
def copy_captioner(captioner: Any, model: Any) -> None:
    """Copies all weights except those of words from a captioner with a vision encoder to a model of this file, or the
    other way round."""
    full, behind = (captioner, model) if isinstance(model, TailForConditionalGeneration) else (model, captioner)
    to_tail = behind is model
    parts = [(full.model.vision.backbone.stages[name], behind.model.encoder.tail.stages[name]) for name in STAGES]
    parts += [(getattr(full.model.encoder, name), getattr(behind.model.encoder, name)) for name in ENCODER_PARTS]
    parts += [(full.model.decoder.layers, behind.model.decoder.layers)]
    for full_part, tail_part in parts:
        source, target = (full_part, tail_part) if to_tail else (tail_part, full_part)
        target.load_state_dict(source.state_dict())
