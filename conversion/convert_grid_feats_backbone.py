"""Convert a detector of facebookresearch/grid-feats-vqa into a backbone for `VisionConfig` and `hf-ngsan extract`.

    python conversion/convert_grid_feats_backbone.py --architecture X-101 --checkpoint X-101.pth --output X-101

The checkpoints (https://github.com/facebookresearch/grid-feats-vqa, Jiang et al. 2020) are detectors of detectron2,
trained on Visual Genome; grid features are the last map of their backbone. RSTNet was trained on features of X-101,
pooled to 7 x 7: `VisionConfig(..., grid_size=[7, 7])`. The detector's heads are left out. The folder also contains the
preprocessing: shortest side 600 pixels, longest side at most 1000, BGR from 0 to 255 minus the mean.

In training, the last stage is dilated. For features, the authors' script disables this, and so does this script.
"""

import sys

import torch
from state_dicts import Conversion, convert, main, resnext_weight

from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig

RESNET_50 = {"depths": [3, 4, 6, 3], "groups": 1, "width_per_group": 64, "stride_in_1x1": True}
RESNEXT_101 = {"depths": [3, 4, 23, 3], "groups": 32, "width_per_group": 8}
RESNEXT_152 = {"depths": [3, 8, 36, 3], "groups": 32, "width_per_group": 8}
CONFIGURATIONS = {
    "R-50": NGSANResNeXtConfig(**RESNET_50, frozen_batch_norm=True),
    "X-101": NGSANResNeXtConfig(**RESNEXT_101, frozen_batch_norm=True),
    "X-152": NGSANResNeXtConfig(**RESNEXT_152, frozen_batch_norm=True),
}
HEADS = r"(proposal_generator|roi_heads)\.(?!res5\.)|pixel_(mean|std)$"
PIXEL_MEAN = [103.530, 116.280, 123.675]
# The first convolution includes the deviation of pixels, except in X-101 (MODEL.PIXEL_STD of the authors' configs).
UNIT_STD = [1.0, 1.0, 1.0]
PIXEL_STDS = {"X-101": [57.375, 57.120, 58.395]}


def convert_weights(
    config: NGSANResNeXtConfig, weights: dict[str, torch.Tensor], pixel_std: list[float] = UNIT_STD
) -> Conversion:
    """Converts a state dict of a detector to a backbone, with the mean and deviation of pixels in it, if any.

    In detectors that apply the last stage to regions (C4), it is part of the heads, as `roi_heads.res5`.
    """
    last_stage = "roi_heads" if any(name.startswith("roi_heads.res5.") for name in weights) else "backbone"

    def source_name(ours: str) -> str:
        stage, block, convolution, kind, field = resnext_weight(ours)
        module = "shortcut" if convolution is None else f"conv{convolution}"
        if kind == "normalization":
            module += ".norm"
        if stage == 0:
            return f"backbone.stem.{module}.{field}"
        return f"{last_stage if stage == 4 else 'backbone'}.res{stage + 1}.{block}.{module}.{field}"

    preprocessing = {
        "size": {"shortest_edge": 600, "longest_edge": 1000},
        "round_edges": True,
        "do_rescale": False,
        "do_flip_channel_order": True,
        "image_mean": numbers(weights.get("pixel_mean", PIXEL_MEAN)),
        "image_std": numbers(weights.get("pixel_std", pixel_std)),
    }
    return Conversion(*convert(NGSANResNeXtBackbone, config, weights, source_name, HEADS), preprocessing)


def numbers(values: torch.Tensor | list[float]) -> list[float]:
    return [round(number, 6) for number in torch.as_tensor(values, dtype=torch.float64).flatten().tolist()]


def convert_checkpoint(architecture: str, weights: dict[str, torch.Tensor]) -> Conversion:
    return convert_weights(CONFIGURATIONS[architecture], weights, PIXEL_STDS.get(architecture, UNIT_STD))


if __name__ == "__main__":
    sys.exit(main(__doc__, list(CONFIGURATIONS), convert_checkpoint))
