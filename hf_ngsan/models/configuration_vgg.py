"""Configuration of the VGG backbone."""

from .configuration_hub import strict
from .configuration_vision import ConvolutionalConfig


@strict
class NGSANVGGConfig(ConvolutionalConfig):
    r"""Configuration of VGG without its classifier (Simonyan and Zisserman 2015). The defaults are VGG-11.

    | model | `depths` |
    | --- | --- |
    | VGG-11 (A) | `[1, 1, 2, 2, 2]` |
    | VGG-13 (B) | `[2, 2, 2, 2, 2]` |
    | VGG-16 (D) | `[2, 2, 3, 3, 3]` |
    | VGG-19 (E) | `[2, 2, 4, 4, 4]` |

    A net for drawings of 64 x 64 pixels: `depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 128], use_batch_norm=True`,
    which gives a map of 8 x 8 cells.

    Args:
        num_channels (`int`, defaults to 3): channels of the images.
        depths (`list[int]`, defaults to `[1, 1, 2, 2, 2]`): convolutions of each stage. Between two stages the map is
            halved.
        hidden_sizes (`list[int]`, defaults to `[64, 128, 256, 512, 512]`): channels of each stage.
        use_batch_norm (`bool`, defaults to `False`): normalize after each convolution; wanted for training from
            scratch.
        out_features (`list[str]`, *optional*), out_indices (`list[int]`, *optional*): stages whose maps to return, of
            `"stage1"` and so on; the last by default.

    Raises:
        ValueError: sizes that do not fit together; the message names the field.
    """

    model_type = "ngsan_vgg"
    remote_classes = {
        "AutoConfig": "configuration_vgg.NGSANVGGConfig",
        "AutoBackbone": "modeling_vgg.NGSANVGGBackbone",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }

    depths: list[int] | tuple[int, ...] = (1, 1, 2, 2, 2)
    hidden_sizes: list[int] | tuple[int, ...] = (64, 128, 256, 512, 512)
    use_batch_norm: bool = False


__all__ = ["NGSANVGGConfig"]
