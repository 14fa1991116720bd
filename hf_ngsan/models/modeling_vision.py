"""Vision encoders from pixels to visual tokens (grid cells, regions or frames), and the base of the backbones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import initialization as init
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import ModelOutput, can_return_tuple

from .configuration_hub import from_part
from .configuration_vision import VisionConfig
from .modeling_base import HubPreTrainedModel, refuse_unknown_keywords

SAMPLES_PER_SIDE = 7  # RoIAlign samples on each side of a box, as in Faster R-CNN heads (He et al. 2017)
PIXELS_IN_CACHE = 352 * 352  # pixels that one thread encodes at once; measured with EfficientNet-Lite2
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass
class VisionOutput(ModelOutput):
    """Visual tokens, with `hidden_states` of the backbone, and `classes` and `scores` of detected regions.

    Args:
        visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, feature_size)`): 0 at padding.
        visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`): `x1, y1, x2, y2` within [0, 1];
            `None` for frames.
        attention_mask (`torch.LongTensor` of shape `(batch_size, num_regions)`): 1 = real, 0 = padding.
    """

    visual_features: torch.Tensor | None = None
    visual_boxes: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    classes: torch.Tensor | None = None
    scores: torch.Tensor | None = None


class VisionModel(HubPreTrainedModel):
    r"""Encodes pixels into visual tokens with boxes; a part of other models, or a separate model for extraction.

    A backbone in which no weight requires a gradient runs without gradients and stays in evaluation mode. `train()`
    freezes all weights of the backbone if `config.frozen`.

    ```python
    vision = VisionModel(VisionConfig(backbone_config={"model_type": "resnet"}, grid_size=[7, 7])).eval()
    vision(pixel_values).visual_boxes  # (batch_size, 49, 4)
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
        # On `meta`, from_pretrained only builds the model; it loads all weights later.
        if config.pretrained and self.device.type != "meta":
            self.backbone.load_state_dict(self.pretrained_weights())
        self.train(self.training)

    def pretrained_weights(self) -> dict[str, torch.Tensor]:
        """Returns the backbone's weights from the source `config.pretrained`."""
        return from_part("pretrained_weights.source_weights")(self.backbone, self.config.pretrained)

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
        output_detections: bool = False,
        **kwargs: Any,
    ) -> VisionOutput:
        r"""Encodes images into visual tokens with boxes.

        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`): images; clips have the shape
                `(batch_size, num_frames, 3, height, width)`.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding
                on the right and below; the tokens of an image do not depend on padding.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): regions instead of
                grid cells, see [`region_features`]; required with `kind="boxes"`, which may append the whole image and
                cells.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real region or frame.
            output_hidden_states (`bool`, *optional*): whether to return the backbone's; all images need the same size.
        """
        refuse_unknown_keywords(self, kwargs)
        frames = None
        if self.config.kind == "frames":
            if pixel_values.ndim != 5 or pixel_mask is not None or visual_boxes is not None:
                expected = "pixel_values (batch_size, num_frames, 3, height, width) of one size and no boxes"
                raise ValueError(f"This vision encoder takes clips, {expected}; not {tuple(pixel_values.shape)}.")
            frames, pixel_values = pixel_values.shape[:2], pixel_values.flatten(0, 1)
        elif self.config.kind == "boxes" or (self.config.kind == "grid" and visual_boxes is not None):
            visual_boxes, attention_mask = self.with_whole_image(visual_boxes, attention_mask)
        pixel_values = pixel_values.to(self.dtype, memory_format=torch.channels_last)  # faster convolutions
        encode: Any = self.encode_grid
        if self.config.kind == "regions":
            encode = partial(from_part("transformers_backbones.encode_regions"), self)
        options = {"output_hidden_states": True} if output_hidden_states else {}  # some backbones lack this argument
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            if pixel_mask is None:
                output = encode(pixel_values, visual_boxes, **options)
            else:
                output = in_groups_of_one_size(encode, pixel_values, pixel_mask, visual_boxes)
        if frames is not None:
            features = output.visual_features.flatten(1).unflatten(0, frames)
            output = VisionOutput(features, None, features.new_ones(frames, dtype=torch.long), output.hidden_states)
        if not output_detections:
            output = VisionOutput(**{name: output[name] for name in output if name not in ("classes", "scores")})
        if (visual_boxes is not None or frames is not None) and attention_mask is not None:
            mask = attention_mask.to(output.attention_mask)
            mask = torch.cat([mask, output.attention_mask[:, mask.shape[1] :]], dim=1)  # for cells after regions
            output.attention_mask = mask
            output.visual_features = output.visual_features * mask[..., None]
        if self.config.feature_dtype is not None:
            stored = output.visual_features.to(getattr(torch, self.config.feature_dtype))
            output.visual_features = stored.to(output.visual_features.dtype)
        return output

    def with_whole_image(self, boxes: torch.Tensor | None, mask: torch.Tensor | None) -> tuple[torch.Tensor, Any]:
        """Appends the whole image as a box to images without boxes, or to all images with `with_whole_image`."""
        if boxes is None:
            ways = "boxes= of the processor, boxes next to the image in a pipeline, --boxes FILE of hf-ngsan caption"
            raise ValueError(f"This model needs the boxes of each image: {ways}.")
        mask = boxes.new_ones(boxes.shape[:2], dtype=torch.long) if mask is None else mask
        is_added = ~mask.bool().any(1) | self.config.with_whole_image
        if is_added.any():
            full_image = boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(len(boxes), 1, 4)
            boxes, mask = torch.cat([boxes, full_image], dim=1), torch.cat([mask, is_added[:, None].to(mask)], dim=1)
        return boxes, mask

    def encode_grid(
        self, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, **options: bool
    ) -> VisionOutput:
        if self.config.has_own_backbone:
            output, extent = self.backbone(pixel_values, **options), [1.0, 1.0, 1.0, 1.0]
        else:
            output, extent = from_part("transformers_backbones.encode_image")(self.backbone, pixel_values, **options)
        feature_map, parts = side_by_side(output.feature_maps), []
        if visual_boxes is not None:
            parts.append((region_features(feature_map, visual_boxes / visual_boxes.new_tensor(extent)), visual_boxes))
        if visual_boxes is None or (self.config.kind == "boxes" and self.config.grid_size is not None):
            if self.config.grid_size is not None:
                rows, columns = self.config.grid_size
                feature_map = nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns))
            cells = cell_boxes(*feature_map.shape[-2:]).to(pixel_values.device)
            places = (cells * cells.new_tensor(extent)).expand(feature_map.shape[0], -1, -1)
            parts.append((feature_map.flatten(2).mT, places))
        features, boxes = parts[0] if len(parts) == 1 else (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        mask = torch.ones(features.shape[:2], dtype=torch.long, device=features.device)
        return VisionOutput(features, boxes, mask, output.hidden_states if options else None)


def make_backbone(config: VisionConfig) -> Any:
    """Makes the backbone or detection model of a vision encoder, with new weights."""
    backbone_config: Any = config.backbone_config
    if backbone_config is None:
        raise ValueError("A vision encoder needs a backbone_config, or the name of a model as pretrained.")
    if config.has_own_backbone:
        return from_part(backbone_config.remote_classes["AutoBackbone"])(backbone_config)
    return from_part("transformers_backbones.make_model")(config.kind, backbone_config)


def side_by_side(feature_maps: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenates the channels of feature maps `(batch_size, channels, rows, columns)` at the size of the last."""
    *earlier, last = feature_maps
    if not earlier:
        return last
    rows, columns = last.shape[-2:]
    pooled = [nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns)) for feature_map in earlier]
    return torch.cat([*pooled, last], dim=1)


