"""The base of the package's convolutional backbones: stages and their feature maps, and folded normalization."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.backbone_utils import BackboneConfigMixin, BackboneMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .configuration_hub import HubConfig
from .modeling_base import refuse_unknown_keywords

PIXELS_IN_CACHE = 352 * 352
"""Pixels of images that one thread encodes together; measured with EfficientNet-Lite2."""


class ConvolutionalConfig(BackboneConfigMixin, HubConfig):
    """Sizes of the stages of a backbone, and the stages whose feature maps it returns.

    A subclass gives `depths` (blocks of each stage) and `hidden_sizes` (channels of each stage) their defaults. Its
    constructor also takes `out_features` (names of stages, in their order) or `out_indices` (their positions); without
    both, the last map is returned.
    """

    num_channels: int = 3
    depths: list[int] | tuple[int, ...] = ()
    hidden_sizes: list[int] | tuple[int, ...] = ()

    def __post_init__(self, **kwargs: Any) -> None:
        self.depths, self.hidden_sizes = list(self.depths), list(self.hidden_sizes)
        self.stage_names = list(self.stage_sizes)
        kwargs.pop("stage_names", None)
        outputs = {name: kwargs.pop(name, None) for name in ("out_features", "out_indices")}
        if self.depths:
            self.set_output_features_output_indices(**outputs)
        super().__post_init__(**kwargs)

    @property
    def stage_sizes(self) -> dict[str, int]:
        """Names and channels of the stages, in their order; a subclass adds those before and behind `hidden_sizes`."""
        return {f"stage{number}": size for number, size in enumerate(self.hidden_sizes, start=1)}

    def validate_architecture(self) -> None:
        if len(self.depths) != len(self.hidden_sizes) or not self.depths:
            raise ValueError(
                f"depths has {len(self.depths)} stages and hidden_sizes {len(self.hidden_sizes)}; both need one number "
                "a stage."
            )
        super().validate_architecture()


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


class Normalized(nn.Module):
    """Convolution without bias, then batch normalization.

    In inference the normalization is folded into the convolution's weights: one pass over the map in place of two.

    Attributes:
        convolution: `nn.Conv2d` or a subclass; one that pads in another way needs its own `convolve`.
        normalization: `nn.BatchNorm2d` or [`FrozenBatchNorm2d`].
        foldable (`bool`): whether the convolution is linear in its weights alone.
    """

    convolution: Any
    normalization: Any
    foldable = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        norm = self.normalization
        is_constant = isinstance(norm, FrozenBatchNorm2d) or not norm.training
        if not (self.foldable and is_constant and is_inference()):
            return norm(self.convolution(hidden_states))
        weight = self.convolution.weight
        scale = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
        bias = norm.bias.float() - norm.running_mean.float() * scale
        folded = (weight.float() * scale[:, None, None, None]).to(weight.dtype)
        return self.convolve(hidden_states, folded, bias.to(weight.dtype), self.convolution.padding)

    def convolve(
        self, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: tuple[int, int]
    ) -> torch.Tensor:
        own = self.convolution
        if runs_in_onednn(hidden_states):  # where conv2d would multiply matrices for single images, at half the speed
            return torch.mkldnn_convolution(hidden_states, weight, bias, padding, own.stride, own.dilation, own.groups)
        return nn.functional.conv2d(hidden_states, weight, bias, own.stride, padding, own.dilation, own.groups)


def is_inference() -> bool:
    """Returns whether no gradient is asked for, and no exporter follows the computation."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing())


def runs_in_onednn(hidden_states: torch.Tensor) -> bool:
    """Returns whether PyTorch's oneDNN convolves a map, on processors and in builds that have it."""
    backend = torch.backends.mkldnn
    is_available = backend.is_available() and bool(backend.enabled)
    is_single = hidden_states.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return is_available and is_single and hidden_states.device.type == "cpu" and hidden_states.numel() > 0


class ConvolutionalBackbone(BackboneMixin, PreTrainedModel):
    """A chain of stages, each of which turns a map into the next.

    A subclass fills `stages` (`nn.ModuleDict`, one module for each of `config.stage_names`, in their order), then calls
    `post_init()`.
    """

    stages: nn.ModuleDict
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    has_attentions = False
    # There is no attention for which an implementation could be missing.
    _supports_sdpa = True
    _supports_flex_attn = True

    def __init__(self, config: Any):
        super().__init__(config)
        self.num_features = list(config.stage_sizes.values())

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
        """
        refuse_unknown_keywords(self, kwargs)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        names = self.config.stage_names if output_hidden_states else self.out_features
        parts = [self.maps(part, names) for part in in_parts(pixel_values)]
        maps: Any = (
            parts[0] if len(parts) == 1 else {name: torch.cat([one[name] for one in parts]) for name in parts[0]}
        )
        return BackboneOutput(
            feature_maps=tuple(maps[name] for name in self.out_features),
            hidden_states=tuple(maps.values()) if output_hidden_states else None,
        )

    def maps(self, pixel_values: torch.Tensor, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns the maps of some stages by their names."""
        found, current = {}, pixel_values
        for name, stage in self.stages.items():
            current = without_needless_gradient(stage, current)
            if name in names:
                found[name] = current
        return found


def without_needless_gradient(stage: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
    """Runs a stage, and builds no graph if it and all stages before it are frozen, which is faster."""
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if is_traced or hidden_states.requires_grad or any(weight.requires_grad for weight in stage.parameters()):
        return stage(hidden_states)
    with torch.no_grad():
        return stage(hidden_states)


def in_parts(pixel_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns images in parts whose maps fit into the caches of a processor, which is faster in inference."""
    height, width = pixel_values.shape[-2:]
    images = max(PIXELS_IN_CACHE * torch.get_num_threads() // (height * width), 1)
    if pixel_values.device.type != "cpu" or not is_inference() or len(pixel_values) <= images:
        return (pixel_values,)
    return pixel_values.split(images)
