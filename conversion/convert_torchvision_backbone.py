"""Convert an ImageNet checkpoint of torchvision into a backbone for `VisionConfig` and `hf-ngsan extract`.

    python conversion/convert_torchvision_backbone.py --architecture vgg11 --checkpoint vgg11.pth --output vgg11

VGG and ResNeXt become those of this package, ResNet becomes that of transformers. The classifier is left out. The
folder also contains the preprocessing: 224 x 224 pixels in RGB with ImageNet's mean and deviation.
"""

import sys
from collections.abc import Iterator

import torch
from state_dicts import Conversion, convert, main, resnext_weight
from transformers import ResNetBackbone, ResNetConfig
from transformers.configuration_utils import PreTrainedConfig

from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig

VGG_DEPTHS = {"vgg11": [1, 1, 2, 2, 2], "vgg13": [2, 2, 2, 2, 2], "vgg16": [2, 2, 3, 3, 3], "vgg19": [2, 2, 4, 4, 4]}
RESNET_DEPTHS = {"50": [3, 4, 6, 3], "101": [3, 4, 23, 3], "152": [3, 8, 36, 3]}
CONFIGURATIONS: dict[str, PreTrainedConfig] = {
    **{name: NGSANVGGConfig(depths=depths) for name, depths in VGG_DEPTHS.items()},
    **{f"{name}_bn": NGSANVGGConfig(depths=depths, use_batch_norm=True) for name, depths in VGG_DEPTHS.items()},
    **{f"resnet{name}": ResNetConfig(depths=depths) for name, depths in RESNET_DEPTHS.items()},
    "resnext50_32x4d": NGSANResNeXtConfig(depths=RESNET_DEPTHS["50"], groups=32, width_per_group=4),
    "resnext101_32x8d": NGSANResNeXtConfig(depths=RESNET_DEPTHS["101"], groups=32, width_per_group=8),
}
HEADS = r"(classifier\.[036]|fc)\.(weight|bias)$"
PREPROCESSING = {
    "size": {"height": 224, "width": 224},
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def convert_weights(config: PreTrainedConfig, weights: dict[str, torch.Tensor]) -> Conversion:
    """Converts a state dict of torchvision to a backbone with this configuration.

    Raises:
        ConversionError: the state dict is of another architecture or damaged.
    """
    if config.model_type == "ngsan_vgg":
        model_class, source_name = NGSANVGGBackbone, dict(vgg_names(config)).__getitem__
    elif config.model_type == "ngsan_resnext":
        model_class, source_name = NGSANResNeXtBackbone, resnext_source_name
    else:
        model_class, source_name = ResNetBackbone, resnet_source_name
    return Conversion(*convert(model_class, config, weights, source_name, HEADS), PREPROCESSING)


def vgg_names(config: NGSANVGGConfig) -> Iterator[tuple[str, str]]:
    """Yields names here and in torchvision, which numbers convolutions, normalizations, ReLUs and poolings."""
    position = 0
    for stage, depth in enumerate(config.depths, start=1):
        for layer in range(depth):
            ours = f"stages.stage{stage}.layers.{layer}"
            for field in ("weight", "bias"):
                yield f"{ours}.convolution.{field}", f"features.{position}.{field}"
            if config.use_batch_norm:
                position += 1
                for field in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                    yield f"{ours}.normalization.{field}", f"features.{position}.{field}"
            position += 2
        position += 1


def resnext_source_name(ours: str) -> str:
    stage, block, convolution, kind, field = resnext_weight(ours)
    if convolution is None:
        module = "downsample.0" if kind == "convolution" else "downsample.1"
    else:
        module = ("conv" if kind == "convolution" else "bn") + convolution
    return f"layer{stage}.{block}.{module}.{field}" if stage else f"{module}.{field}"


def resnet_source_name(ours: str) -> str:
    """Returns torchvision's name of a weight of transformers' ResNet."""
    if ours.startswith("embedder."):
        return resnext_source_name(f"stages.stem.{ours.removeprefix('embedder.')}")
    _, _, stage, _, block, *layer, kind, field = ours.split(".")
    layer = "shortcut" if layer == ["shortcut"] else ("reduce", "transform", "expand")[int(layer[1])]
    return resnext_source_name(f"stages.stage{int(stage) + 1}.{block}.{layer}.{kind}.{field}")


def convert_checkpoint(architecture: str, weights: dict[str, torch.Tensor]) -> Conversion:
    return convert_weights(CONFIGURATIONS[architecture], weights)


if __name__ == "__main__":
    sys.exit(main(__doc__, list(CONFIGURATIONS), convert_checkpoint))
