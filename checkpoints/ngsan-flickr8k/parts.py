"""The code of the parts that the model of this checkpoint has; see `configuration_parts`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .configuration_efficientnet_lite import *
    from .configuration_vision import *
    from .modeling_efficientnet_lite import *
    from .modeling_vision import *
