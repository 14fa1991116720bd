"""The base of all configurations and models: checkpoints that carry their own code, and checks of fields."""

import copy
import difflib
import functools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import metadata
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from huggingface_hub import dataclasses
from huggingface_hub.errors import StrictDataclassError
from transformers.utils import logging
from transformers.utils.versions import require_version

REQUIREMENTS = {"transformers": ">=5.24,<6", "torch": ">=2.6"}
"""Versions that this code supports; checkpoints with code have them under `requirements`."""
TESTED_TRANSFORMERS = (5, 24)
"""The newest minor version that this code was tested with."""


class UnsupportedVersionError(ImportError, ValueError):
    """A library has a version that a checkpoint or its code does not support; the message names both."""


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, without the punctuation at its end, for another message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")


def refuse_unsupported_versions(requirements: Any) -> None:
    """Refuses installed versions of libraries that would load or use weights differently.

    Args:
        requirements: version specifiers as in pip, by library.

    Raises:
        UnsupportedVersionError: an installed version is unsupported, or the value is no version specifier.
    """
    try:
        for name, versions in requirements.items():
            require_version(f"{name}{versions}")
    except ImportError as error:
        found = first_line(error).rpartition("but found ")[2]
        raise UnsupportedVersionError(
            f"This checkpoint is made for {name}{versions}, not for {found}; install a version that it is made for."
        ) from None
    except Exception as error:
        raise UnsupportedVersionError(f"The requirements of this checkpoint are {requirements!r:.200}.") from error


def warn_of_untested_version(module: str) -> None:
    """Warns, once in a process, if code of a checkpoint runs with an untested, newer minor version of transformers.

    Args:
        module: name of the importing module; the installed package, which its own tests cover, does not warn.
    """
    installed = metadata.version("transformers")
    newer = tuple(int(number) for number in re.findall(r"\d+", installed)[:2]) > TESTED_TRANSFORMERS
    if newer and module.startswith("transformers_modules."):
        tested = ".".join(map(str, TESTED_TRANSFORMERS))
        logging.get_logger("transformers").warning_once(  # one logger, as this code may be imported several times
            f"The code of this checkpoint was tested with transformers {tested}, and {installed} is installed; if what "
            "it writes looks wrong, install the tested version."
        )


refuse_unsupported_versions(REQUIREMENTS)
warn_of_untested_version(__name__)

# Other versions may not have these, so they are imported, here and by the other configurations, after the check.
from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec  # noqa: E402, F401

REFERENCES_TO_CODE = ("auto_map", "custom_pipelines")
"""Fields of a checkpoint that name code to run."""
MAX_LAYERS = 512
"""Layers of a model: four times the deepest models in use."""
MAX_NUMBER = 2**20
"""Channels, words, labels or pixels: four times the largest vocabularies in use."""
MAX_NESTING = 20
"""Levels of nested configurations; models have four or five."""
FIELD_OF_LAYERS = re.compile(r"(layers?|depths?|blocks|stages|repeats|levels)$")
FREE_FIELDS = ("features_provenance", "max_position_embeddings")
"""Fields whose numbers cost neither memory nor time."""
TRANSFORMER_SIZES = ("hidden_size", "num_attention_heads", "intermediate_size")
QUERY_NORMS = (None, "instance", "layer", "batch")
"""Normalizations of queries, or of keys (see [`attention.make_norm`])."""
OTHER_FIELDS_OF_TRANSFORMERS = ("model_type", "attn_implementation", "torch_dtype", "num_labels", "output_attentions")


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
        refuse_absurd_sizes(kwargs)
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
    completes `config.json`: `auto_map` lists every auto class of the architecture (transformers alone would list one),
    `custom_pipelines` its pipelines, and `requirements` the versions of libraries that it needs; others are refused.
    The installed package saves neither unless it saves the code too.

    Class attributes, set per architecture:
        remote_classes (`dict[str, str]`): auto class to `file.Class`, e.g. `{"AutoModel": "modeling_x.XModel"}`.
        remote_pipelines (`dict[str, dict]`): task to `{"impl": "file.Class", "pt": [auto classes], "type": …}`.
        has_tokenizer (`bool`): whether its models have a tokenizer of transformers in place of a processor.
        positive_fields (`tuple[str, ...]`): fields that must be at least 1.
        rate_fields (`tuple[str, ...]`): fields that must lie between 0 and 1.
        field_choices (`dict[str, tuple]`): the values that each field may have.
    """

    remote_classes: ClassVar[dict[str, str]] = {}
    remote_pipelines: ClassVar[dict[str, dict]] = {}
    has_tokenizer: ClassVar[bool] = False
    positive_fields: ClassVar[tuple[str, ...]] = ()
    rate_fields: ClassVar[tuple[str, ...]] = ()
    field_choices: ClassVar[dict[str, tuple]] = {}

    def __post_init__(self, **kwargs: Any) -> None:
        kwargs.pop("custom_pipelines", None)
        if kwargs.get("auto_map") is not None:  # of a checkpoint with code, and perhaps to that of others
            kwargs["auto_map"] = dict(self.remote_classes)
        refuse_unsupported_versions(kwargs.pop("requirements", {}))
        super().__post_init__(**kwargs)
        if self.remote_pipelines and type(self).__module__.startswith("transformers_modules."):
            # pipeline() writes classes into the dictionary that it is given.
            self.custom_pipelines = copy.deepcopy(self.remote_pipelines)

    def validate_architecture(self) -> None:
        """Checks the fields one by one; a subclass then checks whether they fit together."""
        check_positive(**{field: getattr(self, field) for field in self.positive_fields})
        check_rate(**{field: getattr(self, field) for field in self.rate_fields})
        for field, choices in self.field_choices.items():
            check_choice(field, getattr(self, field), choices)
        super().validate_architecture()

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """Returns the configuration of the text encoder if there is one of its own, or this one."""
        return super().get_text_config()  # asked for one side, transformers would copy the whole of this one each time

    def to_dict(self) -> dict:
        output = without_references(super().to_dict())
        if self._auto_class is not None:
            output["auto_map"] = dict(self.remote_classes)
            output["requirements"] = dict(REQUIREMENTS)
            if self.remote_pipelines:
                output["custom_pipelines"] = copy.deepcopy(self.remote_pipelines)
        return output

    def auto_class_of(self, cls: type) -> str | None:
        """Returns the auto class of a class of this architecture; `None` for any other class."""
        return next((auto for auto, at in self.remote_classes.items() if at.split(".")[-1] == cls.__name__), None)


def without_references(fields: Any) -> Any:
    """Returns fields of a configuration, nested ones included, without references to code."""
    if isinstance(fields, Mapping):
        return {name: without_references(value) for name, value in fields.items() if name not in REFERENCES_TO_CODE}
    return [without_references(value) for value in fields] if isinstance(fields, list) else fields


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


if TYPE_CHECKING:  # the classes that mixins stand before
    from transformers.modeling_utils import PreTrainedModel as Model
    from transformers.utils.hub import PushToHubMixin as Pushed
else:
    Model = Pushed = object


class HubProcessorMixin(Pushed):
    """Lets `push_to_hub` of a processor upload its code too; stands before the base class of transformers."""

    hub_auto_class: ClassVar[str] = "AutoProcessor"

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Uploads the processor and its code in one commit; the options are those of transformers."""
        with registered_for_auto_classes({type(self): self.hub_auto_class}):
            return super().push_to_hub(repo_id, **options)


