"""The base configuration of the package's convolutional backbones."""

from typing import Any

from transformers.backbone_utils import BackboneConfigMixin

from .configuration_hub import HubConfig


class ConvolutionalConfig(BackboneConfigMixin, HubConfig):
    """Sizes of the stages of a backbone, and the stages whose feature maps it returns.

    A subclass gives `depths` (blocks of each stage) and `hidden_sizes` (channels of each stage) their defaults. Its
    constructor also takes `out_features` (names of stages, in their order) or `out_indices` (their positions); without
    both, the last map is returned.
    """

    has_stem = False

    num_channels: int = 3
    depths: list[int] | tuple[int, ...] = ()
    hidden_sizes: list[int] | tuple[int, ...] = ()

    def __post_init__(self, **kwargs: Any) -> None:
        self.depths, self.hidden_sizes = list(self.depths), list(self.hidden_sizes)
        stages = [f"stage{number}" for number in range(1, len(self.depths) + 1)]
        self.stage_names = [*(["stem"] if self.has_stem else []), *stages, *self.last_stages]
        kwargs.pop("stage_names", None)
        outputs = {name: kwargs.pop(name, None) for name in ("out_features", "out_indices")}
        if self.depths:
            self.set_output_features_output_indices(**outputs)
        super().__post_init__(**kwargs)

    @property
    def last_stages(self) -> dict[str, int]:
        """Names and channels of the stages behind those of `depths` and `hidden_sizes`."""
        return {}

    def validate_architecture(self) -> None:
        for field in ("depths", "hidden_sizes"):
            if not getattr(self, field):
                raise ValueError(f"{field} is empty; it must have one number a stage.")
        if len(self.depths) != len(self.hidden_sizes):
            raise ValueError(
                f"depths has {len(self.depths)} stages and hidden_sizes {len(self.hidden_sizes)}; give both the same."
            )
        super().validate_architecture()
