"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package imports nothing heavy; each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from . import diagnostics, retrieval, vqa
    from .clip_score import ClipScore
    from .document_frequency import DocumentFrequency
    from .evaluation import Bleu, CaptionMetrics, Cider, CiderD, Meteor, RougeL, compare_captions
    from .java import Spice
    from .reward import CiderDReward
    from .tokenization import PTBTokenizer

__getattr__, __dir__, __all__ = lazy_names(__name__)
