"""Configuration of the ResNeXt backbone."""

from typing import Any

from .configuration_hub import check_choice, strict
from .configuration_vision import ConvolutionalConfig


@strict
class NGSANResNeXtConfig(ConvolutionalConfig):
    r"""Configuration of ResNeXt and ResNet with bottleneck blocks, without their classifier.

    The architectures are those of He et al. 2016 and Xie et al. 2017. The defaults are ResNeXt-101 32x8d.

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
        stride_in_1x1 (`bool`, defaults to `False`): halve the map in a block's first 1x1 convolution, as the first
            ResNets of He et al. do, and not in the 3x3 convolution, as torchvision and Caffe2 do.
        last_stage_dilation (`int`, defaults to 1): 2 dilates the 3x3 convolutions of the last stage, which then leaves
            the map's size alone.
        deformable_stages (`list[int]`, defaults to `[]`): numbers of the stages, from 1, whose 3x3 convolutions are
            deformable (Dai et al. 2017).
        frozen_batch_norm (`bool`, defaults to `False`): statistics, scale and shift of the normalizations are constants
            of the checkpoint, in training too, as in the detectors of detectron2.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps to return, of
            `"stem"`, `"stage1"` and so on; the last by default.

    Raises:
        ValueError: sizes that do not fit together; the message names the field.
    """

    model_type = "ngsan_resnext"
    remote_classes = {
        "AutoConfig": "configuration_resnext.NGSANResNeXtConfig",
        "AutoBackbone": "modeling_resnext.NGSANResNeXtBackbone",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    embedding_size: int = 64
    depths: list[int] | tuple[int, ...] = (3, 4, 23, 3)
    hidden_sizes: list[int] | tuple[int, ...] = (256, 512, 1024, 2048)
    groups: int = 32
    width_per_group: int = 8
    stride_in_1x1: bool = False
    last_stage_dilation: int = 1
    deformable_stages: list[int] | tuple[int, ...] = ()
    frozen_batch_norm: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        self.deformable_stages = list(self.deformable_stages)
        super().__post_init__(**kwargs)

    @property
    def stage_sizes(self) -> dict[str, int]:
        return {"stem": self.embedding_size, **super().stage_sizes}

    def validate_architecture(self) -> None:
        super().validate_architecture()
        check_choice("last_stage_dilation", self.last_stage_dilation, (1, 2))
        for stage in self.deformable_stages:
            check_choice("deformable_stages", stage, tuple(range(1, len(self.depths) + 1)))


__all__ = ["NGSANResNeXtConfig"]
