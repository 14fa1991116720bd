"""EfficientNet-Lite as a classifier of images."""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .modeling_base import refuse_unknown_keywords
from .modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig


class NGSANEfficientNetLiteForImageClassification(PreTrainedModel):
    r"""EfficientNet-Lite with pooling, dropout and a classifier. Lite0 has 4,652,008 parameters for 1,000 classes.

    Args:
        config: with a `head_size`.

    Raises:
        ValueError: the configuration has no `head_size`.
    """

    config: NGSANEfficientNetLiteConfig
    base_model_prefix = "efficientnet_lite"
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    _no_split_modules = ["InvertedBottleneck"]
    # There is no attention for which an implementation could be missing.
    _supports_sdpa = True
    _supports_flex_attn = True

    def __init__(self, config: NGSANEfficientNetLiteConfig):
        super().__init__(config)
        head_size, num_labels = config.head_size, config.num_labels or 0
        if head_size is None:
            raise ValueError("head_size is None; a classifier needs the 1x1 convolution before it: 1280 channels.")
        self.efficientnet_lite = NGSANEfficientNetLiteBackbone(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(head_size, num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutputWithNoAttention:
        r"""
        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, num_channels, height, width)`): normalized images.
            labels (`torch.Tensor` of shape `(batch_size,)`, *optional*): classes, or values where `num_labels` is 1.
            output_hidden_states (`bool`, *optional*): also return the maps of all stages.

        Returns:
            `ImageClassifierOutputWithNoAttention`: `logits` `(batch_size, num_labels)`, and `loss` with labels.
        """
        refuse_unknown_keywords(self, kwargs)
        output = self.efficientnet_lite(pixel_values, output_hidden_states=output_hidden_states)
        logits = self.classifier(self.dropout(output.feature_maps[-1].mean(dim=(2, 3))))
        loss = None if labels is None else self.loss_function(labels, logits, self.config)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits, hidden_states=output.hidden_states)


__all__ = ["NGSANEfficientNetLiteForImageClassification"]
