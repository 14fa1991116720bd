"""Backbones and detection models of transformers, and patch encoders without feature maps (CLIP, ViT, ...)."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.backbone_utils import BackboneConfigMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import PreTrainedConfig
from .configuration_vision import OWN_CONFIGS, with_out_features
from .modeling_vision import VisionModel, VisionOutput, cell_boxes, region_features

PATCH_ENCODERS = {
    "chinese_clip_vision_model": (1, "post_layernorm"),
    "clip_vision_model": (1, "post_layernorm"),
    "deit": (2, "pooler"),  # class and distillation tokens
    "ijepa": (0, "pooler"),
    "siglip_vision_model": (0, "head"),
    "vit": (1, "pooler"),
    "vit_msn": (1, None),
}
"""Model types of patch encoders -> number of tokens before the patches, and name of the module that only pools."""
DETR_STRIDE = 32
"""Side of a cell in pixels, in the single feature map of DETR and similar models."""


def is_patch_encoder(backbone: Any) -> bool:
    return getattr(backbone, "model_type", None) in PATCH_ENCODERS


def make_config(config: dict | PreTrainedConfig, out_features: Sequence[str | int] | None = None) -> Any:
    """Makes the configuration of a backbone, a detection model, or the patch encoder in a model such as CLIP."""
    backbone: Any = config_from_dict(config) if isinstance(config, dict) else config
    backbone = backbone.vision_config if is_patch_encoder(getattr(backbone, "vision_config", None)) else backbone
    if not is_patch_encoder(backbone):
        return backbone if out_features is None else with_out_features(backbone, out_features)
    stages: Any = BackboneConfigMixin()
    stages.stage_names = stage_names(backbone)
    chosen = out_features or getattr(backbone, "out_features", None) or stages.stage_names[-1:]
    backbone = copy.deepcopy(backbone)
    backbone.out_features = with_out_features(stages, chosen).out_features
    return backbone


def config_from_dict(config: dict) -> PreTrainedConfig:
    """Makes a configuration from a dict with its `model_type`."""
    fields = copy.deepcopy(config)
    model_type = fields.pop("model_type", "")
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"backbone_config has the unknown model_type {model_type!r}; use one of {', '.join(OWN_CONFIGS)}, of a "
            "backbone or detection model of transformers, or of a backbone registered with AutoBackbone."
        )
    backbone = CONFIG_MAPPING[model_type].from_dict(fields)
    for name, value in vars(backbone).items():
        if isinstance(value, tuple):  # a default of some backbones; a file has a list
            setattr(backbone, name, list(value))
    return backbone


def stage_names(backbone: Any) -> list[str]:
    """Returns the names of a backbone's stages; a patch encoder's stages are its embeddings and layers."""
    if not is_patch_encoder(backbone):
        return list(getattr(backbone, "stage_names", None) or [])
    return ["stem", *(f"stage{number}" for number in range(1, backbone.num_hidden_layers + 1))]


def feature_size_of(kind: str, backbone: Any) -> int:
    """Returns the total channels of a backbone's feature maps, or the channels of a detection model's queries."""
    if kind == "regions":
        candidates = [getattr(backbone, field, None) for field in ("d_model", "hidden_size")]
        size = next((size for size in candidates if isinstance(size, int)), None)
        if size is None:
            raise ValueError(f"feature_size is unknown for a {backbone.model_type!r} backbone_config; set it.")
        return size
    if is_patch_encoder(backbone):
        return backbone.hidden_size * len(backbone.out_features)
    sizes = dict(zip(reversed(stage_names(backbone)), reversed(getattr(backbone, "hidden_sizes", ())), strict=False))
    if sizes and sizes.keys() >= {*backbone.out_features}:  # the stem has no size here
        return sum(sizes[stage] for stage in backbone.out_features)
    with torch.device("meta"):  # other backbones have it after construction, here without weights
        return sum(make_transformers_model("AutoBackbone", copy.deepcopy(backbone)).channels)


def make_model(kind: str, config: Any) -> Any:
    """Makes the backbone of a grid, without its pooling module, or the detection model of `"regions"`."""
    if kind == "regions":
        return make_transformers_model("AutoModelForObjectDetection", config)
    if not is_patch_encoder(config):
        return make_transformers_model("AutoBackbone", config)
    encoder = make_transformers_model("AutoModel", config)
    _, pooling = PATCH_ENCODERS[config.model_type]
    if pooling is not None and hasattr(encoder, pooling):
        setattr(encoder, pooling, nn.Identity())
    return encoder


def make_transformers_model(auto_class: str, config: PreTrainedConfig) -> Any:
    """Builds the model of a transformers Auto class in the default dtype, without code from a checkpoint."""
    from transformers.models.auto import modeling_auto  # takes a second to import

    auto: Any = getattr(modeling_auto, auto_class)
    return auto.from_config(config, dtype=torch.get_default_dtype(), trust_remote_code=False)


def encode_image(backbone: Any, pixel_values: torch.Tensor, **options: bool) -> tuple[Any, list[float]]:
    """Returns the output of a backbone with its feature maps, and the part `(x, y, x, y)` of the image they cover."""
    encode = encode_patches if is_patch_encoder(backbone.config) else type(backbone).__call__
    output: Any = encode(backbone, pixel_values, **options)
    # Patches may leave out pixels on the right and below, as 384 is not a multiple of 14.
    extent, patch = [1.0] * 4, getattr(backbone.config, "patch_size", None)
    for first, (axis, side) in enumerate(zip((-1, -2), reversed(both_sides(patch)), strict=True) if patch else ()):
        cells, pixels = output.feature_maps[-1].shape[axis], pixel_values.shape[axis]
        if cells == pixels // side:
            extent[first::2] = [cells * side / pixels] * 2
    return output, extent


def encode_patches(encoder: Any, pixel_values: torch.Tensor, output_hidden_states: bool = False) -> BackboneOutput:
    """Returns the maps `(B, D, rows, columns)` of the stages in the configuration, and the hidden states."""
    config, stages = encoder.config, stage_names(encoder.config)
    size = (pixel_values.shape[-2], pixel_values.shape[-1])
    check_size(encoder, *size)
    options: dict[str, Any] = {"interpolate_pos_encoding": True} if size != both_sides(config.image_size) else {}
    if output_hidden_states or config.out_features != stages[-1:]:
        options["output_hidden_states"] = True
    output = encoder(pixel_values, **options)
    before, _ = PATCH_ENCODERS[config.model_type]
    grid = [side // patch for side, patch in zip(size, both_sides(config.patch_size), strict=True)]
    stage_states = [
        output.last_hidden_state if stage == stages[-1] else output.hidden_states[stages.index(stage)]
        for stage in config.out_features
    ]
    maps = tuple(states[:, before:].mT.unflatten(-1, grid) for states in stage_states)
    return BackboneOutput(feature_maps=maps, hidden_states=output.hidden_states)


def check_size(model: Any, height: int, width: int) -> None:
    """Raises a ValueError if a patch encoder or detection model does not support an image size."""
    config, needed = model.config, ""
    strides = getattr(config, "feat_strides", None)
    if is_patch_encoder(config) and (height, width) != both_sides(config.image_size):
        (rows, columns), patch = both_sides(config.image_size), both_sides(config.patch_size)
        can_interpolate = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        if not can_interpolate or rows // patch[0] != columns // patch[1]:
            needed = f"it needs {rows} x {columns} pixels"
        elif height < patch[0] or width < patch[1]:
            needed = f"its patches are {patch[0]} x {patch[1]} pixels"
    elif strides is not None:
        cells = sum((height // stride) * (width // stride) for stride in strides)
        if height % max(strides) or width % max(strides):
            needed = f"both must be multiples of {max(strides)}"
        elif cells < config.num_queries:
            needed = f"its feature maps would have {cells} cells for its {config.num_queries} queries"
    elif hasattr(config, "num_detection_tokens") and (height % config.patch_size or width % config.patch_size):
        needed = f"both must be multiples of {config.patch_size}"  # YOLOS drops partial patches
    if needed:
        raise ValueError(f"This {config.model_type} cannot take images of height {height} and width {width}: {needed}.")


def own_image_size(vision: Any) -> int | None:
    """Returns the image side that a vision encoder's patch encoder was made for, if its images are square."""
    backbone = vision.config.backbone_config
    height, width = both_sides(backbone.image_size) if is_patch_encoder(backbone) else (None, None)
    return height if height == width else None


