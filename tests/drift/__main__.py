"""Compares the outputs of the frozen checkpoints with their stored outputs: `python -m tests.drift`.

The checkpoints run with the installed transformers, once with the package and once with the code in the checkpoint, in
a process that has only transformers. It also looks for the private names of other libraries that the package uses.
`--freeze` stores the outputs of new checkpoints.
"""

import argparse
import hashlib
import inspect
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
"""Number of outputs of each model that are stored, evenly spaced."""
TOLERANCE = 1e-5
REMOTE = """
import json, sys
sys.modules["hf_ngsan"] = None
import torch, transformers
transformers.logging.disable_progress_bar()
from typing import Any
from safetensors.torch import load_file, save_file
from transformers.dynamic_module_utils import get_class_from_dynamic_module

for name in sys.argv[1:]:
    config = json.load(open(f"{name}/config.json"))
    [reference] = {one for one in config["auto_map"].values() if one.endswith("." + config["architectures"][0])}
    model = get_class_from_dynamic_module(reference, name).from_pretrained(name).eval()
    assert type(model).__module__.startswith("transformers_modules")
    save_file({"outputs": outputs_of(model, load_file(f"{name}.inputs")).contiguous()}, f"{name}.outputs")
"""


def weights_of(model: torch.nn.Module) -> str:
    """Returns a checksum of the weights, which must be equal on every machine."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sample(outputs: torch.Tensor) -> torch.Tensor:
    return outputs[torch.linspace(0, len(outputs) - 1, NUMBER).long()]


def frozen_outputs() -> dict[str, dict]:
    records = json.loads(FROZEN.read_text(encoding="utf-8"))
    return {name: frozen for name, frozen in records.items() if name in MODEL_TYPES}


def freeze() -> None:
    records = json.loads(FROZEN.read_text(encoding="utf-8"))
    for name in MODEL_TYPES.keys() - records.keys():
        model, _, inputs = CHECKPOINTS[name]()
        outputs = sample(outputs_of(model, inputs)).tolist()
        records[name] = {"weights": weights_of(model), "outputs": [round(value, 8) for value in outputs]}
    FROZEN.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def differences_with_the_package(folder: Path) -> dict[str, float]:
    """Saves every checkpoint with its code and inputs, loads it again, and returns its largest difference."""
    largest = {}
    for name, frozen in frozen_outputs().items():
        model, processor, inputs = CHECKPOINTS[name]()
        if weights_of(model) != frozen["weights"]:
            raise SystemExit(f"{name}: its seed gives other weights than it did.")
        save_for_hub(model, processor, folder / name)
        save_file({key: value.contiguous() for key, value in inputs.items()}, folder / f"{name}.inputs")
        loaded = type(model).from_pretrained(folder / name).eval()
        largest[name] = difference(outputs_of(loaded, inputs), frozen)
    return largest


def differences_as_remote_code(folder: Path) -> dict[str, float]:
    """Returns the largest difference of each checkpoint, loaded without the package."""
    frozen = frozen_outputs()
    code = REMOTE.replace("\nfor name", f"\n{inspect.getsource(outputs_of)}\nfor name")
    subprocess.run([sys.executable, "-c", code, *(f"./{name}" for name in frozen)], check=True, cwd=folder)
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
    faults = [f"a private name is missing: {line}" for line in missing_names()]
    with TemporaryDirectory() as folder:
        for way, differences in (
            ("with the package", differences_with_the_package),
            ("as remote code", differences_as_remote_code),
        ):
            results = differences(Path(folder))
            print(f"transformers {transformers.__version__}, {way}: largest difference {max(results.values()):.1e}")
            faults += [f"{name} differs by {value:.1e}" for name, value in results.items() if not value <= TOLERANCE]
    print("\n".join(faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
