"""Configuration of the EfficientNet-Lite backbone and classifier."""

from typing import Any, Self

from .configuration_hub import strict
from .configuration_vision import ConvolutionalConfig

VARIANTS: dict[str, dict[str, Any]] = {
    "efficientnet-lite0": {},
    "efficientnet-lite1": {"depths": [1, 3, 3, 4, 4, 5, 1]},
    "efficientnet-lite2": {"depths": [1, 3, 3, 4, 4, 5, 1], "hidden_sizes": [16, 24, 48, 88, 120, 208, 352]},
    "efficientnet-lite3": {"depths": [1, 3, 3, 5, 5, 6, 1], "hidden_sizes": [24, 32, 48, 96, 136, 232, 384]},
    "efficientnet-lite4": {"depths": [1, 4, 4, 6, 6, 8, 1], "hidden_sizes": [24, 32, 56, 112, 160, 272, 448]},
}
"""Differences of each variant from the defaults, which are EfficientNet-Lite0."""


@strict
class NGSANEfficientNetLiteConfig(ConvolutionalConfig):
    r"""Configuration of EfficientNet-Lite. The defaults are EfficientNet-Lite0.

    It is EfficientNet (Tan and Le 2019) without squeeze-and-excitation, with ReLU6, and with a stem and a head of the
    same size in every variant. [`from_variant`] makes the configuration of each of `VARIANTS`.

    Args:
        num_channels (`int`, defaults to 3): channels of the images.
        embedding_size (`int`, defaults to 32): channels of the stem.
        depths (`list[int]`, defaults to `[1, 2, 2, 3, 3, 4, 1]`): blocks of each stage, of 7 stages at most.
        hidden_sizes (`list[int]`, defaults to `[16, 24, 40, 80, 112, 192, 320]`): channels of each stage.
        head_size (`int`, *optional*): channels of the 1x1 convolution between the last stage and the classifier,
            1280 in every variant; `None` leaves it out.
        classifier_dropout (`float`, defaults to 0.2): of the pooled features before the classifier; the authors train
            Lite2 and larger ones with 0.3.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps to return, of
            `"stem"`, `"stage1"` and so on, and `"head"`; the last by default.

    Raises:
        ValueError: sizes that do not fit together; the message names the field.
    """

    model_type = "ngsan_efficientnet_lite"
    remote_classes = {
        "AutoConfig": "configuration_efficientnet_lite.NGSANEfficientNetLiteConfig",
        "AutoBackbone": "modeling_efficientnet_lite.NGSANEfficientNetLiteBackbone",
        "AutoModelForImageClassification": "efficientnet_lite_classifier.NGSANEfficientNetLiteForImageClassification",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    embedding_size: int = 32
    depths: list[int] | tuple[int, ...] = (1, 2, 2, 3, 3, 4, 1)
    hidden_sizes: list[int] | tuple[int, ...] = (16, 24, 40, 80, 112, 192, 320)
    head_size: int | None = None
    classifier_dropout: float | int = 0.2

    @classmethod
    def from_variant(cls, name: str, **fields: Any) -> Self:
        """Returns the configuration of `"efficientnet-lite0"` to `"efficientnet-lite4"`, with other fields changed."""
        return cls(**{**VARIANTS[name], **fields})

    @property
    def stage_sizes(self) -> dict[str, int]:
        head = {} if self.head_size is None else {"head": self.head_size}
        return {"stem": self.embedding_size, **super().stage_sizes, **head}


__all__ = ["NGSANEfficientNetLiteConfig"]
