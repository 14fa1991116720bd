"""The tasks that models are trained for: each knows its rows, models, objectives and scores.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..io.lazy import lazy_names

if TYPE_CHECKING:
    from .captioning.attached_vision import attach_vision
    from .captioning.build import new_captioner
    from .captioning.captioned_image import CaptionedImage
    from .captioning.evaluate import CaptionEvaluation, evaluate_captioner
    from .captioning.generate import caption_batch, generate_captions
    from .captioning.images import caption_images
    from .captioning.recipe import CaptioningRecipe
    from .captioning.task import CaptioningTask
    from .question_answering.answers import AnsweredQuestion, answer_questions
    from .question_answering.evaluate import answer_accuracies, predict_answers
    from .question_answering.recipe import VisualQuestionAnsweringRecipe
    from .question_answering.task import VisualQuestionAnsweringTask
    from .registry import load_recipe, register_task, task_class, train
    from .retrieval.build import new_dual_encoder
    from .retrieval.evaluate import PairEmbeddings, embed_pairs
    from .retrieval.recipe import RetrievalRecipe
    from .retrieval.task import RetrievalTask

__getattr__, __dir__, __all__ = lazy_names(__name__)
