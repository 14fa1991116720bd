"""Processor of the spatial captioner."""

from .processing_captioning import CaptioningProcessor


class SpatialCaptionerProcessor(CaptioningProcessor):
    """The processor of [`SpatialCaptionerForConditionalGeneration`]: a [`CaptioningProcessor`].

    Args:
        image_processor (`BaseImageProcessor`, *optional*): for models with a vision encoder. VGG-11 as torchvision
            trained it takes what a [`CaptioningImageProcessor`] makes by default: 224 x 224 pixels with ImageNet's mean
            and standard deviation.
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """


__all__ = ["SpatialCaptionerProcessor"]
