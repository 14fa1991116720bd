"""The base of the package's convolutional backbones: initialization, and feature maps of the stages."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .modeling_base import refuse_unknown_keywords

PIXELS_IN_CACHE = 352 * 352
"""Pixels of images that one thread encodes together; measured with EfficientNet-Lite2."""


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


def is_inference() -> bool:
    """Returns whether no gradient is asked for, and no exporter follows the computation."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing())


def runs_in_onednn(hidden_states: torch.Tensor) -> bool:
    """Returns whether PyTorch's oneDNN convolves a map, on processors and in builds that have it."""
    backend = torch.backends.mkldnn
    is_available = backend.is_available() and bool(backend.enabled)
    is_single = hidden_states.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return is_available and is_single and hidden_states.device.type == "cpu" and hidden_states.numel() > 0


class Normalized(nn.Module):
    """Convolution without bias, then batch normalization.

    In inference the normalization is folded into the convolution: one pass over the map in place of two. The folded
    weights are made when they are needed first, and again when a weight or a statistic has changed; they are not saved.

    Attributes:
        convolution: `nn.Conv2d` or a subclass; one that pads in another way needs its own `convolve`.
        normalization: `nn.BatchNorm2d` or [`FrozenBatchNorm2d`].
    """

    convolution: Any
    normalization: Any
    foldable = True

    def normalized(self, hidden_states: torch.Tensor) -> torch.Tensor:
        is_constant = isinstance(self.normalization, FrozenBatchNorm2d) or not self.normalization.training
        if not (self.foldable and is_constant and is_inference()):
            return self.normalization(self.convolution(hidden_states))
        return self.convolve(hidden_states, *self.folded())

    def convolve(
        self, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: tuple | None = None
    ) -> torch.Tensor:
        own = self.convolution
        padding = own.padding if padding is None else padding
        if runs_in_onednn(hidden_states):  # where conv2d would multiply matrices for single images, at half the speed
            return torch.mkldnn_convolution(hidden_states, weight, bias, padding, own.stride, own.dilation, own.groups)
        return nn.functional.conv2d(hidden_states, weight, bias, own.stride, padding, own.dilation, own.groups)

    def folded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns weight and bias of the convolution that both are together.

        They are kept with copies of what they were made of, since values may change without a trace: `weight.data` may
        be written to, or be another tensor at an address that was free again. Comparing is fast on a processor alone;
        an accelerator would have to wait for it, and makes them anew.
        """
        weight, norm = self.convolution.weight, self.normalization
        sources = weight, norm.weight, norm.bias, norm.running_mean, norm.running_var
        known = self.__dict__.get("known_folded")
        if known is None or not all(map(is_same, sources, known[0])):
            scale = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
            bias = norm.bias.float() - norm.running_mean.float() * scale
            folded = (weight.float() * scale[:, None, None, None]).to(weight.dtype), bias.to(weight.dtype)
            if weight.device.type != "cpu":
                return folded
            known = self.__dict__["known_folded"] = [one.detach().clone() for one in sources], folded
        return known[1]


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are alike in every value, and in how they are stored."""
    are_alike = one.device == other.device and one.dtype == other.dtype and one.stride() == other.stride()
    return are_alike and torch.equal(one, other)


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
        parts = [self.maps(part, bool(output_hidden_states)) for part in in_parts(pixel_values)]
        maps: Any = (
            parts[0] if len(parts) == 1 else {name: torch.cat([one[name] for one in parts]) for name in parts[0]}
        )
        return BackboneOutput(
            feature_maps=tuple(maps[name] for name in self.out_features),
            hidden_states=tuple(maps.values()) if output_hidden_states else None,
        )

    def maps(self, pixel_values: torch.Tensor, all_stages: bool) -> dict[str, torch.Tensor]:
        """Returns the maps of `out_features`, or of all stages, by their names."""
        found, current = {}, pixel_values
        for name, stage in self.stages.items():
            current = without_needless_gradient(stage, current)
            if all_stages or name in self.out_features:
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
