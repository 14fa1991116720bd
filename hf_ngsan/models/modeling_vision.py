"""From pixels to visual tokens: a grid of a backbone's cells, or the regions of a detection model."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.utils import SAFE_WEIGHTS_NAME, ModelOutput

from .configuration_hub import from_part
from .configuration_vision import OWN_CONFIGS, VisionConfig, make_transformers_backbone
from .modeling_base import HubPreTrainedModel, refuse_unknown_keywords

SAMPLES_PER_SIDE = 7
"""Points of RoIAlign on each side of a box, as in Faster R-CNN heads (He et al. 2017)."""
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass
class VisionOutput(ModelOutput):
    """Visual tokens.

    Args:
        visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, feature_size)`): 0 at padding.
        visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`): `x1, y1, x2, y2` divided by width
            and height of the image without its padding.
        attention_mask (`torch.LongTensor` of shape `(batch_size, num_regions)`): 1 = real, 0 = padding.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*): hidden states of the backbone, if requested.
    """

    visual_features: torch.Tensor | None = None
    visual_boxes: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


class VisionModel(HubPreTrainedModel):
    r"""Turns pixels into visual tokens with boxes; a part of captioners, and a model of its own for extraction.

    A backbone without a weight that requires a gradient is run without gradients, and `train()` leaves it in evaluation
    mode; `train()` freezes all its weights if `config.frozen`.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import VisionConfig, VisionModel

    >>> backbone = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}
    >>> vision = VisionModel(VisionConfig(backbone_config=backbone, grid_size=[3, 3])).eval()
    >>> vision(torch.rand(2, 3, 32, 32)).visual_boxes.shape
    torch.Size([2, 9, 4])

    ```
    """

    config: VisionConfig
    is_vision_encoder = True
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    base_model_prefix = ""
    supports_gradient_checkpointing = False
    _can_compile_fullgraph = False

    def __init__(self, config: VisionConfig):
        super().__init__(config)
        self.backbone = make_backbone(config)
        if not config.save_frozen_weights:
            self._keys_to_ignore_on_load_missing = {r"(^|\.)backbone\."}
        self.post_init()
        # On `meta` from_pretrained only builds the model; it loads all weights later.
        if config.pretrained and self.device.type != "meta":
            self.backbone.load_state_dict(self.pretrained_weights())
        self.train(self.training)

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        if not self.config.save_frozen_weights and is_main_process:
            # nothing is left to save, of which transformers writes no file, but it asks for one when loading
            os.makedirs(save_directory, exist_ok=True)
            save_file({}, Path(save_directory) / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)

    @classmethod
    def from_backbone(cls, name: str | os.PathLike, **fields: Any) -> "VisionModel":
        """Makes a vision encoder around a trained backbone or detection model.

        Args:
            name: folder or Hub name.
            fields: other fields of [`VisionConfig`].

        Raises:
            ValueError: there is no such model, or it is no backbone and no detection model.
        """
        return cls(VisionConfig(**{"pretrained": str(name), **fields})).eval()

    def pretrained_weights(self) -> dict[str, torch.Tensor]:
        """Returns the backbone's weights in the folder, package or Hub repository of `config.pretrained`.

        Raises:
            ValueError: weights are missing there, or have another shape.
            MissingBackboneError: there is no such model.
        """
        return from_part("vision_sources.source_weights")(self.backbone, self.config.pretrained)

    @property
    def is_frozen(self) -> bool:
        """Whether no weight of the backbone requires a gradient."""
        return not any(weight.requires_grad for weight in self.backbone.parameters())

    def train(self, mode: bool = True) -> "VisionModel":
        super().train(mode)
        if self.config.frozen:  # also after loading, which makes every weight trainable
            self.backbone.requires_grad_(False)
        if self.is_frozen:
            self.backbone.eval()
        elif self.config.frozen_batch_norm:
            for module in self.backbone.modules():
                if isinstance(module, BATCH_NORMS):
                    module.eval()
        return self

    def forward(
        self,
        pixel_values: torch.Tensor,
        pixel_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> VisionOutput:
        r"""
        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`).
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding,
                on the right and below. Images of one size are encoded together and without padding, so that an image
                gives the same tokens in any batch.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): regions in place
                of the grid's cells: each is the mean of 7 x 7 points of the feature map within its box.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): which of these regions are
                real.
            output_hidden_states (`bool`, *optional*): also return the hidden states of the backbone, of images of one
                size.

        Raises:
            ValueError: images of a size that the backbone cannot take, or boxes for a detection model.
        """
        refuse_unknown_keywords(self, kwargs)
        pixel_values = pixel_values.to(self.dtype, memory_format=torch.channels_last)  # faster convolutions
        see: Any = self.see_grid if self.config.kind == "grid" else self.see_regions
        asked_for = {"output_hidden_states": True} if output_hidden_states else {}  # which not every backbone takes
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            if pixel_mask is None:
                output = see(pixel_values, visual_boxes, **asked_for)
            else:
                output = in_groups_of_one_size(see, pixel_values, pixel_mask, visual_boxes)
        if visual_boxes is not None and attention_mask is not None:
            mask = attention_mask.to(output.attention_mask)
            output.attention_mask = mask
            output.visual_features = output.visual_features * mask[..., None]
        if self.config.feature_dtype is not None:
            stored = output.visual_features.to(getattr(torch, self.config.feature_dtype))
            output.visual_features = stored.to(output.visual_features.dtype)
        return output

    def see_grid(
        self, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, **asked_for: bool
    ) -> VisionOutput:
        if self.config.kind_of_backbone == "patch_encoders":
            found = from_part("patch_encoders.see_patches")(self.backbone, pixel_values, **asked_for)
        else:
            found = self.backbone(pixel_values, **asked_for)
        feature_map = side_by_side(found.feature_maps)
        seen = seen_share(self.config.backbone_config, feature_map, pixel_values)
        if visual_boxes is not None:
            features, boxes = region_features(feature_map, visual_boxes / seen.to(visual_boxes)), visual_boxes
        else:
            if self.config.grid_size is not None:
                rows, columns = self.config.grid_size
                feature_map = nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns))
            boxes = cell_boxes(*feature_map.shape[-2:]).to(pixel_values.device) * seen
            features, boxes = feature_map.flatten(2).mT, boxes.expand(len(pixel_values), -1, -1)
        mask = torch.ones(features.shape[:2], dtype=torch.long, device=features.device)
        return VisionOutput(features, boxes, mask, found.hidden_states if asked_for else None)

    def see_regions(
        self, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, **asked_for: bool
    ) -> VisionOutput:
        if visual_boxes is not None:
            raise ValueError(
                "This vision encoder detects its regions itself; leave visual_boxes out, or give visual_features "
                "in place of pixel_values."
            )
        self.check_size(*pixel_values.shape[-2:])
        detected = self.backbone(pixel_values, **asked_for)
        best_regions = from_part("detection_models.best_regions")
        features, boxes, mask = best_regions(detected, self.backbone.config.num_labels, self.config)
        states = getattr(detected, "hidden_states", None) if asked_for else None
        return VisionOutput(features, boxes, mask, states)

    def check_size(self, height: int, width: int) -> None:
        """Raises a ValueError if images of a size are none that the backbone can take.

        Detection models with a pyramid of maps (RT-DETR, D-FINE, ...) and patch encoders cannot take every size.
        """
        if self.config.kind_of_backbone != "grid":
            from_part(f"{self.config.kind_of_backbone}.check_size")(self.backbone, height, width)


def make_backbone(config: VisionConfig) -> Any:
    """Makes the backbone or detection model of a vision encoder, with new weights.

    Raises:
        ValueError: its feature maps have other channels than the configuration says, or see
            [`make_transformers_backbone`].
    """
    backbone_config: Any = config.backbone_config
    if config.kind == "regions":
        return make_transformers_backbone("AutoModelForObjectDetection", backbone_config)
    if config.kind_of_backbone == "patch_encoders":
        backbone = from_part("patch_encoders.make_patch_encoder")(backbone_config)
        channels = backbone_config.hidden_size * len(backbone_config.out_features)
    else:
        if backbone_config.model_type in OWN_CONFIGS:
            backbone = from_part(backbone_config.remote_classes["AutoBackbone"])(backbone_config)
        else:
            backbone = make_transformers_backbone("AutoBackbone", backbone_config)
        channels = sum(backbone.channels)
    if channels != config.feature_size:
        raise ValueError(
            f"feature_size is {config.feature_size}, but the feature maps of this backbone have {channels} channels."
        )
    return backbone


def side_by_side(feature_maps: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the channels of all feature maps `(batch_size, channels, rows, columns)`, in the cells of the last."""
    *others, last = feature_maps
    if not others:
        return last
    rows, columns = last.shape[-2:]
    pooled = [nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns)) for feature_map in others]
    return torch.cat([*pooled, last], dim=1)


