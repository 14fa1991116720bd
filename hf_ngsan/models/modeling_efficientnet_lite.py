"""EfficientNet-Lite as a backbone, equivalent to its authors' TensorFlow code."""

import torch
from torch import nn

from .configuration_hub import strict
from .configuration_vision import ConvolutionalConfig
from .modeling_vision import ConvolutionalBackbone, Normalized, is_inference


@strict
class NGSANEfficientNetLiteConfig(ConvolutionalConfig):
    r"""Configuration of EfficientNet-Lite: EfficientNet (Tan and Le 2019) without squeeze-and-excitation, with ReLU6.

    The defaults are EfficientNet-Lite0.

    Args:
        num_channels (`int`, defaults to 3): channels of the images.
        embedding_size (`int`, defaults to 32): channels of the stem.
        depths (`list[int]`, defaults to `[1, 2, 2, 3, 3, 4, 1]`): number of blocks of each stage, for up to 7 stages.
        hidden_sizes (`list[int]`, defaults to `[16, 24, 40, 80, 112, 192, 320]`): channels of each stage.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps are returned:
            `"stem"`, `"stage1"` and so on; defaults to the last.
    """

    model_type = "ngsan_efficientnet_lite"
    remote_classes = {
        "AutoConfig": "modeling_efficientnet_lite.NGSANEfficientNetLiteConfig",
        "AutoBackbone": "modeling_efficientnet_lite.NGSANEfficientNetLiteBackbone",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    embedding_size: int = 32
    depths: list[int] | tuple[int, ...] = (1, 2, 2, 3, 3, 4, 1)
    hidden_sizes: list[int] | tuple[int, ...] = (16, 24, 40, 80, 112, 192, 320)


KERNEL_SIZES = (3, 3, 5, 3, 5, 5, 3)
STRIDES = (1, 2, 2, 2, 1, 2, 1)
EXPANSIONS = (1, 6, 6, 6, 6, 6, 6)
"""Kernel size, stride and expansion of each stage, from table 1 of Tan and Le 2019."""
BATCH_NORM_EPS = 1e-3
BATCH_NORM_MOMENTUM = 0.01


class SameConvolution(nn.Conv2d):
    """Convolution without bias and with TensorFlow's SAME padding; odd padding has one more pixel right and below."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, groups: int = 1):
        padding = kernel_size // 2 if stride == 1 else 0
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.stride != (1, 1):
            rows, columns = (self.sides(length) for length in hidden_states.shape[2:])
            hidden_states = nn.functional.pad(hidden_states, (*columns, *rows))
        return super().forward(hidden_states)

    def sides(self, length: int) -> tuple[int, int]:
        """Returns the padding before and after an axis."""
        kernel_size, stride = self.kernel_size[0], self.stride[0]
        total = max((-(-length // stride) - 1) * stride + kernel_size - length, 0)
        return total // 2, total - total // 2


class EfficientNetLiteConvolution(Normalized):
    """Convolution and batch normalization, then ReLU6 unless it is linear."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        groups: int = 1,
        is_linear: bool = False,
    ):
        super().__init__()
        self.convolution = SameConvolution(in_channels, out_channels, kernel_size, stride, groups)
        self.normalization = nn.BatchNorm2d(out_channels, eps=BATCH_NORM_EPS, momentum=BATCH_NORM_MOMENTUM)
        self.activation = nn.Identity() if is_linear else nn.ReLU6()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(hidden_states)
        if is_inference() and isinstance(self.activation, nn.ReLU6):
            return nn.functional.hardtanh_(outputs, 0.0, 6.0)
        return self.activation(outputs)

    def convolve(
        self, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: tuple[int, int]
    ) -> torch.Tensor:
        if self.convolution.stride == (1, 1):
            return super().convolve(hidden_states, weight, bias, padding)
        # Longer padding after an axis: zeros before the kernel avoid a padded copy of the map.
        (top, bottom), (left, right) = (self.convolution.sides(length) for length in hidden_states.shape[2:])
        weight = nn.functional.pad(weight, (right - left, 0, bottom - top, 0))
        return super().convolve(hidden_states, weight, bias, (bottom, right))


class InvertedBottleneck(nn.Module):
    """Expansion, depthwise convolution and linear projection (Sandler et al. 2018), residual if shapes are equal."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int, expansion: int):
        super().__init__()
        width = in_channels * expansion
        self.expand = EfficientNetLiteConvolution(in_channels, width) if expansion > 1 else nn.Identity()
        self.depthwise = EfficientNetLiteConvolution(width, width, kernel_size, stride, groups=width)
        self.project = EfficientNetLiteConvolution(width, out_channels, is_linear=True)
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        projected = self.project(self.depthwise(self.expand(hidden_states)))
        if not self.is_residual:
            return projected
        return projected.add_(hidden_states) if is_inference() else hidden_states + projected


def make_efficientnet_stage(config: NGSANEfficientNetLiteConfig, stage: int) -> nn.Sequential:
    """Makes the blocks of a stage; the first block changes the channels and the size of the map."""
    out_channels = config.hidden_sizes[stage]
    in_channels = config.hidden_sizes[stage - 1] if stage else config.embedding_size
    kernel_size, stride, expansion = KERNEL_SIZES[stage], STRIDES[stage], EXPANSIONS[stage]
    first = InvertedBottleneck(in_channels, out_channels, kernel_size, stride, expansion)
    rest = (
        InvertedBottleneck(out_channels, out_channels, kernel_size, 1, expansion)
        for _ in range(config.depths[stage] - 1)
    )
    return nn.Sequential(first, *rest)


class NGSANEfficientNetLiteBackbone(ConvolutionalBackbone):
    """EfficientNet-Lite without pooling and classifier. The stages of Lite0 have 2.96 M parameters."""

    config: NGSANEfficientNetLiteConfig
    base_model_prefix = "efficientnet_lite"
    _no_split_modules = ["InvertedBottleneck"]

    def __init__(self, config: NGSANEfficientNetLiteConfig):
        super().__init__(config)
        stages: list[nn.Module] = [EfficientNetLiteConvolution(config.num_channels, config.embedding_size, 3, stride=2)]
        stages += [make_efficientnet_stage(config, stage) for stage in range(len(config.depths))]
        self.stages = nn.ModuleDict(dict(zip(config.stage_names, stages, strict=True)))
        self.post_init()


__all__ = ["NGSANEfficientNetLiteBackbone", "NGSANEfficientNetLiteConfig"]
