"""From files to batches: the feature contract, readers, synthetic scenes, vocabulary, sampler and collator.

The names below are imported when first used, so that importing this package loads neither torch nor datasets.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .collator import CaptionCollator as CaptionCollator
    from .contract import caption_features as caption_features
    from .contract import check_dataset as check_dataset
    from .contract import check_row as check_row
    from .contract import clamp_boxes as clamp_boxes
    from .errors import DataError as DataError
    from .formats import FeatureFormat as FeatureFormat
    from .formats import register_format as register_format
    from .formats.layouts import FeatureSource as FeatureSource
    from .formats.layouts import VisualRecord as VisualRecord
    from .images.loading import reads_files as reads_files
    from .images.loading import shuffle_buffer_of as shuffle_buffer_of
    from .parallel_text import load_parallel as load_parallel
    from .published import load_coco_layout as load_coco_layout
    from .readers import ExtraScores as ExtraScores
    from .readers import Reader as Reader
    from .readers import describe_readers as describe_readers
    from .readers import extra_scores_of as extra_scores_of
    from .readers import load_data as load_data
    from .readers import register_reader as register_reader
    from .sampler import EpochSampler as EpochSampler
    from .sampler import TokenSampler as TokenSampler
    from .scenes import draw_scene as draw_scene
    from .scenes import load_scenes as load_scenes
    from .scenes import make_scene as make_scene
    from .scenes import relation_prompts as relation_prompts
    from .scenes import score_objects as score_objects
    from .scenes import score_relation_completions as score_relation_completions
    from .vocabulary import build_subword_tokenizer as build_subword_tokenizer
    from .vocabulary import build_tokenizer as build_tokenizer

__getattr__, __dir__, __all__ = lazy_names(__name__)
