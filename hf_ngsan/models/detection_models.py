"""Regions of detection models (RT-DETR, D-FINE, YOLOS, ...): the best queries, with their boxes."""

from typing import Any

import torch

from .modeling_vision import VisionModel, VisionOutput


def see_regions(
    vision: VisionModel, pixel_values: torch.Tensor, visual_boxes: torch.Tensor | None, **asked_for: bool
) -> VisionOutput:
    """Returns the visual tokens of images `(B, 3, height, width)` of one size."""
    if visual_boxes is not None:
        raise ValueError(
            "This vision encoder detects its regions itself; leave visual_boxes out, or give visual_features in place "
            "of pixel_values."
        )
    check_size(vision.backbone, *pixel_values.shape[-2:])
    detected = vision.backbone(pixel_values, **asked_for)
    regions = best_regions(detected, vision.backbone.config.num_labels, vision.config)
    return VisionOutput(*regions, getattr(detected, "hidden_states", None) if asked_for else None)


def best_regions(detected: Any, num_labels: int, settings: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns features `(B, N, C)`, boxes `(B, N, 4)` and mask `(B, N)` of the best queries of each image.

    Args:
        detected: output of a detection model of transformers.
        num_labels: its classes.
        settings: `num_regions`, `score_threshold` and `suppression_threshold`, see [`VisionConfig`].
    """
    boxes = corner_boxes(detected.pred_boxes)
    queries = detected.last_hidden_state[:, -boxes.shape[1] :]  # YOLOS has patches before them
    scores, classes = class_scores(detected.logits, num_labels).max(-1)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    boxes, features = (take_rows(states, order) for states in (boxes, queries))
    scores, classes = scores.gather(1, order), classes.gather(1, order)
    kept = scores >= settings.score_threshold
    if settings.suppression_threshold < 1:
        kept &= not_suppressed(boxes, classes, settings.suppression_threshold)
    kept[:, 0] = True
    kept &= kept.cumsum(-1) <= settings.num_regions
    front = kept.sort(dim=-1, descending=True, stable=True).indices[:, : int(kept.sum(-1).max())]
    mask = kept.gather(1, front)
    features, boxes = (take_rows(states, front) * mask[..., None] for states in (features, boxes))
    return features, boxes, mask.long()


def check_size(detector: Any, height: int, width: int) -> None:
    """Raises a ValueError if a detection model with a pyramid of maps cannot take images of a size."""
    strides = getattr(detector.config, "feat_strides", None)
    if strides is None:
        return
    num_queries, cells = detector.config.num_queries, sum((height // s) * (width // s) for s in strides)
    if height % max(strides) or width % max(strides):
        needed = f"both must be multiples of {max(strides)}"
    elif cells < num_queries:
        needed = f"its feature maps would have {cells} cells for its {num_queries} queries, so both must be larger"
    else:
        return
    raise ValueError(
        f"This detection model cannot take images of height {height} and width {width}: {needed}; change the size in "
        "the image processor, --image-size or data.image_size of the training config."
    )


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


__all__ = ["check_size", "see_regions"]
