"""`hf-ngsan models`: information in the folders of packaged models, read without torch."""

import json

from hf_ngsan.io.packaged import packaged_models
from hf_ngsan.loading.models import load_config
from tests.commands.running import prints


def test_every_packaged_model_is_listed(capsys):
    actual = json.loads(prints(capsys, "models", "--json"))
    assert {model["name"] for model in actual["packaged"]} == packaged_models().keys()
    for model in actual["packaged"]:
        folder = packaged_models()[model["name"]]
        assert model["model_type"] == load_config(folder).model_type
        assert model["bytes"] > (folder / "model.safetensors").stat().st_size
        assert model["metric"] in model["scores"] and model["data"] and model["license"], model
    assert all(name in prints(capsys, "models") for name in packaged_models())
