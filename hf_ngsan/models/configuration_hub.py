"""The base of all configurations: fields, code and parts of a checkpoint."""

import copy
import functools
import importlib
import inspect
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import dataclasses
from huggingface_hub.errors import StrictDataclassError
from transformers.utils.versions import require_version

REQUIREMENTS = {"transformers": ">=5.24,<6", "torch": ">=2.6"}
"""Versions that this code supports; checkpoints with code have them under `requirements`."""


def require_versions(requirements: Mapping[str, str]) -> None:
    """Raises an ImportError for installed versions of libraries that would load or use weights differently."""
    for name, versions in requirements.items():
        require_version(f"{name}{versions}", "This checkpoint is made for it.")


require_versions(REQUIREMENTS)

# Other versions may not have these, so they are imported, here and by the other configurations, after the check.
from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec  # noqa: E402
from transformers.dynamic_module_utils import get_relative_import_files  # noqa: E402

REFERENCES_TO_CODE = ("auto_map", "custom_pipelines")
"""Fields of a checkpoint that name code to run."""
OTHER_KEYWORDS = (*REFERENCES_TO_CODE, "attn_implementation", "torch_dtype")
"""Keywords of a configuration that are neither fields nor attributes."""
QUERY_NORMS = (None, "instance", "layer", "batch")
"""Normalizations of queries, or of keys (see [`attention.make_norm`])."""


class ConfigurationError(StrictDataclassError, ValueError):
    """A value that a configuration refuses; the message names the field."""


class MissingBackboneError(OSError):
    """The weights of a backbone that a checkpoint leaves out are not at the place that its configuration names."""


def strict(cls: Any) -> Any:
    """Makes a class strict like `huggingface_hub.dataclasses.strict`, with ValueErrors of one sentence."""
    cls = dataclasses.strict(cls)
    initialize = cls.__init__

    @functools.wraps(initialize)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            initialize(self, *args, **kwargs)
        except StrictDataclassError as error:
            raise ConfigurationError(str(error.__cause__ or error)) from None

    cls.__init__ = __init__
    return cls


class HubConfig(PreTrainedConfig):
    """A configuration whose checkpoints can carry the code of their model and of its own parts, and no other.

    Once a class is registered with `register_for_auto_class`, `save_pretrained` copies the code and completes
    `config.json`: `auto_map` lists every auto class of the architecture (transformers alone would list one),
    `custom_pipelines` its pipelines, and `requirements` the versions of libraries that it needs.

    A part, such as a vision encoder, has a configuration of its own, and its code is imported only when a model has it
    ([`from_part`]). The file of an architecture with parts imports everything of `parts.py`, which is empty in the
    package; in a checkpoint it names the modules of the parts, so that transformers copies them.

    Class attributes, set per architecture:
        remote_classes (`dict[str, str]`): auto class to `file.Class`, e.g. `{"AutoModel": "modeling_x.XModel"}`.
        remote_pipelines (`dict[str, dict]`): task to `{"impl": "file.Class", "pt": [auto classes], "type": …}`.
        has_tokenizer (`bool`): whether its models have a tokenizer of transformers in place of a processor.
        parts (`tuple[str, ...]`): fields with the configurations of the parts.
        field_choices (`dict[str, tuple]`): the values that each field may have.
    """

    remote_classes: ClassVar[dict[str, str]] = {}
    remote_pipelines: ClassVar[dict[str, dict]] = {}
    has_tokenizer: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ()
    field_choices: ClassVar[dict[str, tuple]] = {}

    def __post_init__(self, **kwargs: Any) -> None:
        require_versions(kwargs.pop("requirements", {}))
        if self.transformers_version is None:  # written by a person; save_pretrained writes whatever else was set, too
            self.refuse_unknown_fields(kwargs)
        if not type(self).__module__.startswith("transformers_modules."):
            kwargs.pop("custom_pipelines", None)  # the package has registered its own
        if kwargs.get("auto_map") is not None:  # of a checkpoint with code, and perhaps to that of others
            kwargs["auto_map"] = dict(self.remote_classes)
        super().__post_init__(**kwargs)

    def refuse_unknown_fields(self, names: Iterable[str]) -> None:
        """Raises a ConfigurationError for a name that is no field, which would be kept without a word."""
        known = {*OTHER_KEYWORDS, *self.attribute_map}
        for name in names:
            if not (hasattr(type(self), name) or name in known or name.startswith("_")):
                own = sorted(
                    {field.name for field in fields(self)} - {field.name for field in fields(PreTrainedConfig)}
                )
                raise ConfigurationError(f"{name!r} is no field of {type(self).__name__}, which has {', '.join(own)}.")

    def validate_architecture(self) -> None:
        """Checks the fields that have a choice of values; a subclass then checks whether fields fit together."""
        for field, choices in self.field_choices.items():
            check_choice(field, getattr(self, field), choices)
        super().validate_architecture()

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """Returns the configuration of the text encoder if there is one of its own, or this one."""
        return super().get_text_config()  # asked for one side, transformers would copy the whole of this one each time

    def to_dict(self) -> dict:
        output = {name: value for name, value in super().to_dict().items() if name not in REFERENCES_TO_CODE}
        if self._auto_class is not None:
            output["auto_map"] = dict(self.remote_classes)
            output["requirements"] = dict(REQUIREMENTS)
            if self.remote_pipelines:
                output["custom_pipelines"] = copy.deepcopy(self.remote_pipelines)
        return output

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> None:
        super().save_pretrained(save_directory, *args, **kwargs)
        parts, home = Path(save_directory, "parts.py"), Path(inspect.getfile(HubConfig)).parent
        if self._auto_class is not None and parts.is_file():  # code of another package has none
            modules = self.modules_of_parts()
            files = [str(home / f"{module}.py") for module in modules]
            for file in {*files, *(needed for one in files for needed in get_relative_import_files(one))}:
                shutil.copyfile(file, Path(save_directory, Path(file).name))
            parts.write_text(imports_of_parts(modules), encoding="utf-8", newline="\n")

    def modules_of_parts(self) -> set[str]:
        """Returns the names of the modules with configurations and models of the parts, recursively."""
        modules: set[str] = set()
        for part in (getattr(self, field) for field in self.parts):
            if hasattr(part, "modules_of_parts"):  # those of transformers have none
                kinds = ("AutoConfig", "AutoModel", "AutoBackbone")  # no head of a model is a part
                modules |= {at.split(".")[0] for auto, at in part.remote_classes.items() if auto in kinds}
                modules |= part.modules_of_parts()
        return modules

    def auto_class_of(self, cls: type) -> str | None:
        """Returns the auto class of a class of this architecture; `None` for any other class."""
        return next((auto for auto, at in self.remote_classes.items() if at.split(".")[-1] == cls.__name__), None)