def seen_share(config: Any, feature_map: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
    """Returns how much of an image `(x, y, x, y)` is within the cells: patches leave out a rest on the right and below.

    It is 1 unless the image is no multiple of the patches, as 384 pixels are none of 14.
    """
    seen, patch = torch.ones(4, device=pixel_values.device), getattr(config, "patch_size", None)
    if patch is not None:
        height, width = (patch, patch) if isinstance(patch, int) else patch
        for first, (axis, side) in enumerate(((-1, width), (-2, height))):
            cells, pixels = feature_map.shape[axis], pixel_values.shape[axis]
            if cells == pixels // side:
                seen[first::2] = cells * side / pixels
    return seen


def cell_boxes(rows: int, columns: int) -> torch.Tensor:
    """Returns the boxes `(rows * columns, 4)` of the cells of a grid over the image, row by row.

    They differ from those of `geometry.grid_boxes` by rounding; each trained model needs those of its training.
    """
    top, left = torch.meshgrid(torch.arange(rows) / rows, torch.arange(columns) / columns, indexing="ij")
    corners = torch.stack([left, top], dim=-1).flatten(0, 1)
    return torch.cat([corners, corners + torch.tensor([1 / columns, 1 / rows])], dim=-1).clamp(max=1)


def region_features(feature_map: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Returns means `(B, N, C)` of a feature map `(B, C, h, w)` over boxes `(B, N, 4)` in [0, 1].

    Each is the mean of 7 x 7 bilinear samples at the centres of the box's equal parts, as RoIAlign takes them (He et
    al. 2017, section 3).
    """
    steps = (torch.arange(SAMPLES_PER_SIDE, device=boxes.device) + 0.5) / SAMPLES_PER_SIDE
    low, size = boxes[..., None, :2], boxes[..., None, 2:] - boxes[..., None, :2]
    x, y = (low + size * steps[:, None]).unbind(-1)  # (B, N, samples) each
    points = torch.stack([x[..., None, :].expand(*x.shape, -1), y[..., None].expand(*y.shape, x.shape[-1])], dim=-1)
    sampled = nn.functional.grid_sample(
        feature_map,
        (points * 2 - 1).flatten(2, 3).to(feature_map.dtype),
        padding_mode="border",
        align_corners=False,
    )
    return sampled.mean(-1).mT


def in_groups_of_one_size(
    see: Callable, pixel_values: torch.Tensor, pixel_mask: torch.Tensor, boxes: torch.Tensor | None
) -> VisionOutput:
    """Calls `see` once for each image size in a padded batch, without padding, and joins the tokens."""
    pixel_mask = pixel_mask.bool()
    heights, widths = pixel_mask.amax(2).sum(1).tolist(), pixel_mask.amax(1).sum(1).tolist()
    sizes = list(zip(heights, widths, strict=True))
    seen: dict[int, tuple[torch.Tensor, ...]] = {}
    for height, width in dict.fromkeys(sizes):
        rows = [row for row, size in enumerate(sizes) if size == (height, width)]
        output = see(pixel_values[rows, :, :height, :width], None if boxes is None else boxes[rows])
        seen.update(zip(rows, zip(*output.values(), strict=True), strict=True))
    fields = zip(*(seen[row] for row in range(len(sizes))), strict=True)
    features, boxes, mask = (nn.utils.rnn.pad_sequence(list(field), batch_first=True) for field in fields)
    return VisionOutput(features, boxes, mask)


__all__ = ["VisionModel", "VisionOutput"]