def both_sides(size: Any) -> tuple[int, int]:
    """Returns height and width of a size that is one number or a pair."""
    return (size, size) if isinstance(size, int) else tuple(size)


def encode_regions(
    vision: VisionModel, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, **options: bool
) -> VisionOutput:
    """Returns the best queries of a detection model and their boxes, for images `(B, 3, height, width)`."""
    if visual_boxes is not None:
        raise ValueError("This vision encoder detects its regions; leave visual_boxes out.")
    check_size(vision.backbone, *pixel_values.shape[-2:])
    settings, hidden_states = vision.config, None
    detected = vision.backbone(pixel_values, **options)
    if options:
        hidden_states = getattr(detected, "hidden_states", None)
    queries, boxes, mask, classes, scores = best_regions(detected, vision.backbone.config.num_labels, settings)
    if settings.region_features == "queries" and settings.grid_size is None:
        return VisionOutput(queries, boxes, mask, hidden_states, classes, scores)
    feature_map = encoder_map(detected, *pixel_values.shape[-2:])
    pooled = region_features(feature_map, boxes) * mask[..., None]
    parts = [(pooled if settings.region_features == "pooled" else queries, boxes, mask, classes, scores)]
    if settings.grid_size is not None:
        rows, columns = settings.grid_size
        cells = nn.functional.adaptive_avg_pool2d(feature_map, (rows, columns)).flatten(2).mT
        places, shape = cell_boxes(rows, columns).to(boxes), cells.shape[:2]
        cell_fields = mask.new_ones(shape), classes.new_full(shape, -1), cells.new_ones(shape)
        parts.append((cells, places.expand(shape[0], -1, -1), *cell_fields))
    features, boxes, mask, classes, scores = (torch.cat(fields, dim=1) for fields in zip(*parts, strict=True))
    return VisionOutput(features, boxes, mask, hidden_states, classes, scores)


