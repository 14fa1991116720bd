"""Compares the frozen checkpoints with what they computed when they were frozen: `python -m tests.drift`.

With the installed transformers, once through the package and once as code that comes with the checkpoint, in a process
that has only transformers. Looks for the private names of other libraries that the package uses, too. `--freeze` writes
down the outputs of checkpoints that are not frozen yet.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from safetensors.torch import load_file, save_file

from hf_ngsan import save_for_hub
from hf_ngsan.registry import MODEL_TYPES
from tests.drift.checkpoints import CHECKPOINTS, outputs_of
from tests.drift.private_names import missing_names

FROZEN = Path(__file__).with_name("frozen.json")
NUMBER = 24
"""Of outputs of each model that are kept, evenly spread."""
TOLERANCE = 1e-5
REMOTE = """
import json, sys
sys.modules["hf_ngsan"] = None
import torch, transformers
transformers.logging.disable_progress_bar()
from safetensors.torch import load_file, save_file
from transformers.dynamic_module_utils import get_class_from_dynamic_module

folder = sys.argv[1]
for name in sys.argv[2:]:
    config = json.load(open(f"{folder}/{name}/config.json"))
    [reference] = {one for one in config["auto_map"].values() if one.endswith("." + config["architectures"][0])}
    auto = next(auto for auto, one in config["auto_map"].items() if one == reference)
    if auto == "AutoBackbone":
        model = get_class_from_dynamic_module(reference, f"{folder}/{name}").from_pretrained(f"{folder}/{name}")
    else:
        model = getattr(transformers, auto).from_pretrained(f"{folder}/{name}", trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules")
    with torch.no_grad():
        outputs = model.eval()(**load_file(f"{folder}/{name}.inputs"))
    found = {}
    for key in ("logits", "logits_per_image", "visual_features", "feature_maps", "last_hidden_state"):
        value = getattr(outputs, key, None)
        if value is not None:
            found["outputs"] = (value[-1] if isinstance(value, tuple) else value).flatten().contiguous()
            break
    save_file(found, f"{folder}/{name}.outputs")
"""


def weights_of(model: torch.nn.Module) -> str:
    """Returns a checksum of the weights, which the seeds must give everywhere."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sample(outputs: torch.Tensor) -> torch.Tensor:
    return outputs[torch.linspace(0, len(outputs) - 1, NUMBER).long()]


def frozen_outputs() -> dict[str, dict]:
    found = json.loads(FROZEN.read_text(encoding="utf-8"))
    return {name: frozen for name, frozen in found.items() if name in MODEL_TYPES}


def freeze() -> None:
    found = json.loads(FROZEN.read_text(encoding="utf-8"))
    for name in MODEL_TYPES.keys() - found.keys():
        model, _, inputs = CHECKPOINTS[name]()
        outputs = sample(outputs_of(model, inputs)).tolist()
        found[name] = {"weights": weights_of(model), "outputs": [round(value, 8) for value in outputs]}
    FROZEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def differences_with_the_package(folder: Path) -> dict[str, float]:
    """Saves every checkpoint with its code and inputs, loads it again, and returns its largest difference."""
    found = {}
    for name, frozen in frozen_outputs().items():
        model, processor, inputs = CHECKPOINTS[name]()
        if weights_of(model) != frozen["weights"]:
            raise SystemExit(f"{name}: its seed gives other weights than it did.")
        save_for_hub(model, processor, folder / name)
        save_file({key: value.contiguous() for key, value in inputs.items()}, folder / f"{name}.inputs")
        loaded = type(model).from_pretrained(folder / name).eval()
        found[name] = difference(outputs_of(loaded, inputs), frozen)
    return found


def differences_as_remote_code(folder: Path) -> dict[str, float]:
    """Returns the largest difference of each checkpoint, loaded where there is no package."""
    frozen = frozen_outputs()
    subprocess.run([sys.executable, "-c", REMOTE, str(folder), *frozen], check=True, cwd=folder)
    return {name: difference(load_file(folder / f"{name}.outputs")["outputs"], frozen[name]) for name in frozen}


def difference(outputs: torch.Tensor, frozen: dict) -> float:
    return float((sample(outputs) - torch.tensor(frozen["outputs"])).abs().max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", action="store_true", help="add checkpoints that are not frozen yet")
    if parser.parse_args().freeze:
        freeze()
        return 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with TemporaryDirectory() as folder:
        ways = {
            "with the package": differences_with_the_package(Path(folder)),
            "as remote code": differences_as_remote_code(Path(folder)),
        }
    missing = missing_names()
    for line in missing:
        print(f"transformers {transformers.__version__}, a private name is missing: {line}")
    drifted = len(missing)
    for way, found in ways.items():
        print(
            f"transformers {transformers.__version__}, {way}: {len(found)} model types, largest difference "
            f"{max(found.values()):.1e} (at most {TOLERANCE:.0e})"
        )
        for name, value in found.items():
            if not value <= TOLERANCE:
                drifted += 1
                print(f"  {name} differs by {value:.1e}")
    return int(drifted > 0)


if __name__ == "__main__":
    sys.exit(main())
