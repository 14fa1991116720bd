"""What models are trained for: each task knows its rows, models, objectives and scores.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .answer_prediction import answer_accuracies, predict_answers
    from .answered_questions import AnsweredQuestion, answer_questions
    from .attached_vision import attach_vision
    from .caption_evaluation import CaptionEvaluation, evaluate_captioner
    from .caption_generation import caption_batch, generate_captions
    from .captioned_images import CaptionedImage, caption_images
    from .captioning import CaptioningTask
    from .captioning_recipe import CaptioningRecipe
    from .new_captioners import new_captioner
    from .new_dual_encoders import new_dual_encoder
    from .registry import load_recipe, register_task, task_class, train
    from .retrieval import RetrievalTask
    from .retrieval_embedding import PairEmbeddings, embed_pairs
    from .retrieval_recipe import RetrievalRecipe
    from .visual_question_answering import VisualQuestionAnsweringTask
    from .visual_question_answering_recipe import VisualQuestionAnsweringRecipe

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "answer_prediction": ["answer_accuracies", "predict_answers"],
        "answered_questions": ["AnsweredQuestion", "answer_questions"],
        "attached_vision": ["attach_vision"],
        "caption_evaluation": ["CaptionEvaluation", "evaluate_captioner"],
        "captioned_images": ["CaptionedImage", "caption_images"],
        "caption_generation": ["caption_batch", "generate_captions"],
        "captioning": ["CaptioningTask"],
        "captioning_recipe": ["CaptioningRecipe"],
        "new_captioners": ["new_captioner"],
        "new_dual_encoders": ["new_dual_encoder"],
        "retrieval": ["RetrievalTask"],
        "retrieval_embedding": ["PairEmbeddings", "embed_pairs"],
        "retrieval_recipe": ["RetrievalRecipe"],
        "visual_question_answering": ["VisualQuestionAnsweringTask"],
        "visual_question_answering_recipe": ["VisualQuestionAnsweringRecipe"],
        "registry": ["load_recipe", "register_task", "task_class", "train"],
    },
)