def imports_of_parts(modules: Iterable[str]) -> str:
    """Returns the contents of `parts.py` in a checkpoint whose model has parts in some modules."""
    imports = "".join(f"    from .{module} import *\n" for module in sorted(modules))
    head = '"""The code of the parts of this model; transformers copies the files of all imports in the text."""\n'
    return f"{head}\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{imports}" if imports else head


def from_part(location: str) -> Any:
    """Returns the object `module.name` of a module that a checkpoint carries only if its model has the part."""
    module, name = location.split(".")
    return getattr(importlib.import_module(f".{module}", __package__), name)


@contextmanager
def registered_for_auto_classes(auto_classes: Mapping[Any, str]) -> Iterator[None]:
    """Lets objects of some classes save their code too inside the `with` block."""
    before = {cls: cls._auto_class for cls in auto_classes}
    try:
        for cls, auto in auto_classes.items():
            cls.register_for_auto_class(auto)
        yield
    finally:
        for cls, auto in before.items():
            cls._auto_class = auto


VISION = {"vision_config": SubConfigSpec(PreTrainedConfig, optional=True)}
"""Declaration of the field `vision_config`, of which [`ConfigWithVision`] makes a `VisionConfig`."""


class ConfigWithVision(HubConfig):
    """The configuration of a model of visual features, with the vision encoder that computes them, if any.

    Without one `visual_feature_size` is by default the class attribute `default_feature_size`.
    """

    default_feature_size: ClassVar[int] = 2048
    sub_configs_defaults = VISION
    parts: ClassVar[tuple[str, ...]] = ("vision_config",)

    vision_config: dict | PreTrainedConfig | None = None
    visual_feature_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.vision_config, dict):  # of a saved configuration it is saved too
            fields = {"transformers_version": self.transformers_version, **self.vision_config}
            self.vision_config = from_part("configuration_vision.VisionConfig").from_dict(fields)
        vision: Any = self.vision_config
        if self.visual_feature_size is None:
            self.visual_feature_size = self.default_feature_size if vision is None else vision.feature_size
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        vision: Any = self.vision_config
        if vision is not None and vision.feature_size != self.visual_feature_size:
            raise ValueError(
                f"visual_feature_size is {self.visual_feature_size}, but that of the vision encoder is "
                f"{vision.feature_size}; leave it out."
            )

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self.vision_config is None and "auto_map" in output:
            output["auto_map"].pop("AutoImageProcessor", None)  # nothing reads images
        return output


def check_choice(field: str, value: Any, choices: tuple) -> None:
    """Raises a ValueError that names the field unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def check_heads(size: int, heads: int) -> None:
    """Raises a ValueError unless all heads have the same number of channels."""
    if size % heads:
        raise ValueError(f"hidden_size ({size}) must be a multiple of num_attention_heads ({heads}).")


def lasting_name(name: str | PathLike) -> str:
    """Returns the absolute path of a folder, valid in any working directory; returns another name unchanged."""
    folder = Path(os.path.expanduser(name))
    return str(folder.absolute() if folder.is_dir() else name)
