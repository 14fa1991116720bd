"""Compares the results of two checkouts bit-exactly: weights, scores and files of small runs of every task.

    python -m tests.same_results --output build/before.json --checkout ../before
    python -m tests.same_results --output build/after.json --compare build/before.json

A change of structure must not change the results. Both checkouts run with the same interpreter on the same machine.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from safetensors.torch import load_file

from tests.tasks.tiny_questions import save_questions
from tests.tasks.tiny_questions import tiny_sections as question_sections
from tests.tasks.tiny_translation import tiny_sections as translation_sections

ROOT = Path(__file__).parents[1]
SHORT = ["training.epochs=2", "training.num_threads=1", "training.warmup_epochs=0"]
SMALL = "data.spec=scenes:size=200,validation=20,test=20,seed=0"
RUNS = {
    "ngsan": ["ngsan/scenes", SMALL, *SHORT],
    "ngsan-both-stages": ["ngsan/scenes", SMALL, *SHORT, "training.stage=auto", "self_critical.epochs=1"],
    "spatial": ["spatial_captioner/scenes", f"{SMALL},images=true,image_size=32", "data.image_size=32", *SHORT],
    "mhsan": ["mhsan/scenes", f"{SMALL},descriptions=true", *SHORT],
    "language-model": ["rstnet/scenes_language_model", SMALL, *SHORT],
    "rstnet": ["rstnet/scenes", SMALL, *SHORT, "model.pretrained_language_model=language-model"],
    "translator": ["translator.yaml"],
    "questions": ["questions.yaml"],
}
"""Training config and overrides of each run, in an order in which no run needs a later one."""
EVALUATIONS = {
    "ngsan": [SMALL.removeprefix("data.spec="), "--num-beams", "3"],
    "ngsan-both-stages": [SMALL.removeprefix("data.spec=")],
    "spatial": [SMALL.removeprefix("data.spec=") + ",images=true,image_size=32"],
    "mhsan": [SMALL.removeprefix("data.spec=") + ",descriptions=true", "--folds", "2"],
    "language-model": [SMALL.removeprefix("data.spec=")],
    "rstnet": [SMALL.removeprefix("data.spec=")],
    "translator": ["parallel:text,source=en,target=de"],
    "questions": ["features:questions-data"],
}
WITHOUT_OUTPUT = ("language-model",)


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def weights(folder: Path) -> str:
    tensors = sorted(load_file(folder / "model.safetensors").items())
    return checksum(b"".join(name.encode() + tensor.contiguous().numpy().tobytes() for name, tensor in tensors))


def run(checkout: Path, folder: Path, *arguments: str) -> str:
    """Runs a command of a checkout in a folder; returns its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hf_ngsan.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} exits with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def train(checkout: Path, folder: Path) -> None:
    sections = translation_sections(Path("."))  # writes its text there
    sections["training"]["output_dir"] = "translator"
    sections["data"]["spec"] = "parallel:text,source=en,target=de"
    Path("translator.yaml").write_text(yaml.safe_dump(sections))
    save_questions(Path("questions-data"))
    tiny = question_sections(Path("questions"), "features:questions-data", model={"geometric_bias": ["query"]})
    Path("questions.yaml").write_text(yaml.safe_dump(tiny))
    for name, (config, *overrides) in RUNS.items():
        run(checkout, folder, "train", "--config", config, *overrides, f"training.output_dir={name}")
        print(f"{name}: trained", flush=True)


def results(checkout: Path, folder: Path) -> dict[str, dict[str, object]]:
    actual: dict[str, dict[str, object]] = {}
    for name in RUNS:
        spec, *options = EVALUATIONS[name]
        if name not in WITHOUT_OUTPUT:
            options += ["--output", f"{name}.output"]
        scores = run(checkout, folder, "evaluate", "--model", name, "--data", spec, "--split", "test", *options)
        history = [json.loads(line) for line in (folder / name / "history.jsonl").read_text().splitlines()]
        actual[name] = {
            "weights": weights(folder / name / "last"),
            "best weights": weights(folder / name / "best"),
            "history": [
                {key: value for key, value in entry.items() if not key.endswith(("seconds", "per_second"))}
                for entry in history
            ],
            "scores": json.loads(scores),
        }
        if name not in WITHOUT_OUTPUT:
            actual[name]["output"] = checksum((folder / f"{name}.output").read_bytes())
        print(f"{name}: evaluated", flush=True)
    return actual


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON of what was computed")
    parser.add_argument("--checkout", type=Path, default=ROOT, metavar="DIR", help="whose code runs (this one)")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="of another checkout; exit code 1 if it differs")
    options = parser.parse_args()
    output, checkout = options.output.resolve(), options.checkout.resolve()
    compared = options.compare and options.compare.resolve()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        os.chdir(folder)
        train(checkout, folder)
        actual = results(checkout, folder)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(actual, indent=1) + "\n")
    if compared is None:
        return 0
    before = json.loads(compared.read_text())
    differing = [f"{run}: {key}" for run in before for key in before[run] if actual[run].get(key) != before[run][key]]
    print("\n".join(differing) or f"{len(before)} runs: weights, histories, scores and files are equal.")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
