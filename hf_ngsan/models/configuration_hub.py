"""The base of all configurations: fields, code and parts of a checkpoint."""

import copy
import functools
import importlib
import inspect
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import dataclasses
from huggingface_hub.errors import StrictDataclassError
from transformers.utils.versions import require_version

REQUIREMENTS = {"transformers": ">=5.24,<6", "torch": ">=2.6"}  # as checkpoints with code have them too


def require_versions(requirements: Mapping[str, str]) -> None:
    """Raises an ImportError for installed versions of libraries that would load or use weights differently."""
    for name, versions in requirements.items():
        require_version(f"{name}{versions}", "This checkpoint is made for it.")


require_versions(REQUIREMENTS)

# Other versions may not have these, so they are imported, here and by the other configurations, after the check.
from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec  # noqa: E402
from transformers.dynamic_module_utils import get_relative_import_files  # noqa: E402

REFERENCES_TO_CODE = ("auto_map", "custom_pipelines")


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

    Once a class is registered with `register_for_auto_class`, `save_pretrained` copies the code and writes into
    `config.json` every auto class (transformers alone would list one), the pipelines, and the versions of libraries.
    A part, such as a vision encoder, has a configuration of its own, and its code is imported only when a model has it
    ([`from_part`]): `parts.py`, empty in the package, names it in a checkpoint, so that transformers copies it.

    Fields that are unknown, have a wrong value or do not fit together are ValueErrors that name them.
    """

    # Set per architecture:
    remote_classes: ClassVar[dict[str, str]] = {}  # auto class to `file.Class`, e.g. {"AutoModel": "modeling_x.XModel"}
    remote_pipelines: ClassVar[dict[str, dict]] = {}  # task to {"impl": "file.Class", "pt": [auto classes], "type": …}
    has_tokenizer: ClassVar[bool] = False  # whether its models have a tokenizer of transformers, and no processor
    parts: ClassVar[tuple[str, ...]] = ()  # fields with the configurations of the parts
    field_choices: ClassVar[dict[str, tuple]] = {}  # the values that each field, or each item of a list, may have

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
        known = {*REFERENCES_TO_CODE, "attn_implementation", "torch_dtype", *self.attribute_map}
        for name in names:
            if not (hasattr(type(self), name) or name in known or name.startswith("_")):
                own = {field.name for field in fields(self)} - {field.name for field in fields(PreTrainedConfig)}
                raise ConfigurationError(f"{name!r} is no field of {type(self).__name__}: {', '.join(sorted(own))}.")

    def validate_architecture(self) -> None:
        """Checks choices and the number of heads; a subclass then checks whether its other fields fit together."""
        for field, choices in self.field_choices.items():
            value = getattr(self, field)
            for of_field in value if isinstance(value, list) else [value]:
                check_choice(field, of_field, choices)
        size, heads = getattr(self, "hidden_size", 0), getattr(self, "num_attention_heads", 1)
        if size % heads:
            raise ValueError(f"hidden_size ({size}) must be a multiple of num_attention_heads ({heads}).")
        super().validate_architecture()

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        return super().get_text_config()  # asked for one side, transformers would copy the whole of this one each time

    def to_dict(self) -> dict:
        output = {name: value for name, value in super().to_dict().items() if name not in REFERENCES_TO_CODE}
        if self._auto_class is not None:
            output |= {"auto_map": dict(self.remote_classes), "requirements": dict(REQUIREMENTS)}
            if self.remote_pipelines:
                output["custom_pipelines"] = copy.deepcopy(self.remote_pipelines)
        return output

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> None:
        super().save_pretrained(save_directory, *args, **kwargs)
        parts = Path(save_directory, "parts.py")
        if self._auto_class is not None and parts.is_file():  # code of another package has none
            modules = self.modules_of_parts()
            files = [str(Path(inspect.getfile(HubConfig)).with_name(f"{module}.py")) for module in modules]
            for file in {*files, *(needed for module in files for needed in get_relative_import_files(module))}:
                shutil.copyfile(file, parts.with_name(Path(file).name))
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


class ConfigWithVision(HubConfig):
    """The configuration of a model of visual features, with the vision encoder that computes them, if any."""

    default_feature_size: ClassVar[int] = 2048
    sub_configs_defaults = {"vision_config": SubConfigSpec(PreTrainedConfig, optional=True)}
    parts: ClassVar[tuple[str, ...]] = ("vision_config",)

    vision_config: dict | PreTrainedConfig | None = None
    visual_feature_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.vision_config, dict):  # of a saved configuration it is saved too
            fields = {"transformers_version": self.transformers_version, **self.vision_config}
            self.vision_config = from_part("configuration_vision.VisionConfig").from_dict(fields)
        vision: Any = self.vision_config
        of_vision = self.default_feature_size if vision is None else vision.feature_size
        self.visual_feature_size = of_vision if self.visual_feature_size is None else self.visual_feature_size
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.vision_config is not None:
            check_choice("visual_feature_size", self.visual_feature_size, (self.vision_config.feature_size,))  # type: ignore[union-attr]

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self.vision_config is None and "auto_map" in output:
            output["auto_map"].pop("AutoImageProcessor", None)  # nothing reads images
        return output


def check_choice(field: str, value: Any, choices: tuple) -> None:
    """Raises a ValueError that names the field unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def lasting_name(name: str | PathLike) -> str:
    """Returns the absolute path of a folder, valid in any working directory; returns another name unchanged."""
    folder = Path(name).expanduser()
    return str(folder.absolute() if folder.is_dir() else name)
