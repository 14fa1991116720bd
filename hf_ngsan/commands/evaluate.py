"""The command `hf-ngsan evaluate`: scores of captions, retrieval, answers, a language model or translations."""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .arguments import (
    DATASETS,
    add_data_arguments,
    add_generation_arguments,
    add_launch_argument,
    add_models_argument,
    check_output_file,
    generation_options,
    positive_int,
    user_path,
)

SUMMARY = (
    "Score a captioner's captions of a split, a dual encoder's retrieval in it, the answers to its questions, what a "
    "language model makes of its captions, or a translator's translations, and print the scores as JSON."
)
EPILOG = f"""examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json
  hf-ngsan evaluate --model runs/first runs/second runs/third --data features:DIR
  hf-ngsan evaluate --model DUAL_ENCODER --data features:DIR --folds 5 --output ranks.json
  hf-ngsan evaluate --model runs/language_model --data features:DIR
  hf-ngsan evaluate --model runs/multi30k --data parallel:DIR,source=en,target=de --output translations.txt
  hf-ngsan evaluate --model runs/nlvr --data nlvr:DIR --output answers.json

{DATASETS}"""
KINDS = {
    "retrieval": "a dual encoder",
    "language_modeling": "a language model",
    "translation": "a translator",
    "visual_question_answering": "a model that answers questions",
}
"""What the models of the tasks other than captioning are called."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models_argument(parser)
    add_data_arguments(parser)
    add_generation_arguments(parser)
    parser.add_argument(
        "--output",
        type=user_path,
        metavar="FILE",
        help="write the captions there, in the COCO result format; of a dual encoder the rank of each right answer, of "
        "a translator the translations, one a line; answers to questions, as VQA's results",
    )
    parser.add_argument(
        "--folds",
        type=positive_int,
        metavar="N",
        help="dual encoders: also the mean over N equal parts of the split; 5 of 5,000 images is the 1K protocol",
    )
    parser.add_argument(
        "--positives",
        nargs=3,
        type=user_path,
        metavar=("I2T.json", "T2I.json", "CAPTIONS.json"),
        help="dual encoders: also mAP@R by all right answers: eccv_image_to_caption.json and "
        "eccv_caption_to_image.json of ECCV Caption, and COCO's file of captions, which has their ids",
    )
    parser.add_argument(
        "--head-diversity",
        action="store_true",
        help="dual encoders: also how different the attention heads are",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="METRIC",
        help="of bleu, rouge_l, cider_d, cider, meteor, spice (all but the last two, which need Java)",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="also write the scores into the model's folder, with what they depend on, for the card of hf-ngsan push",
    )
    add_launch_argument(parser)


def check(options: argparse.Namespace) -> str | None:
    """Returns the task that the models belong to, and raises an error if they cannot do what is asked."""
    from ..auto import MODEL_TYPES
    from ..loading import find_model_folder, load_config

    if options.output:
        check_output_file(options.output)
    if options.record and (len(options.model) > 1 or not os.path.isdir(find_model_folder(options.model[0]))):
        raise ValueError("--record writes into the folder of one model; give one --model, a folder.")
    task = MODEL_TYPES[load_config(options.model[0]).model_type].task
    kind = KINDS.get(task or "")
    if kind is None:
        for model in options.model:
            load_config(model, "captioning")
    elif len(options.model) > 1:
        raise ValueError(f"Several captioners caption together, and {options.model[0]} is {kind}; give one --model.")
    elif options.metrics is not None:
        raise ValueError(f"--metrics is for captioners, and this model is {kind}; leave it out.")
    given = {"--folds": options.folds, "--positives": options.positives, "--head-diversity": options.head_diversity}
    for option, value in given.items():
        if value and task != "retrieval":
            raise ValueError(f"{option} is for dual encoders, and this model is {kind or 'a captioner'}; leave it out.")
    if options.output and task == "language_modeling":
        raise ValueError("--output is for captions and ranks, which a language model has not; leave it out.")
    return task


def run(options: argparse.Namespace) -> None:
    evaluations = {
        "retrieval": evaluate_retrieval,
        "language_modeling": evaluate_language,
        "translation": evaluate_translation,
        "visual_question_answering": evaluate_answers,
    }
    evaluations.get(check(options) or "", evaluate_captions)(options)


def evaluate_answers(options: argparse.Namespace) -> None:
    from ..files import write_text_atomically
    from ..launching import leave_process_group, make_accelerator
    from ..loading import load_model
    from ..tasks.answer_prediction import answer_accuracies, predict_answers
    from ..tasks.question_rows import column, load_questions, questions_for

    accelerator = make_accelerator()
    model, processor = load_model(options.model[0], "visual_question_answering")
    rows = load_questions(options.data, options.split, limit=options.limit)
    rows = questions_for(model, processor, rows, options.data)
    found = predict_answers(model.to(accelerator.device), processor, rows, accelerator, options.batch_size)
    answers = [answer for answer, _ in found]
    if accelerator.is_main_process:
        if options.output:
            ids = column(rows, "question_id") if "question_id" in rows.column_names else range(len(rows))
            results = [{"question_id": one, "answer": answer} for one, answer in zip(ids, answers, strict=True)]
            write_text_atomically(options.output, json.dumps(results) + "\n")
        print(json.dumps({"questions": len(rows), **answer_accuracies(rows, answers)}, indent=2))
    leave_process_group()


def evaluate_language(options: argparse.Namespace) -> None:
    from ..launching import leave_process_group, make_accelerator
    from ..loading import load_model
    from ..tasks.caption_rows import load_rows
    from ..tasks.language_modeling import COLUMNS, evaluate_language_model

    accelerator = make_accelerator()
    model, processor = load_model(options.model[0], "language_modeling")
    rows = load_rows(options.data, options.split, limit=options.limit).select_columns(list(COLUMNS))
    scores = evaluate_language_model(
        model.to(accelerator.device), processor, rows, accelerator, batch_size=options.batch_size
    )
    if accelerator.is_main_process:
        record(options, len(rows), scores, {"captions": "all"})
        print(json.dumps(scores, indent=2))
    leave_process_group()


def evaluate_retrieval(options: argparse.Namespace) -> None:
    from ..files import write_text_atomically
    from ..launching import leave_process_group, make_accelerator
    from ..loading import load_model
    from ..tasks import embed_pairs
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.head_diversity import measure_head_diversity
    from ..tasks.retrieval_positives import read_positives

    accelerator = make_accelerator()
    model, processor = load_model(options.model[0], "retrieval")
    rows = rows_for(model, processor, load_rows(options.data, options.split, limit=options.limit), options.data)
    if options.folds is not None and len(rows) % options.folds:
        raise ValueError(f"--folds {options.folds}: {len(rows)} images cannot be divided into so many equal parts.")
    positives = None
    if options.positives is not None:
        image_to_text, text_to_image, caption_file = options.positives
        positives = read_positives(image_to_text, text_to_image, caption_file, rows)
    pairs = embed_pairs(model.to(accelerator.device), processor, rows, accelerator, options.batch_size)
    diversity = {}
    if options.head_diversity:
        diversity = {"heads": measure_head_diversity(model, processor, rows, accelerator, options.batch_size)}
    if accelerator.is_main_process:
        if options.output:
            image_ranks, text_ranks = pairs.ranks()
            ranks = {"image_to_text": image_ranks.tolist(), "text_to_image": text_ranks.tolist()}
            write_text_atomically(options.output, json.dumps(ranks) + "\n")
        scores = {"images": len(pairs.images), "captions": len(pairs.captions), "all": pairs.scores()}
        if options.folds is not None:
            scores[f"mean of {options.folds} folds"] = pairs.scores(options.folds)
        if positives is not None:
            queries = {"images with positives": len(positives.image_to_text)}
            queries["captions with positives"] = len(positives.text_to_image)
            scores["all right answers"] = {**queries, **pairs.map_at_r(positives)}
        record(options, len(rows), pairs.scores(options.folds or 1), {"folds": options.folds or 1})
        print(json.dumps({**scores, **diversity}, indent=2))
    leave_process_group()


def evaluate_translation(options: argparse.Namespace) -> None:
    from ..files import write_text_atomically
    from ..launching import leave_process_group, make_accelerator
    from ..loading import load_model
    from ..tasks.translating import evaluate_translator
    from ..tasks.translation_rows import load_pairs

    accelerator = make_accelerator()
    model, tokenizer = load_model(options.model[0], "translation")
    translations, scored = evaluate_translator(
        model.to(accelerator.device),
        tokenizer,
        load_pairs(options.data, options.split, options.limit),
        accelerator,
        data=options.data,
        batch_size=options.batch_size,
        **generation_options(options, model.generation_config),
    )
    if accelerator.is_main_process:
        if options.output:
            write_text_atomically(options.output, "".join(f"{text}\n" for text in translations))
        print(json.dumps({**scored.scores, "signatures": scored.signatures}, indent=2))
    leave_process_group()


def evaluate_captions(options: argparse.Namespace) -> None:
    from ..data import extra_scores_of
    from ..launching import leave_process_group, make_accelerator
    from ..sharing.evaluations import caption_settings
    from ..tasks import evaluate_captioner
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioner_ensembles import load_captioners

    accelerator = make_accelerator()
    model, processor = load_captioners(options.model)
    rows = rows_for(model, processor, load_rows(options.data, options.split, limit=options.limit), options.data)
    evaluation = evaluate_captioner(
        model.to(accelerator.device),
        processor,
        rows,
        accelerator,
        metrics=options.metrics,
        extra_scores=extra_scores_of(options.data),
        batch_size=options.batch_size,
        **generation_options(options, model.generation_config),
    )
    if accelerator.is_main_process:
        if options.output:
            evaluation.save(options.output)
        settings = caption_settings(
            model.generation_config.to_dict(), generation_options(options, model.generation_config)
        )
        record(options, len(rows), evaluation.scores, settings)
        print(json.dumps(evaluation.scores, indent=2))
    leave_process_group()


def record(options: argparse.Namespace, rows: int, scores: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    """Writes scores into the folder of the model, if that is asked for."""
    if not options.record:
        return
    from ..loading import find_model_folder
    from ..sharing.evaluations import EVALUATIONS, RecordedEvaluation, fingerprint, record_evaluation, weights_checksum
    from ..training.output_folder import MARKER, claim_files

    folder = Path(find_model_folder(options.model[0]))
    record_evaluation(
        folder,
        RecordedEvaluation(
            data=options.data,
            split=options.split,
            rows=rows,
            scores=dict(scores),
            fingerprints={name: fingerprint(name, settings) for name in scores},
            weights=weights_checksum(folder),
        ),
    )
    if (folder.parent / MARKER).is_file():  # so that the run can still be overwritten
        claim_files(folder.parent, [f"{folder.name}/{EVALUATIONS}"])