def cell_boxes(rows: int, columns: int) -> torch.Tensor:
    """Returns boxes `(rows * columns, 4)` of the cells of a grid, row by row; those of RSTNet differ by rounding."""
    top, left = torch.meshgrid(torch.arange(rows) / rows, torch.arange(columns) / columns, indexing="ij")
    corners = torch.stack([left, top], dim=-1).flatten(0, 1)
    return torch.cat([corners, corners + torch.tensor([1 / columns, 1 / rows])], dim=-1).clamp(max=1)


def region_features(feature_map: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Returns means `(B, N, C)` of a feature map `(B, C, h, w)` over boxes `(B, N, 4)` in [0, 1].

    A mean covers 7 x 7 bilinear samples at the centres of a box's parts (RoIAlign, He et al. 2017, section 3), so that
    boxes smaller than a cell also work. Beyond the centres of the outer cells, the map is constant. The weight of a
    sample is the product of a row weight and a column weight, so the mean is computed along rows and columns.
    """
    steps = (torch.arange(SAMPLES_PER_SIDE, device=boxes.device) + 0.5) / SAMPLES_PER_SIDE

    def weights(low: torch.Tensor, high: torch.Tensor, number: int) -> torch.Tensor:
        """Returns the weights `(B, N, number)` of the cells along an axis, averaged over the samples of a side."""
        places = (low[..., None] + (high - low)[..., None] * steps) * number - 0.5
        distances = places.clamp(0, number - 1)[..., None] - torch.arange(number, device=boxes.device)
        return (1 - distances.abs()).clamp(min=0).mean(-2)

    x1, y1, x2, y2 = boxes.unbind(-1)
    rows, columns = weights(y1, y2, feature_map.shape[-2]), weights(x1, x2, feature_map.shape[-1])
    cell_weights = (rows[..., None] * columns[..., None, :]).flatten(2).to(feature_map.dtype)
    return cell_weights @ feature_map.flatten(2).mT


def in_groups_of_one_size(
    encode: Callable, pixel_values: torch.Tensor, pixel_mask: torch.Tensor, boxes: torch.Tensor | None
) -> VisionOutput:
    """Calls `encode` once for each image size in a padded batch, without padding, and pads the tokens to a batch."""
    if pixel_mask.shape != pixel_values[:, 0].shape:
        raise ValueError(f"pixel_mask is {(*pixel_mask.shape,)}; it needs one value for each pixel of pixel_values.")
    pixel_mask = pixel_mask.bool()
    heights, widths = pixel_mask.amax(2).sum(1).tolist(), pixel_mask.amax(1).sum(1).tolist()
    sizes = list(zip(heights, widths, strict=True))
    outputs: dict[int, dict[str, torch.Tensor]] = {}
    for height, width in dict.fromkeys(sizes):
        rows = [row for row, size in enumerate(sizes) if size == (height, width)]
        output = encode(pixel_values[rows, :, :height, :width], None if boxes is None else boxes[rows])
        for place, row in enumerate(rows):
            outputs[row] = {name: values[place] for name, values in output.items()}
    in_order = [outputs[row] for row in range(len(sizes))]
    joined: Any = {name: pad_sequence([fields[name] for fields in in_order], batch_first=True) for name in in_order[0]}
    return VisionOutput(**joined)


class ConvolutionalBackbone(BackboneMixin, PreTrainedModel):
    """Base class of backbones: a chain of stages, created by a subclass, that transform a feature map."""

    stages: nn.ModuleDict  # by `config.stage_names`
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    has_attentions = False
    _supports_sdpa = _supports_flex_attn = True  # there is no attention

    def __init__(self, config: Any):
        super().__init__(config)
        self.num_features = list(config.stage_sizes.values())

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, output_hidden_states: bool | None = None, **kwargs: Any
    ) -> BackboneOutput:
        """Returns the maps `(B, channels, rows, columns)` of `out_features`; hidden states are those of all stages."""
        refuse_unknown_keywords(self, kwargs)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        names = self.config.stage_names if output_hidden_states else self.out_features
        parts = [self.maps(part, names) for part in in_parts(pixel_values)]
        maps: Any = parts[0]
        if len(parts) > 1:
            maps = {name: torch.cat([part[name] for part in parts]) for name in maps}
        return BackboneOutput(
            feature_maps=tuple(maps[name] for name in self.out_features),
            hidden_states=tuple(maps.values()) if output_hidden_states else None,
        )

    def maps(self, pixel_values: torch.Tensor, names: Sequence[str]) -> dict[str, torch.Tensor]:
        maps, current = {}, pixel_values
        for name, stage in self.stages.items():
            current = stage(current)
            if name in names:
                maps[name] = current
        return maps


def in_parts(pixel_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Splits images into parts whose maps fit into the CPU caches, which makes inference faster."""
    height, width = pixel_values.shape[-2:]
    images = max(PIXELS_IN_CACHE * torch.get_num_threads() // (height * width), 1)
    if pixel_values.device.type != "cpu" or not is_inference() or len(pixel_values) <= images:
        return (pixel_values,)
    return pixel_values.split(images)


class Normalized(nn.Module):
    """Convolution without bias, with batch normalization that inference folds into its weights."""

    convolution: Any
    normalization: Any

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        norm = self.normalization
        if norm.training or not is_inference():
            return norm(self.convolution(hidden_states))
        weight = self.convolution.weight
        scale = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
        bias = norm.bias.float() - norm.running_mean.float() * scale
        folded = (weight.float() * scale[:, None, None, None]).to(weight.dtype)
        return self.convolve(hidden_states, folded, bias.to(weight.dtype), self.convolution.padding)

    def convolve(
        self, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: tuple[int, int]
    ) -> torch.Tensor:
        stride, dilation, groups = self.convolution.stride, self.convolution.dilation, self.convolution.groups
        if runs_in_onednn(hidden_states):  # conv2d would use matrix products for single images, at half the speed
            return torch.mkldnn_convolution(hidden_states, weight, bias, padding, stride, dilation, groups)
        return nn.functional.conv2d(hidden_states, weight, bias, stride, padding, dilation, groups)


def is_inference() -> bool:
    """Returns whether gradients are off and no exporter traces the computation."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing())


def runs_in_onednn(hidden_states: torch.Tensor) -> bool:
    """Returns whether PyTorch can convolve a map with oneDNN on this CPU and in this build."""
    backend = torch.backends.mkldnn
    is_available = backend.is_available() and bool(backend.enabled)
    is_single = hidden_states.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return is_available and is_single and hidden_states.device.type == "cpu" and hidden_states.numel() > 0


__all__ = ["VisionModel", "VisionOutput"]
