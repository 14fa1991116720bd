"""VGG as a backbone (Simonyan and Zisserman 2015), without the last pooling."""

import torch
from torch import nn

from .configuration_hub import strict
from .configuration_vision import ConvolutionalConfig
from .modeling_vision import ConvolutionalBackbone


@strict
class NGSANVGGConfig(ConvolutionalConfig):
    r"""Configuration of VGG without its classifier (Simonyan and Zisserman 2015). The defaults are VGG-11.

    | model | `depths` |
    | --- | --- |
    | VGG-11 (A) | `[1, 1, 2, 2, 2]` |
    | VGG-13 (B) | `[2, 2, 2, 2, 2]` |
    | VGG-16 (D) | `[2, 2, 3, 3, 3]` |
    | VGG-19 (E) | `[2, 2, 4, 4, 4]` |

    Args:
        num_channels (`int`, defaults to 3): channels of the images.
        depths (`list[int]`, defaults to `[1, 1, 2, 2, 2]`): convolutions of each stage; pooling separates stages.
        hidden_sizes (`list[int]`, defaults to `[64, 128, 256, 512, 512]`): channels of each stage.
        use_batch_norm (`bool`, defaults to `False`): whether convolutions are normalized, for training from scratch.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps are returned:
            `"stage1"` and so on; defaults to the last.
    """

    model_type = "ngsan_vgg"
    remote_classes = {
        "AutoConfig": "modeling_vgg.NGSANVGGConfig",
        "AutoBackbone": "modeling_vgg.NGSANVGGBackbone",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    depths: list[int] | tuple[int, ...] = (1, 1, 2, 2, 2)
    hidden_sizes: list[int] | tuple[int, ...] = (64, 128, 256, 512, 512)
    use_batch_norm: bool = False


class VGGConvolution(nn.Module):
    """3x3 convolution, normalization if any, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, use_batch_norm: bool):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
        self.normalization = nn.BatchNorm2d(out_channels) if use_batch_norm else nn.Identity()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.normalization(self.convolution(hidden_states)))


class VGGStage(nn.Module):
    """Convolutions between two poolings; all stages except the first halve the map before them."""

    def __init__(self, config: NGSANVGGConfig, stage: int):
        super().__init__()
        out_channels = config.hidden_sizes[stage]
        in_channels = config.hidden_sizes[stage - 1] if stage else config.num_channels
        self.pooling = nn.MaxPool2d(2) if stage else nn.Identity()
        self.layers = nn.Sequential(
            *(
                VGGConvolution(out_channels if index else in_channels, out_channels, config.use_batch_norm)
                for index in range(config.depths[stage])
            )
        )

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.layers(self.pooling(hidden_states))


class NGSANVGGBackbone(ConvolutionalBackbone):
    r"""VGG without its last pooling and its classifier. VGG-11 has 9.22 M parameters."""

    config: NGSANVGGConfig
    base_model_prefix = "vgg"
    _no_split_modules = ["VGGConvolution"]

    def __init__(self, config: NGSANVGGConfig):
        super().__init__(config)
        self.stages = nn.ModuleDict({name: VGGStage(config, index) for index, name in enumerate(config.stage_names)})
        self.post_init()


__all__ = ["NGSANVGGBackbone", "NGSANVGGConfig"]
