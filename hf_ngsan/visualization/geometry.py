"""Figures of the geometric bias over relative geometry (figures 3 and 4 of Guo et al. 2020) and over regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .figures import INK, draw_box, draw_labels, draw_weights, new_figure, panel_rows, show_image, to_pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from transformers.modeling_utils import PreTrainedModel

FIXED = (0.5, 1.0, 2.0)
MIN_RATIO, MAX_VALUE = 0.02, 3.0
"""Limits of the axes: offsets start at 0 or -3, ratios of sides just above 0 because of the logarithm."""
RESOLUTION = 121
BRIGHTEST = 99
"""Percentile of the weights for the brightest colour: the narrow peak of log|Δ| at 0 would darken the rest."""
MAX_NAMES = 3
"""Number of named regions per panel: those with the largest weights."""
LABELS = {"position": ("Δx", "Δy", "Δw = Δh"), "size": ("Δw", "Δh", "Δx = Δy")}


def geometric_weights(
    model: PreTrainedModel, dx: ArrayLike, dy: ArrayLike, dw: ArrayLike, dh: ArrayLike, layer: int = 0
) -> np.ndarray:
    """Returns the content-independent geometric bias, eq. 11 of Guo et al. 2020, as a function of relative geometry.

    The result is float32 `(num_heads, *shape)`.

    Args:
        model: a captioner whose `geometric_bias` includes `"content"`; the other kinds depend on the features of the
            regions and are left out.
        dx, dy: offsets (x_j - x_i) / w_i and (y_j - y_i) / h_i; their sign counts only with
            `geometry_features="signed"`. Numbers or arrays; all four arguments are broadcast together.
        dw, dh: ratios w_i / w_j and h_i / h_j, above 0.
        layer: the layer of the encoder; -1 is the last.
    """
    import torch

    encoder: Any = model.get_encoder()
    if "content" not in getattr(model.config, "geometric_bias", ()):
        raise ValueError('Only a content-independent bias, "content", depends on geometry alone; this model has none.')
    dx, dy, dw, dh = np.broadcast_arrays(*(np.asarray(values, dtype=np.float64) for values in (dx, dy, dw, dh)))
    centre = np.stack([dx, dy], axis=-1).reshape(-1, 2)
    half = 0.5 / np.stack([dw, dh], axis=-1).reshape(-1, 2)
    unit = np.broadcast_to([-0.5, -0.5, 0.5, 0.5], (len(centre), 4))
    pairs = np.stack([unit, np.concatenate([centre - half, centre + half], axis=1)], axis=1)
    with torch.inference_mode():
        boxes = torch.from_numpy(pairs).to(model.device, torch.float32)
        embedded = encoder.embed_geometry(boxes)[:, 0, 1]
        weights = torch.relu(encoder.layers[layer].geometric_bias.content_proj(embedded)).T
    return weights.float().cpu().numpy().reshape(-1, *dx.shape)


def plot_geometric_weights(
    model: PreTrainedModel, vary: Literal["position", "size"] = "position", layer: int = 0, head: int | None = None
) -> Figure:
    """Draws figure 3 (`vary="position"`) or figure 4 (`vary="size"`) of Guo et al. 2020.

    It has three maps of the geometric weight: over Δx and Δy with Δw = Δh in {0.5, 1, 2}, or over Δw and Δh
    with Δx = Δy in {0.5, 1, 2}. Offsets run from 0 to 3, or from -3 to 3 with signed features; ratios from just above 0
    to 3.

    Args:
        model, layer: see [`geometric_weights`].
        vary: the geometry on the axes.
        head: one head; None for the mean over heads.
    """
    horizontal, vertical, fixed_label = LABELS[vary]
    signed = vary == "position" and model.config.geometry_features == "signed"
    lowest = -MAX_VALUE if signed else (0.0 if vary == "position" else MIN_RATIO)
    ticks = np.linspace(lowest, MAX_VALUE, RESOLUTION)
    across, down = np.meshgrid(ticks, ticks)
    maps = []
    for value in FIXED:
        dx, dy, dw, dh = (across, down, value, value) if vary == "position" else (value, value, across, down)
        heads = geometric_weights(model, dx, dy, dw, dh, layer)
        maps.append(heads.mean(0) if head is None else heads[head])

    figure = new_figure(8.4, 3.0)
    panels = figure.subplots(1, len(FIXED), sharex=True, sharey=True)
    top = float(np.percentile(maps, BRIGHTEST)) or 1.0
    style: dict[str, Any] = {"vmin": 0, "vmax": top, "cmap": "viridis", "interpolation": "bilinear"}
    style |= {"origin": "upper" if signed else "lower"}  # y grows downwards in images
    vertical_ends = (MAX_VALUE, lowest) if signed else (lowest, MAX_VALUE)
    for panel, values, value in zip(panels, maps, FIXED, strict=True):
        image = panel.imshow(values, extent=(lowest, MAX_VALUE, *vertical_ends), **style)
        panel.set_title(f"{fixed_label} = {value:g}", fontsize=10, color=INK)
        panel.set_xlabel(horizontal, fontsize=10)
        panel.tick_params(labelsize=8)
    panels[0].set_ylabel(vertical, fontsize=10)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.85, extend="max", label="geometric weight")
    bar.ax.tick_params(labelsize=8)
    return figure


def plot_geometric_bias(
    model: Any,
    processor: Any,
    image: Any,
    region: int = 0,
    boxes: ArrayLike | None = None,
    names: Sequence[str] = (),
) -> Figure:
    """Draws the geometric bias in the attention of one region or cell to all (eq. 11-13 of Guo et al. 2020).

    Args:
        model: a captioner with a `geometric_bias` and a vision encoder, of a grid or of regions.
        processor: its processor.
        image: a `PIL.Image.Image`.
        region: number of the region, in descending order of scores, or of the cell, row by row; it is drawn in white.
        boxes: `(N, 4)`, `x1, y1, x2, y2` in pixels, of detected regions, for a model with given boxes.
        names: names of the first regions, written at those with the largest weights.

    Returns:
        A figure with a panel for each layer and head: the softmax of the bias, over the boxes.
    """
    import torch

    encoder, biases = model.get_encoder(), []
    modules = [layer.geometric_bias for layer in encoder.layers if getattr(layer, "geometric_bias", None) is not None]
    if not modules:
        raise ValueError("The model has no geometric bias, so geometry does not affect its attention.")
    hooks = [module.register_forward_hook(lambda _, inputs, bias: biases.append(bias[0])) for module in modules]
    with torch.inference_mode():
        extra = {} if boxes is None else {"boxes": [boxes]}
        tokens = model.base_model.get_visual_tokens(**processor(images=image, **extra).to(model.device))
        encoder(tokens.visual_features, visual_boxes=tokens.visual_boxes, attention_mask=tokens.attention_mask)
    for hook in hooks:
        hook.remove()
    corners = to_pixels(tokens.visual_boxes[0][tokens.attention_mask[0].bool()].cpu(), image)
    weights = torch.stack(biases)[:, :, region, : len(corners)].float().softmax(-1).cpu().numpy()
    layers, heads = weights.shape[:2]
    width, height = image.size
    figure = new_figure(2.1 * heads, (2.1 * height / width + 0.35) * layers)
    panels = panel_rows(figure, layers * heads, heads)
    for number, (panel, head_weights) in enumerate(zip(panels, weights.reshape(-1, len(corners)), strict=True)):
        show_image(panel, image, faded=True)
        draw_weights(panel, corners, head_weights)
        draw_box(panel, corners[region], "white", width=1.5)
        named = [place for place in np.argsort(-head_weights)[:MAX_NAMES] if place < len(names) and names[place]]
        draw_labels(panel, corners[named], [names[place] for place in named])
        panel.set_title(f"layer {number // heads + 1}, head {number % heads + 1}", fontsize=9, color=INK)
    return figure
