"""Configuration of the vision part of a captioner: from pixels to visual tokens."""

import copy

import torch
from transformers import CONFIG_MAPPING, AutoBackbone
from transformers.configuration_utils import PreTrainedConfig

from .configuration_hub import HubConfig, check_choice, check_positive, check_rate, strict
from .configuration_resnext import NGSANResNeXtConfig
from .configuration_vgg import NGSANVGGConfig

OWN_CONFIGS = {config.model_type: config for config in (NGSANResNeXtConfig, NGSANVGGConfig)}


@strict
class VisionConfig(HubConfig):
    r"""Configuration of a [`VisionModel`]: a grid of cells or a set of detected regions.

    Args:
        kind (`str`, defaults to `"grid"`): `"grid"`: every cell of a backbone's last feature map is a visual token;
            `"regions"`: the queries of a detection model (RT-DETR, D-FINE, ...) are, with their boxes.
        backbone_config (`dict` or `PreTrainedConfig`, *optional*): of the backbone, or of the detection model; a dict
            names its `model_type`. Backbones are those of transformers (`resnet`, ...), `ngsan_resnext` and
            `ngsan_vgg`, whose VGG-11 is the default.
        grid_size (`list[int]`, *optional*): rows and columns that the feature map is pooled to (adaptive average, as
            the 7 x 7 grids of Zhang et al. 2021); `None` leaves the map as it is.
        num_regions (`int`, defaults to 36): regions at most; those with the highest scores.
        score_threshold (`float`, defaults to 0.0): regions with a lower score are left out, the best one never is.
        suppression_threshold (`float`, defaults to 1.0): of two regions of one class whose boxes overlap by more than
            this (intersection over union), the one with the lower score is left out; 1 keeps all.
        frozen (`bool`, defaults to `True`): the backbone keeps its weights and stays in evaluation mode in training.
        pretrained (`str`, *optional*): folder or Hub name that the backbone's weights come from; see
            [`VisionModel.load_pretrained_backbone`].
        save_frozen_weights (`bool`, defaults to `True`): `False` leaves the weights of a frozen backbone that
            `pretrained` names out of saved models; loading takes them from there.
        feature_size (`int`, *optional*): width of a visual token. Follows from `backbone_config`, unless that is of a
            detection model which does not tell it.

    Raises:
        ValueError: fields that do not fit together; the message names the field.
    """

    model_type = "ngsan_vision"
    remote_classes = {
        "AutoConfig": "configuration_vision.VisionConfig",
        "AutoModel": "modeling_vision.VisionModel",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    kind: str = "grid"
    backbone_config: dict | PreTrainedConfig | None = None
    grid_size: list[int] | tuple[int, ...] | None = None
    num_regions: int = 36
    score_threshold: float | int = 0.0
    suppression_threshold: float | int = 1.0
    frozen: bool = True
    pretrained: str | None = None
    save_frozen_weights: bool = True
    feature_size: int | None = None
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs):
        check_choice("kind", self.kind, ("grid", "regions"))
        self.backbone_config = make_backbone_config(self.backbone_config or {"model_type": "ngsan_vgg"})
        if self.grid_size is not None:
            self.grid_size = list(self.grid_size)
        if self.feature_size is None:
            self.feature_size = self.width_of_backbone()
        super().__post_init__(**kwargs)

    @property
    def _attn_implementation(self) -> str | None:
        return self._attn_implementation_internal

    @_attn_implementation.setter
    def _attn_implementation(self, value: str | dict | None):
        """Backbones of transformers, many of which have one kind of attention or none, choose for themselves."""
        own = value.get("", self._attn_implementation_internal) if isinstance(value, dict) else value
        self._attn_implementation_internal = own
        if self.backbone_config.model_type in OWN_CONFIGS:
            self.backbone_config._attn_implementation = own

    def width_of_backbone(self) -> int:
        """Channels of the last feature map, or of a detection model's queries."""
        backbone = self.backbone_config
        if self.kind == "regions":
            for field in ("d_model", "hidden_size"):
                if isinstance(getattr(backbone, field, None), int):
                    return getattr(backbone, field)
            raise ValueError(
                f"feature_size does not follow from a backbone_config of type {backbone.model_type!r}; give "
                "feature_size."
            )
        sizes, stages = getattr(backbone, "hidden_sizes", None), getattr(backbone, "stage_names", None)
        if sizes and stages:
            return sizes[stages.index(backbone.out_features[-1]) - len(stages)]  # the stem has no width of its own
        with torch.device("meta"):  # the other backbones know it when they are built, here without any weights
            return make_transformers_backbone(AutoBackbone, copy.deepcopy(backbone)).channels[-1]

    def validate_architecture(self):
        super().validate_architecture()
        check_positive(num_regions=self.num_regions, feature_size=self.feature_size)
        check_rate(score_threshold=self.score_threshold, suppression_threshold=self.suppression_threshold)
        if self.grid_size is not None:
            if self.kind != "grid" or len(self.grid_size) != 2:
                raise ValueError(f"grid_size is {self.grid_size}; it is the rows and columns of a vision part 'grid'.")
            check_positive(grid_size=min(self.grid_size))
        if not self.save_frozen_weights and not (self.frozen and self.pretrained):
            raise ValueError(
                "save_frozen_weights=False leaves out weights that are frozen and have a source: it needs frozen=True "
                "and pretrained."
            )


def make_backbone_config(config: dict | PreTrainedConfig) -> PreTrainedConfig:
    """A configuration from a dict with its `model_type`; the package's own backbones need no Auto class."""
    if isinstance(config, PreTrainedConfig):
        return config
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(
            f"backbone_config is {config!r}; give the backbone's configuration, or a dict with its model_type."
        )
    fields = copy.deepcopy(config)
    model_type = fields.pop("model_type")
    if model_type in OWN_CONFIGS:
        return OWN_CONFIGS[model_type].from_dict(fields)
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"backbone_config has the unknown model_type {model_type!r}; it is one of {', '.join(OWN_CONFIGS)}, or "
            "of a backbone or detection model of transformers."
        )
    made = CONFIG_MAPPING[model_type].from_dict(fields)
    for name, value in vars(made).items():
        if isinstance(value, tuple):  # a default, which some backbones take for the list that a file has
            setattr(made, name, list(value))
    return made


def make_transformers_backbone(auto_class: type, config: PreTrainedConfig):
    """The model that an Auto class of transformers builds from a configuration.

    Raises:
        ValueError: it is no such model, or needs a package that is missing.
    """
    try:
        return auto_class.from_config(config, dtype=torch.get_default_dtype())  # whatever the checkpoint has
    except (ImportError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(f"backbone_config of type {config.model_type!r} cannot be used: {first}") from error


def make_vision_config(config: dict | PreTrainedConfig | None) -> PreTrainedConfig | None:
    """What a captioner makes of its field `vision_config`: a [`VisionConfig`], or `None` for none."""
    if config is None or isinstance(config, PreTrainedConfig):
        return config
    return VisionConfig.from_dict(config)


__all__ = ["VisionConfig"]
