from pathlib import Path

import pytest
import yaml
from torch.utils.data import DataLoader

from hf_ngsan.cli import main
from tests.metrics.conftest import metric_reference  # noqa: F401
from tests.tasks.tiny import tiny_sections


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training config of a tiny captioner, whose run goes next to it."""
    folder = tmp_path_factory.mktemp("cli")
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", training={"epochs": 1})))
    return file


@pytest.fixture(scope="session")
def run(config: Path) -> Path:
    """The folder of a finished training run, which tests leave as it is."""
    assert main(["train", "--config", str(config)]) == 0
    return config.parent / "run"


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of worker processes that loaders were made with, in whose place this process reads."""
    asked, init = [], DataLoader.__init__

    def here(self: DataLoader, *args: object, num_workers: int = 0, **given: object) -> None:
        asked.append(num_workers)
        init(self, *args, **given)

    monkeypatch.setattr(DataLoader, "__init__", here)
    return asked
