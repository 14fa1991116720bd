"""`hf-ngsan models`: what the folders of packaged models say of themselves, without torch."""

import json

from hf_ngsan.io.packaged import CAPTIONER, packaged_configs, packaged_models
from hf_ngsan.loading.models import load_config
from hf_ngsan.registry import MODEL_TYPES
from tests.commands.running import fails, prints


def test_every_packaged_model_and_every_architecture_with_a_task_is_listed(capsys):
    found = json.loads(prints(capsys, "models", "--json"))
    assert {model["name"] for model in found["packaged"]} == packaged_models().keys()
    for model in found["packaged"]:
        folder = packaged_models()[model["name"]]
        assert model["model_type"] == load_config(folder).model_type
        assert model["bytes"] > (folder / "model.safetensors").stat().st_size
        assert model["metric"] in model["scores"] and model["data"] and model["license"], model
    with_task = {name for name, entry in MODEL_TYPES.items() if entry.task is not None}
    assert {one["model_type"] for one in found["architectures"]} == with_task | {"guests"}
    assert sorted(name for one in found["architectures"] for name in one["configs"]) == sorted(packaged_configs())
    [scenes] = [one for one in found["architectures"] if "mhsan/scenes" in one["configs"]]
    assert scenes["model_type"] == "mhsan"


def test_a_type_is_a_model_type_or_a_task(capsys):
    by_task, by_type = (prints(capsys, "models", "--type", name) for name in ("captioning", "ngsan"))
    assert CAPTIONER in by_task and CAPTIONER in by_type and "mhsan" not in by_task + by_type
    assert "rstnet/scenes" in by_task and "rstnet/" not in by_type and "ngsan/g_san" in by_type
    assert CAPTIONER not in prints(capsys, "models", "--type", "translation")
    assert "retrieval" in fails(capsys, "models", "--type", "retrievel")
