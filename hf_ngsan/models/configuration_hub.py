"""Base of all configurations: decides what a checkpoint says about the code that it carries."""

import copy
import functools

from huggingface_hub import dataclasses
from huggingface_hub.errors import StrictDataclassError
from transformers.configuration_utils import PreTrainedConfig


class ConfigurationError(StrictDataclassError, ValueError):
    """A value that a configuration refuses; the message names the field."""


def strict(cls: type) -> type:
    """`huggingface_hub.dataclasses.strict`, with errors that are one sentence and can be caught as ValueError."""
    cls = dataclasses.strict(cls)
    initialize = cls.__init__

    @functools.wraps(initialize)
    def __init__(self, *args, **kwargs):
        try:
            initialize(self, *args, **kwargs)
        except ConfigurationError:  # of a configuration within this one
            raise
        except StrictDataclassError as error:
            raise ConfigurationError(str(error.__cause__)) from None

    cls.__init__ = __init__
    return cls


class HubConfig(PreTrainedConfig):
    """A configuration whose checkpoints can carry their own code.

    Once a class is registered with `register_for_auto_class`, `save_pretrained` copies the code and this class
    completes `config.json`: `auto_map` lists every auto class of the architecture (transformers alone would list one)
    and `custom_pipelines` its pipelines. The installed package saves neither unless it saves the code too.

    Class attributes, set per architecture:
        remote_classes (`dict[str, str]`): auto class to `file.Class`, e.g. `{"AutoModel": "modeling_x.XModel"}`.
        remote_pipelines (`dict[str, dict]`): task to `{"impl": "file.Class", "pt": [auto classes], "type": …}`.
    """

    remote_classes = {}
    remote_pipelines = {}

    def __post_init__(self, **kwargs):
        kwargs.pop("custom_pipelines", None)
        super().__post_init__(**kwargs)
        if type(self).__module__.startswith("transformers_modules."):
            # pipeline() writes classes into the dictionary that it is given.
            self.custom_pipelines = copy.deepcopy(self.remote_pipelines)

    def to_dict(self) -> dict:
        output = super().to_dict()
        auto_map = output.pop("auto_map", None)  # of a checkpoint with code
        if self._auto_class is not None:
            output["auto_map"] = {**self.remote_classes, **(auto_map or {})}
            output["custom_pipelines"] = copy.deepcopy(self.remote_pipelines)
        return output


def check_choice(field: str, value, choices: tuple):
    """Raise a ValueError that names the field unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def check_positive(**fields: int):
    """Raise a ValueError that names the field unless all values are at least 1."""
    for field, value in fields.items():
        if value < 1:
            raise ValueError(f"{field} is {value}; it must be at least 1.")


def check_rate(**fields: float):
    """Raise a ValueError that names the field unless all values lie within [0, 1]."""
    for field, value in fields.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{field} is {value}; it must lie between 0 and 1.")


IMAGE_TO_TEXT_PIPELINE = {
    task: {
        "impl": "pipeline_image_to_text.ImageToTextPipeline",
        "pt": ["AutoModelForImageTextToText"],
        "type": "multimodal",
    }
    for task in ("image-to-text", "image-text-to-text")
}
