"""From pixels to visual tokens: a grid of a backbone's cells, or the regions of a detection model."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME

from .configuration_hub import MissingBackboneError, first_line, from_part
from .configuration_vision import (
    OWN_CONFIGS,
    VisionConfig,
    is_packaged,
    is_patch_encoder,
    make_transformers_backbone,
)
from .modeling_base import HubPreTrainedModel, refuse_unknown_keywords
from .vision_part import VisionOutput

NORMALIZED_OUTPUTS = "hidden_states_norms."
"""Layer normalizations that backbones (ConvNeXt, Swin, ...) add behind the stages of a classifier. Its checkpoint lacks
them, so they start with scale 1 and shift 0."""
SAMPLES_PER_SIDE = 7
"""Points of RoIAlign on each side of a box, as in Faster R-CNN heads (He et al. 2017)."""
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class VisionModel(HubPreTrainedModel):
    r"""Turns pixels into visual tokens with boxes; a part of captioners, and a model of its own for extraction.

    A frozen backbone is run without gradients, and `train()` leaves it in evaluation mode.

    Attributes:
        freezes_for_now (`bool`): freezes the backbone for a stage of a training, whatever `config.frozen` says of the
            whole, which is saved. It takes effect with the next `train()`.

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
        self.freezes_for_now = False
        self.backbone = make_backbone(config)
        if not config.save_frozen_weights:
            self._keys_to_ignore_on_load_missing = {r"(^|\.)backbone\."}
        self.post_init()
        # On `meta` from_pretrained only builds the model; it loads all weights later.
        if config.pretrained and self.device.type != "meta":
            self.load_pretrained_backbone()
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

    @property
    def has_own_backbone(self) -> bool:
        """Whether its backbone is one of the package, and not of transformers or a user."""
        return getattr(self.config.backbone_config, "model_type", None) in OWN_CONFIGS

    def load_pretrained_backbone(self) -> None:
        """Loads the backbone's weights from the folder, package or Hub repository of `config.pretrained`.

        Raises:
            ValueError: weights are missing there, or have another shape.
            MissingBackboneError: there is no such model.
        """
        self.backbone.load_state_dict(self.pretrained_weights())
        self.train(self.training)

    def pretrained_weights(self) -> dict[str, torch.Tensor]:
        """Returns the backbone's weights at the source; see [`load_pretrained_backbone`]."""
        source: Any = self.config.pretrained
        own = self.backbone.state_dict()
        if is_packaged(source):
            loaded = from_part("packaged_backbones.load_packaged_weights")(source, self.backbone.config)
            missing = own.keys() - loaded.keys()
            mismatched = {name for name, weight in loaded.items() if weight.shape != own[name].shape}
        else:
            loaded, missing, mismatched = self.load_saved_backbone(source)
        loaded, missing = {name: loaded[name] for name in own if name in loaded}, missing & own.keys()
        for fault, names in (
            ("lacks", {name for name in missing if not name.startswith(NORMALIZED_OUTPUTS)}),
            ("has other shapes of", mismatched),
        ):
            if names:
                raise ValueError(
                    f"{source} {fault} {len(names)} weights of the backbone, {min(names)} among them; give the folder "
                    "or the name of a model with this backbone_config."
                )
        return loaded

    def load_saved_backbone(self, source: str) -> tuple[dict[str, torch.Tensor], set[str], set[str]]:
        """Returns the weights of a folder or Hub repository, and the names of missing and mismatched ones."""
        try:
            found: Any = type(self.backbone).from_pretrained(
                source, config=self.backbone.config, output_loading_info=True, ignore_mismatched_sizes=True
            )
        except OSError as error:
            is_gone = os.path.isabs(source) and not os.path.isdir(source)
            reason = "there is no such folder" if is_gone else first_line(error)
            raise MissingBackboneError(
                f"The weights of the backbone ({self.backbone.config.model_type}) cannot be loaded from {source} "
                f"({reason}); restore it, or correct pretrained in the vision_config of the model."
            ) from error
        loaded, report = found
        return loaded.state_dict(), set(report["missing_keys"]), {name for name, *_ in report["mismatched_keys"]}

    @property
    def is_frozen(self) -> bool:
        return self.config.frozen or self.freezes_for_now

    def train(self, mode: bool = True) -> "VisionModel":
        super().train(mode)
        if self.is_frozen:  # also after loading, which makes every weight trainable
            self.backbone.eval().requires_grad_(False)
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
            ValueError: pixels or a mask of a wrong shape, or boxes for a detection model.
        """
        refuse_unknown_keywords(self, kwargs)
        self.check_inputs(pixel_values, pixel_mask, visual_boxes)
        pixel_values = pixel_values.to(self.dtype, memory_format=torch.channels_last)  # faster convolutions
        see: Any = self.see_regions if self.config.kind == "regions" else self.see_grid
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            if pixel_mask is None:
                output = see(pixel_values, visual_boxes, bool(output_hidden_states))
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
        self, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, output_hidden_states: bool = False
    ) -> VisionOutput:
        if is_patch_encoder(self.config.backbone_config):
            self.check_size(*pixel_values.shape[-2:])
            found = from_part("patch_encoders.see_patches")(self.backbone, pixel_values, output_hidden_states)
        else:
            found = self.backbone(pixel_values, **asked_for(output_hidden_states))
        feature_map = side_by_side(found.feature_maps)
        states = found.hidden_states if output_hidden_states else None
        seen = seen_share(self.config.backbone_config, feature_map, pixel_values)
        if visual_boxes is not None:
            features = region_features(feature_map, visual_boxes / seen.to(visual_boxes))
            return everything_real(features, visual_boxes, states)
        if self.config.grid_size is not None:
            rows, columns = self.config.grid_size
            feature_map = nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns))
        boxes = cell_boxes(*feature_map.shape[-2:]).to(pixel_values.device) * seen
        return everything_real(feature_map.flatten(2).mT, boxes.expand(pixel_values.shape[0], -1, -1), states)

    def see_regions(
        self, pixel_values: torch.Tensor, visual_boxes: None = None, output_hidden_states: bool = False
    ) -> VisionOutput:
        self.check_size(*pixel_values.shape[-2:])
        detected = self.backbone(pixel_values, **asked_for(output_hidden_states))
        boxes = corner_boxes(detected.pred_boxes)
        queries = detected.last_hidden_state[:, -boxes.shape[1] :]  # YOLOS has patches before them
        num_labels: Any = self.backbone.config.num_labels
        scores, classes = class_scores(detected.logits, num_labels).max(-1)
        order = scores.argsort(dim=-1, descending=True, stable=True)
        boxes, features = (take_rows(states, order) for states in (boxes, queries))
        scores, classes = scores.gather(1, order), classes.gather(1, order)
        kept = scores >= self.config.score_threshold
        if self.config.suppression_threshold < 1:
            kept &= not_suppressed(boxes, classes, self.config.suppression_threshold)
        kept[:, 0] = True
        kept &= kept.cumsum(-1) <= self.config.num_regions
        front = kept.sort(dim=-1, descending=True, stable=True).indices[:, : int(kept.sum(-1).max())]
        mask = kept.gather(1, front)
        features, boxes = (take_rows(states, front) * mask[..., None] for states in (features, boxes))
        states = getattr(detected, "hidden_states", None) if output_hidden_states else None
        return VisionOutput(
            visual_features=features, visual_boxes=boxes, attention_mask=mask.long(), hidden_states=states
        )

    def check_size(self, height: int, width: int) -> None:
        """Raises a ValueError if images of a size are none that the encoder can take.

        Detection models with a pyramid of maps (RT-DETR, D-FINE, ...) and patch encoders cannot take every size.
        """
        if is_patch_encoder(self.config.backbone_config):
            from_part("patch_encoders.check_size")(self.backbone, height, width)
        strides = getattr(self.backbone.config, "feat_strides", None)
        if self.config.kind == "grid" or strides is None:
            return
        num_queries, cells = self.backbone.config.num_queries, sum((height // s) * (width // s) for s in strides)
        if height % max(strides) or width % max(strides):
            needed = f"both must be multiples of {max(strides)}"
        elif cells < num_queries:
            needed = f"its feature maps would have {cells} cells for its {num_queries} queries, so both must be larger"
        else:
            return
        raise ValueError(
            f"This detection model cannot take images of height {height} and width {width}: {needed}; change the size "
            "in the image processor, --image-size or data.image_size of the training config."
        )

    def check_inputs(
        self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor | None, visual_boxes: torch.Tensor | None
    ) -> None:
        if pixel_values.ndim != 4 or pixel_values.shape[1] != 3:
            raise ValueError(
                f"pixel_values has shape {tuple(pixel_values.shape)}; it must be (batch_size, 3, height, width)."
            )
        batch_size, _, height, width = pixel_values.shape
        if pixel_mask is not None and pixel_mask.shape != (batch_size, height, width):
            raise ValueError(
                f"pixel_mask has shape {tuple(pixel_mask.shape)}; with these pixel_values it must be "
                f"{(batch_size, height, width)}."
            )
        if visual_boxes is not None and self.config.kind == "regions":
            raise ValueError(
                "This vision encoder detects its regions itself; leave visual_boxes out, or give visual_features "
                "in place of pixel_values."
            )
        if visual_boxes is not None and (
            visual_boxes.ndim != 3 or visual_boxes.shape[::2] != (batch_size, 4) or not visual_boxes.numel()
        ):
            raise ValueError(
                f"visual_boxes has shape {tuple(visual_boxes.shape)}; with these pixel_values it must be "
                f"({batch_size}, num_regions, 4) with at least one region."
            )


def make_backbone(config: VisionConfig) -> PreTrainedModel:
    """Makes the backbone or detection model of a vision encoder, with new weights.

    Raises:
        ValueError: its feature maps have other channels than the configuration says, or see
            [`make_transformers_backbone`].
    """
    backbone_config: Any = config.backbone_config
    if config.kind == "regions":
        return make_transformers_backbone("AutoModelForObjectDetection", backbone_config)
    if backbone_config.model_type in OWN_CONFIGS:
        backbone: Any = from_part(backbone_config.remote_classes["AutoBackbone"])(backbone_config)
    elif is_patch_encoder(backbone_config):
        backbone = from_part("patch_encoders.make_patch_encoder")(backbone_config)
    else:
        backbone = make_transformers_backbone("AutoBackbone", backbone_config)
    channels = config.backbone_feature_size() if is_patch_encoder(backbone_config) else sum(backbone.channels)
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


def asked_for(output_hidden_states: bool) -> dict[str, bool]:
    """Returns the argument of a backbone only if it is True, since not every backbone takes it."""
    return {"output_hidden_states": True} if output_hidden_states else {}


def everything_real(features: torch.Tensor, boxes: torch.Tensor, hidden_states: Any) -> VisionOutput:
    mask = torch.ones(features.shape[:2], dtype=torch.long, device=features.device)
    return VisionOutput(features, boxes, mask, hidden_states)


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


def corner_boxes(boxes: torch.Tensor) -> torch.Tensor:
    """Returns `x1, y1, x2, y2` within [0, 1] of boxes given as centre, width and height."""
    center, half = boxes[..., :2], boxes[..., 2:].clamp(min=0) / 2
    return torch.cat([center - half, center + half], dim=-1).clamp(0, 1)


def class_scores(logits: torch.Tensor, num_labels: int) -> torch.Tensor:
    """Returns scores in [0, 1] of every class; one class more than labels is "no object"."""
    if logits.shape[-1] > num_labels:
        return logits.float().softmax(-1)[..., :num_labels]
    return logits.float().sigmoid()


def take_rows(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Returns `states (B, Q, C)` in the order `(B, N)` of indices into its second axis."""
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1]))


def not_suppressed(boxes: torch.Tensor, classes: torch.Tensor, threshold: float) -> torch.Tensor:
    """Returns which boxes `(B, Q, 4)`, sorted by falling score, survive greedy suppression within each class."""
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    overlap = shared / (areas[:, :, None] + areas[:, None] - shared).clamp(min=1e-9)
    rivals = ((overlap > threshold) & (classes[:, :, None] == classes[:, None])).triu(1)
    kept = torch.ones_like(classes, dtype=torch.bool)
    for query in range(classes.shape[1]):
        kept &= ~(rivals[:, query] & kept[:, query, None])
    return kept


__all__ = ["VisionModel", "VisionOutput"]
