"""From files to batches: the feature contract, readers, synthetic scenes, vocabulary, sampler and collator.

The names below are imported when first used, so that importing this package loads neither torch nor datasets.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .collator import CaptionCollator
    from .contract import caption_features, check_dataset, check_row, clamp_boxes
    from .errors import DataError
    from .formats import FeatureFormat, register_format
    from .formats.layouts import FeatureSource, VisualRecord
    from .images.loading import reads_files, shuffle_buffer_of
    from .parallel_text import load_parallel
    from .published import load_coco_layout
    from .readers import ExtraScores, Reader, describe_readers, extra_scores_of, load_data, register_reader
    from .sampler import EpochSampler, TokenSampler
    from .scenes import draw_scene, load_scenes, make_scene, relation_prompts, score_objects, score_relation_completions
    from .vocabulary import build_subword_tokenizer, build_tokenizer

__getattr__, __dir__, __all__ = lazy_names(__name__)
