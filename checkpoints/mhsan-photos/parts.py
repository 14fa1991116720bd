"""The code of the parts of this model; transformers copies the files of all imports in the text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .configuration_vision import *
    from .modeling_efficientnet_lite import *
    from .modeling_vision import *
    from .pretrained_weights import *