def encoder_map(detected: Any, height: int, width: int) -> torch.Tensor:
    """Returns the finest feature map `(B, C, rows, columns)` of a detection model's encoder for images of a size."""
    states = getattr(detected, "encoder_last_hidden_state", None)
    if isinstance(states, list | tuple):  # a pyramid of maps, the finest first
        return states[0]
    rows, columns = -(-height // DETR_STRIDE), -(-width // DETR_STRIDE)
    if states is None or states.shape[1] != rows * columns:
        raise ValueError("This detection model has no feature map; use region_features='queries' and no grid_size.")
    return states.mT.unflatten(-1, (rows, columns))


def best_regions(detected: Any, num_labels: int, settings: Any) -> tuple[torch.Tensor, ...]:
    """Returns features `(B, N, C)`, boxes `(B, N, 4)`, mask, classes and scores `(B, N)` of the best queries."""
    boxes = corner_boxes(detected.pred_boxes)
    queries = detected.last_hidden_state[:, -boxes.shape[1] :]  # YOLOS has patches before them
    scores, classes = class_scores(detected.logits, num_labels).max(-1)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    boxes, features = (states.take_along_dim(order[..., None], 1) for states in (boxes, queries))
    scores, classes = scores.gather(1, order), classes.gather(1, order)
    kept = scores >= settings.score_threshold
    if settings.suppression_threshold < 1:
        kept &= not_suppressed(boxes, classes, settings.suppression_threshold)
    kept[:, 0] = True
    kept &= kept.cumsum(-1) <= settings.num_regions
    front = kept.sort(dim=-1, descending=True, stable=True).indices[:, : int(kept.sum(-1).max())]
    mask = kept.gather(1, front)
    features, boxes = (states.take_along_dim(front[..., None], 1) * mask[..., None] for states in (features, boxes))
    return features, boxes, mask.long(), classes.gather(1, front) * mask, scores.gather(1, front) * mask


def corner_boxes(boxes: torch.Tensor) -> torch.Tensor:
    """Converts boxes from centre, width and height to `x1, y1, x2, y2` within [0, 1]."""
    center, half = boxes[..., :2], boxes[..., 2:].clamp(min=0) / 2
    return torch.cat([center - half, center + half], dim=-1).clamp(0, 1)


def class_scores(logits: torch.Tensor, num_labels: int) -> torch.Tensor:
    """Returns scores in [0, 1] of every class; an extra class beyond the labels is "no object"."""
    if logits.shape[-1] > num_labels:
        return logits.float().softmax(-1)[..., :num_labels]
    return logits.float().sigmoid()


def not_suppressed(boxes: torch.Tensor, classes: torch.Tensor, threshold: float) -> torch.Tensor:
    """Returns which boxes `(B, Q, 4)`, sorted by decreasing score, greedy suppression within each class keeps."""
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
