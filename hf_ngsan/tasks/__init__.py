"""The tasks that models are trained for: each knows its rows, models, objectives and scores."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .captioning import CaptioningConfig, CaptioningTask
    from .captioning_analysis import explain_counterfactual
    from .captioning_files import CaptionedImage
    from .captioning_generation import (
        CaptionEvaluation,
        caption_batch,
        caption_images,
        evaluate_captioner,
        generate_captions,
    )
    from .captioning_models import attach_vision, new_captioner
    from .inspection import inspect
    from .new_models import checked_generation
    from .question_answering import (
        AnsweredQuestion,
        VisualQuestionAnsweringConfig,
        VisualQuestionAnsweringTask,
        answer_accuracies,
        answer_questions,
        predict_answers,
    )
    from .registry import evaluate, load_training_config, register_task, task_class, train
    from .retrieval import PairEmbeddings, RetrievalConfig, RetrievalTask, embed_pairs, new_dual_encoder
    from .retrieval_search import explain_pair

__getattr__, __dir__, __all__ = lazy_names(__name__)
