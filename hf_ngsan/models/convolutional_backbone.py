"""The base of the package's convolutional backbones: initialization, and feature maps of the stages."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .keywords import refuse_unknown_keywords


class FrozenBatchNorm2d(nn.Module):
    """Batch normalization whose statistics, scale and shift are constants: no parameter, no update, in any mode."""

    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.empty(num_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Becomes the identity (but for `eps`)."""
        for buffer in (self.weight, self.running_var):
            init.ones_(buffer)
        for buffer in (self.bias, self.running_mean):
            init.zeros_(buffer)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalizes `(batch_size, num_features, height, width)`."""
        statistics = self.running_mean, self.running_var
        return nn.functional.batch_norm(hidden_states, *statistics, weight=self.weight, bias=self.bias, eps=self.eps)


class ConvolutionalBackbone(BackboneMixin, PreTrainedModel):
    """A chain of stages, each of which turns a map into the next.

    A subclass fills `stages` (`nn.ModuleDict`, one module for each of `config.stage_names`, in their order) and
    `num_features` (`list[int]`, their channels), then calls `post_init()`.

    Attributes:
        smallest_side (`int`): pixels that both sides of an image must have.
    """

    stages: nn.ModuleDict
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    has_attentions = False
    # There is no attention for which an implementation could be missing.
    _supports_sdpa = True
    _supports_flex_attn = True
    smallest_side = 1

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, FrozenBatchNorm2d):
            module.reset_parameters()

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, output_hidden_states: bool | None = None, **kwargs: Any
    ) -> BackboneOutput:
        r"""
        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, num_channels, height, width)`): normalized images.
            output_hidden_states (`bool`, *optional*): also return the maps of all stages.

        Returns:
            `BackboneOutput`: `feature_maps`, one `(batch_size, channels, rows, columns)` for each of `out_features`.

        Raises:
            ValueError: images with other channels than `num_channels`, or too small for the halvings of the map.
        """
        refuse_unknown_keywords(self, kwargs)
        if pixel_values.ndim != 4 or pixel_values.shape[1] != self.config.num_channels:
            raise ValueError(
                f"pixel_values has the shape {tuple(pixel_values.shape)}; it must be (batch_size, "
                f"{self.config.num_channels}, height, width)."
            )
        if min(pixel_values.shape[2:]) < self.smallest_side:
            raise ValueError(
                f"The images are {pixel_values.shape[2]} x {pixel_values.shape[3]} pixels; "
                f"both sides must have at least {self.smallest_side}."
            )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        maps = {}
        current = pixel_values
        for name, stage in self.stages.items():
            current = maps[name] = stage(current)
        return BackboneOutput(
            feature_maps=tuple(maps[name] for name in self.out_features),
            hidden_states=tuple(maps.values()) if output_hidden_states else None,
        )
