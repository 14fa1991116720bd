"""Exports a model by its name, and compares an exported captioner with the model."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

from ..exporting import ExportedCaptioner, check_exporter, compare_exported
from ..exporting.folder import write_exported_captioner, write_exported_dual_encoder
from ..exporting.onnx_folder import write_graphs_beside
from ..io.folders import check_new_folder, write_folder_atomically
from ..io.packaged import own_model_folder
from ..loading.models import find_model_folder, load_config, load_model, reads_images, task_of
from ..loading.provenance import model_fingerprint, vision_provenance
from ..tasks.caption_rows import load_rows, rows_for
from ..tasks.registry import load_training_config
from ..training.output_folder import TRAINING_CONFIG
from .cards import run_of

logger = logging.getLogger(__name__)


def export_model(
    name: str,
    output: str | None = None,
    *,
    check: bool = False,
    data: str | None = None,
    split: str = "test",
    limit: int | None = None,
) -> tuple[int, dict[int, int], float] | None:
    """Exports a captioner or a dual encoder to ONNX, and compares an exported captioner with the model.

    Args:
        name: folder or name of the model.
        output: new folder; by default, the graphs are written into `onnx/` in the folder of the model.
        check: whether to compare captions of the first `limit` images (64 by default) of a `split` of `data`; the
            default is the validation split of the model's training data, or else synthetic scenes.

    Returns the number of images and the result of [`~hf_ngsan.exporting.compare_exported`] if `check` is true.

    Raises:
        ValueError: this model cannot be exported, or its export cannot be checked.
    """
    if output is not None:
        check_new_folder(Path(output))
    else:
        own_model_folder(name)
    check_exporter()
    task, folder = task_of(load_config(name)), Path(find_model_folder(name))
    if task not in ("captioning", "retrieval"):
        raise ValueError(f"{name} is neither a captioner nor a dual encoder; only these can be exported.")
    if check and (output is None or task == "retrieval"):
        raise ValueError("A dual encoder, or graphs in the folder of a model, cannot be checked; leave out the check.")
    model: Any
    model, processor = load_model(name, task)
    if output is None:
        recorded: Any = {}
        if task == "retrieval":
            recorded = model_fingerprint(model, processor)
        elif reads_images(model.config):
            recorded = vision_provenance(model.base_model.vision, processor.image_processor)
        write_graphs_beside(model.float(), processor, folder, recorded)
        return None
    rows = None
    if check:
        if data is None:
            data, split = data_of(folder, model, split)
        rows = load_rows(data, split, with_captions=False, limit=limit or 64)
        rows = rows_for(model, processor, rows, data)
    write: Any = write_exported_captioner if task == "captioning" else write_exported_dual_encoder
    write_folder_atomically(Path(output), partial(write, model.float(), processor), manifest=False)
    if rows is None:
        return None
    logger.info("Compared on %s, split %s.", data, split)
    return len(rows), *compare_exported(model, processor, ExportedCaptioner(output), rows)


def data_of(folder: Path, model: Any, split: str) -> tuple[str, str]:
    """Returns the default dataset and split of a check: those of the training run, or else synthetic scenes."""
    run = run_of(folder)
    if run is not None:
        data = load_training_config(run / TRAINING_CONFIG).data
        return data.spec, data.validation_split or split
    return "scenes" if model.config.vision_config is None else "scenes:images=true", split
