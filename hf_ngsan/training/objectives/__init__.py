"""Objectives, one loss per file. Names are imported when used."""

from typing import TYPE_CHECKING

from ...io import lazy_names

if TYPE_CHECKING:
    from ..config import ContrastiveSettings, DistillationSettings, SelfCriticalSettings
    from ..task import Objective, Update
    from .contrastive import Contrastive
    from .distillation import OnPolicyDistillation
    from .policy import Policy
    from .self_critical import SelfCritical
    from .self_critical_rewards import CaptionRewards, RewardError
    from .teacher_forcing import TeacherForcing

__getattr__, __dir__, __all__ = lazy_names(__name__)