def refuse_absurd_sizes(fields: Mapping, nesting: int = MAX_NESTING) -> None:
    """Refuses absurd numbers before a configuration or model with them takes memory and time.

    Args:
        fields: fields of a configuration, as in `config.json`, with nested configurations.
        nesting: maximal levels of nesting.

    Raises:
        ConfigurationError: more than 512 layers, another whole number beyond 2^20, or too many levels of mappings.
    """
    if nesting == 0:
        raise ConfigurationError(f"The fields lie in more than {MAX_NESTING} mappings, one within the other.")
    for field, value in fields.items():
        if isinstance(value, Mapping):
            if field not in FREE_FIELDS:
                refuse_absurd_sizes(value, nesting - 1)
            continue
        numbers = [item for item in (value if isinstance(value, list | tuple) else [value]) if isinstance(item, int)]
        if not numbers or field in FREE_FIELDS:
            continue
        if FIELD_OF_LAYERS.search(str(field)) and max(len(numbers), sum(numbers)) > MAX_LAYERS:
            raise ConfigurationError(f"{field} has more than {MAX_LAYERS} layers; no model has so many.")
        if max(map(abs, numbers)) > MAX_NUMBER:
            raise ConfigurationError(f"{field} has a number beyond {MAX_NUMBER}; no model is so large.")


def refuse_unknown_fields(config_class: type, names: Iterable[str]) -> None:
    """Raises a ValueError, which names the closest field, for names that are no field of a configuration class."""
    of_transformers = {*(field.name for field in fields(PreTrainedConfig)), *OTHER_FIELDS_OF_TRANSFORMERS}
    own = {field.name for field in fields(config_class)} - of_transformers
    for name in names:
        if name not in own | of_transformers and not name.startswith("_"):
            closest = difflib.get_close_matches(name, own, n=1)
            hint = f"did you mean {closest[0]!r}?" if closest else f"its fields are {', '.join(sorted(own))}."
            raise ConfigurationError(f"{name!r} is no field of {config_class.__name__}; {hint}")


def check_choice(field: str, value: Any, choices: tuple) -> None:
    """Raises a ValueError that names the field unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def check_positive(**fields: int | None) -> None:
    """Raises a ValueError that names the field unless all values are at least 1."""
    for field, value in fields.items():
        if value is None or value < 1:
            raise ValueError(f"{field} is {value}; it must be at least 1.")


def check_rate(**fields: float) -> None:
    """Raises a ValueError that names the field unless all values lie within [0, 1]."""
    for field, value in fields.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{field} is {value}; it must lie between 0 and 1.")


def lasting_name(name: str | PathLike) -> str:
    """Returns the absolute path of a folder, valid in any working directory; returns another name unchanged."""
    folder = Path(os.path.expanduser(name))
    return str(folder.absolute() if folder.is_dir() else name)


def is_finite(value: Any) -> bool:
    """Returns whether a value is a number, and neither infinite nor NaN."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def check_finite(**fields: float) -> None:
    """Raises a ValueError that names the field unless all values are finite numbers."""
    for field, value in fields.items():
        if not is_finite(value):
            raise ValueError(f"{field} is {value}; it must be a finite number.")


def check_heads(hidden_size: int, num_attention_heads: int, even: bool = False) -> None:
    """Raises a ValueError unless heads have equal numbers of channels and, if `even`, sines and cosines too."""
    if hidden_size % num_attention_heads:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of num_attention_heads ({num_attention_heads})."
        )
    if even and hidden_size % 2:
        raise ValueError(f"hidden_size ({hidden_size}) must be even: half of the sinusoids are cosines.")
