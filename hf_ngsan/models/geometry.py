"""Additive attention bias from boxes: geometry-aware self-attention (GSA) of Guo et al. 2020, section 4.2.

Shapes: B images, N regions, h heads, d_g geometric channels of a head. The relative geometry is embedded once for all
layers and heads, `(B, N, N, d_g)`; each layer computes its bias `(B, h, N, N)` from it.
"""

from collections.abc import Sequence

import torch
from torch import nn

from .configuration_hub import check_choice
from .positions import sinusoids

MIN_RATIO = 1e-3  # minimum ratio of distance to side before the logarithm; from the released code of Hu et al. 2018
MIN_SIDE = 1e-6  # keeps features of boxes without area, such as padding, finite; a pixel is 1e-4 or more
SIGNED_RESOLUTION = 0.1  # our choice: features are linear below a tenth of the side, and logarithmic above


def center_and_size(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns centres `(..., 2)` and sizes `(..., 2)`, at least 1e-6, of boxes `(..., 4)`: `x1, y1, x2, y2`."""
    boxes = boxes.float()
    top_left, bottom_right = boxes[..., :2], boxes[..., 2:]
    return (top_left + bottom_right) / 2, (bottom_right - top_left).clamp(min=MIN_SIDE)


def relative_geometry(boxes: torch.Tensor, features: str = "unsigned") -> torch.Tensor:
    """Returns relative position and size of every pair of boxes: eq. 8 of Guo et al. 2020.

    With r_x = (x_j - x_i) / w_i and r_y = (y_j - y_i) / h_i, the channels are

    - `"unsigned"` (the paper): log|r_x|, log|r_y|, log(w_i / w_j), log(h_i / h_j). |r| is clamped at 1e-3, because the
      paper's feature is log 0 on the diagonal. Left and right, and above and below, give equal features.
    - `"signed"` (our extension): the first two become asinh(r / 0.2), a smooth odd function of the ratio. Where |r| is
      well above 0.1 it equals sign(r) (log|r| - log 0.1): the paper's feature with a sign; around 0 it is linear.

    Scaling or translating all boxes together changes nothing. Boxes `(batch_size, num_regions, 4)` in any unit become
    float32 `(batch_size, num_regions, num_regions, 4)`, finite and with finite gradients; `[b, i, j]` describes region
    j as seen from region i.
    """
    return geometry_of_pairs(*center_and_size(boxes), features)


def geometry_of_pairs(center: torch.Tensor, size: torch.Tensor, features: str = "unsigned") -> torch.Tensor:
    """Returns the relative geometry of boxes from their centres and sizes `(batch_size, num_regions, 2)`."""
    check_choice("features", features, ("unsigned", "signed"))
    offset = (center[:, None, :, :] - center[:, :, None, :]) / size[:, :, None, :]
    if features == "signed":
        position = torch.asinh(offset / (2 * SIGNED_RESOLUTION))
    else:
        position = offset.abs().clamp(min=MIN_RATIO).log()
    # The logarithm of the ratio, not a difference of logarithms, so that a common scale cancels bit-exactly.
    ratio = size[:, :, None, :] / size[:, None, :, :]
    return torch.cat([position, ratio.log()], dim=-1)


def grid_boxes(rows: int, columns: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns the boxes `(rows * columns, 4)` of the cells of a grid over the image, row by row, within [0, 1]."""
    row, column = torch.meshgrid(
        torch.arange(rows, dtype=torch.float32, device=device),
        torch.arange(columns, dtype=torch.float32, device=device),
        indexing="ij",
    )
    sides = [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
    return torch.stack(sides, dim=-1).flatten(0, 1)


def absolute_geometry(boxes: torch.Tensor, channels: int) -> torch.Tensor:
    """Returns sinusoids of centre, width and height of each box: the "absolute" row of table 4 of Guo et al. 2020.

    Boxes `(batch_size, num_regions, 4)` within [0, 1] become `(batch_size, num_regions, channels)`, a multiple of 8.
    The sinusoids are computed from percentages, because most channels would be constant for positions below 1.
    """
    values = torch.cat(center_and_size(boxes), dim=-1) * 100
    return sinusoids(values, channels // 4).flatten(-2)


class RelativeGeometryEmbedding(nn.Module):
    """G = ReLU(FC(f)): eq. 9 of Guo et al. 2020, `(B, N, N, d_g)` of relative geometry f, for all layers and heads."""

    def __init__(self, geometry_hidden_size: int):
        super().__init__()
        self.projection = nn.Linear(4, geometry_hidden_size)

    def forward(self, relative: torch.Tensor) -> torch.Tensor:
        """Takes f `(B, N, N, 4)` of [`relative_geometry`] and rounds it to the dtype of the weights."""
        return torch.relu(self.projection(relative.to(self.projection.weight.dtype)))


class GeometricBias(nn.Module):
    r"""The geometric bias phi of one self-attention layer: the sum of any of eq. 11-13 of Guo et al. 2020.

    - `"content"` (content-independent, eq. 11): ReLU(w_g . G_ij + b), one w_g per head; the paper has no bias b
    - `"query"` (query-dependent, eq. 12): Q'_i . G_ij
    - `"key"` (key-dependent, eq. 13): K'_j . G_ij

    Q' and K' are projections of the layer's input to d_g channels per head. The bias is not scaled by 1/sqrt(d).
    """

    def __init__(self, hidden_size: int, num_heads: int, geometry_hidden_size: int, kinds: Sequence[str]):
        super().__init__()
        self.num_heads = num_heads
        per_head = num_heads * geometry_hidden_size
        self.content_proj = nn.Linear(geometry_hidden_size, num_heads) if "content" in kinds else None
        self.query_proj = nn.Linear(hidden_size, per_head) if "query" in kinds else None
        self.key_proj = nn.Linear(hidden_size, per_head) if "key" in kinds else None

    def forward(self, hidden_states: torch.Tensor, geometry: torch.Tensor) -> torch.Tensor:
        """Returns the bias `(B, h, N, N)` from the layer's input `(B, N, hidden_size)` and the embedded geometry."""
        biases = []
        if self.content_proj is not None:
            biases.append(torch.relu(self.content_proj(geometry)).permute(0, 3, 1, 2))
        if self.query_proj is not None:
            queries = self.query_proj(hidden_states).unflatten(-1, (self.num_heads, -1))
            biases.append((queries @ geometry.mT).transpose(1, 2))
        if self.key_proj is not None:
            keys = self.key_proj(hidden_states).unflatten(-1, (self.num_heads, -1))
            biases.append((keys @ geometry.transpose(1, 2).mT).permute(0, 2, 3, 1))
        return sum(biases[1:], start=biases[0])
