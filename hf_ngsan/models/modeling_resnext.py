"""ResNeXt (Xie et al. 2017) and ResNet (He et al. 2016) as backbones, equivalent to torchvision and detectron2."""

import torch
from torch import nn
from transformers import initialization as init

from .configuration_hub import strict
from .configuration_vision import ConvolutionalConfig
from .modeling_vision import ConvolutionalBackbone, Normalized


@strict
class NGSANResNeXtConfig(ConvolutionalConfig):
    r"""Configuration of ResNeXt and ResNet with bottleneck blocks. The defaults are ResNeXt-101 32x8d.

    | model | `depths` | `groups` | `width_per_group` |
    | --- | --- | --- | --- |
    | ResNet-50 | `[3, 4, 6, 3]` | 1 | 64 |
    | ResNeXt-101 32x8d | `[3, 4, 23, 3]` | 32 | 8 |
    | ResNeXt-152 32x8d | `[3, 8, 36, 3]` | 32 | 8 |

    Args:
        num_channels (`int`, defaults to 3): channels of the images.
        embedding_size (`int`, defaults to 64): channels of the stem.
        depths (`list[int]`, defaults to `[3, 4, 23, 3]`): bottleneck blocks of each stage.
        hidden_sizes (`list[int]`, defaults to `[256, 512, 1024, 2048]`): channels of each stage.
        groups (`int`, defaults to 32): groups of the 3x3 convolutions, the cardinality of Xie et al.
        width_per_group (`int`, defaults to 8): channels of a group in the first stage; they double with every stage.
        stride_in_1x1 (`bool`, defaults to `False`): whether a block halves the map in its first 1x1 convolution, as in
            the first ResNets of He et al., instead of its 3x3 convolution, as in torchvision and Caffe2.
        frozen_batch_norm (`bool`, defaults to `False`): whether statistics, scale and shift of the normalizations stay
            constant in training, as in the detectors of detectron2.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps are returned:
            `"stem"`, `"stage1"` and so on; defaults to the last.
    """

    model_type = "ngsan_resnext"
    remote_classes = {
        "AutoConfig": "modeling_resnext.NGSANResNeXtConfig",
        "AutoBackbone": "modeling_resnext.NGSANResNeXtBackbone",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    embedding_size: int = 64
    depths: list[int] | tuple[int, ...] = (3, 4, 23, 3)
    hidden_sizes: list[int] | tuple[int, ...] = (256, 512, 1024, 2048)
    groups: int = 32
    width_per_group: int = 8
    stride_in_1x1: bool = False
    frozen_batch_norm: bool = False


class FrozenBatchNorm2d(nn.Module):
    """Batch normalization with constant statistics, scale and shift in any mode; it has no parameters."""

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
        self.eval()

    def train(self, mode: bool = True) -> "FrozenBatchNorm2d":
        return super().train(False)

    def reset_parameters(self) -> None:
        """Makes the layer the identity (except for `eps`)."""
        for buffer in (self.weight, self.running_var):
            init.ones_(buffer)
        for buffer in (self.bias, self.running_mean):
            init.zeros_(buffer)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        statistics = self.running_mean, self.running_var
        return nn.functional.batch_norm(hidden_states, *statistics, weight=self.weight, bias=self.bias, eps=self.eps)


class ResNeXtConvolution(Normalized):
    """Convolution without bias, then batch normalization."""

    def __init__(
        self,
        config: NGSANResNeXtConfig,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        groups: int = 1,
    ):
        super().__init__()
        padding = kernel_size // 2
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=False)
        self.normalization = (FrozenBatchNorm2d if config.frozen_batch_norm else nn.BatchNorm2d)(out_channels)


class ResNeXtStem(nn.Module):
    """7x7 convolution and max pooling; height and width become a quarter."""

    def __init__(self, config: NGSANResNeXtConfig):
        super().__init__()
        self.embedder = ResNeXtConvolution(config, config.num_channels, config.embedding_size, 7, stride=2)
        self.pooling = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.pooling(torch.relu(self.embedder(pixel_values)))


class ResNeXtBlock(nn.Module):
    """Bottleneck with grouped 3x3 convolution (fig. 3c of Xie et al. 2017), and a projection where sizes change."""

    def __init__(self, config: NGSANResNeXtConfig, in_channels: int, out_channels: int, width: int, stride: int):
        super().__init__()
        first, second = (stride, 1) if config.stride_in_1x1 else (1, stride)
        self.reduce = ResNeXtConvolution(config, in_channels, width, stride=first)
        self.transform = ResNeXtConvolution(config, width, width, 3, second, config.groups)
        self.expand = ResNeXtConvolution(config, width, out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = ResNeXtConvolution(config, in_channels, out_channels, stride=stride)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.transform(torch.relu(self.reduce(hidden_states))))
        return torch.relu(self.expand(inner) + self.shortcut(hidden_states))


def make_resnext_stage(config: NGSANResNeXtConfig, stage: int) -> nn.Sequential:
    """Makes the blocks of a stage; the first block halves the map, except in the first stage."""
    width = config.groups * config.width_per_group * 2**stage
    out_channels = config.hidden_sizes[stage]
    in_channels = config.hidden_sizes[stage - 1] if stage else config.embedding_size
    first = ResNeXtBlock(config, in_channels, out_channels, width, stride=2 if stage else 1)
    rest = (ResNeXtBlock(config, out_channels, out_channels, width, 1) for _ in range(config.depths[stage] - 1))
    return nn.Sequential(first, *rest)


class NGSANResNeXtBackbone(ConvolutionalBackbone):
    r"""ResNeXt or ResNet without pooling and classifier. ResNeXt-101 32x8d has 86.74 M parameters."""

    config: NGSANResNeXtConfig
    base_model_prefix = "resnext"
    _no_split_modules = ["ResNeXtBlock"]

    def __init__(self, config: NGSANResNeXtConfig):
        super().__init__(config)
        stages = [ResNeXtStem(config), *(make_resnext_stage(config, stage) for stage in range(len(config.depths)))]
        self.stages = nn.ModuleDict(dict(zip(config.stage_names, stages, strict=True)))
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FrozenBatchNorm2d):
            module.reset_parameters()


__all__ = ["NGSANResNeXtBackbone", "NGSANResNeXtConfig"]
