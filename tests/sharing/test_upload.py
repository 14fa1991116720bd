"""Uploads: one commit, resumed after a broken connection, and errors of one sentence."""

import pytest
from huggingface_hub import HfApi, ModelCard, constants

from hf_ngsan import push_to_hub
from hf_ngsan.loading.hub import SELF_TEST
from hf_ngsan.sharing import UploadError, upload_checkpoint, write_checkpoint
from hf_ngsan.sharing.upload import files_of
from tests.hub_stub import READER, REPOSITORY
from tests.loading.test_hub import CODE
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.tables import each_row

FILES = CODE | {
    SELF_TEST,
    "README.md",
    "config.json",
    "generation_config.json",
    "handler.py",
    "model.safetensors",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint for an upload, with two files of weights and their index."""
    folder = tmp_path_factory.mktemp("upload")
    write_checkpoint(tiny_captioner(), tiny_processor(), folder, REPOSITORY, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) == 2
    return folder


def test_model_processor_code_and_card_are_one_commit(online):
    commit = push_to_hub(tiny_captioner(), tiny_processor(), "captioner", private=True, tags=["mine"])
    repository = online.repositories[REPOSITORY]
    assert repository.private
    assert len(repository.commits) == 2 and repository.commits[-1][0] == commit.oid
    assert repository.files.keys() == FILES
    assert list(repository.tags.values()) == [commit.oid]
    card = ModelCard(repository.files["README.md"].decode())
    assert card.data.pipeline_tag == "image-to-text"
    assert {"hf-ngsan", "mine"} <= set(card.data.tags)
    [tag] = repository.tags
    assert f'model="{REPOSITORY}", revision="{tag}"' in card.text
    assert not card.data.eval_results


def test_arguments_of_a_commit_are_passed_on(online, folder, monkeypatch):
    asked, original = {}, HfApi.create_commit

    def commit(self, repo_id, operations, **options):
        asked.update(options)
        return original(self, repo_id, operations, commit_message="mine")

    monkeypatch.setattr(HfApi, "create_commit", commit)
    monkeypatch.setattr(HfApi, "create_branch", lambda self, repo_id, **options: asked.update(options))
    monkeypatch.setattr(HfApi, "list_repo_files", lambda *arguments, **options: [])
    upload_checkpoint(folder, REPOSITORY, create_pr=True, commit_message="mine", revision="next")
    options = {"revision": "next", "create_pr": True, "commit_message": "mine"}
    assert asked == {"branch": "next", "exist_ok": True, **options}


def test_an_upload_that_is_cut_ends_complete(online, folder):
    online.large_from, online.cuts = 40_000, [0, 1_000, 30_000]
    upload_checkpoint(folder, REPOSITORY)
    assert not online.cuts
    assert online.repositories[REPOSITORY].files == {name: (folder / name).read_bytes() for name in files_of(folder)}
    assert len(online.repositories[REPOSITORY].commits) == 2


@pytest.mark.slow
def test_an_upload_that_failed_is_continued(online, folder):
    """The repository does not change before the end."""
    online.large_from, online.cuts = 40_000, [0] * 1000
    with pytest.raises(UploadError, match=REPOSITORY):
        upload_checkpoint(folder, REPOSITORY)
    assert not online.repositories[REPOSITORY].files
    online.cuts = []
    upload_checkpoint(folder, REPOSITORY)
    assert online.repositories[REPOSITORY].files.keys() == set(files_of(folder))


def test_other_files_are_refused_or_deleted(online, folder):
    tiny_captioner().push_to_hub(REPOSITORY)
    repository = online.repositories[REPOSITORY]
    assert "model.safetensors" in repository.files
    with pytest.raises(UploadError, match=r"model\.safetensors") as error:
        upload_checkpoint(folder, REPOSITORY)
    assert "--overwrite" in str(error.value) and len(repository.commits) == 2
    repository.files[".gitattributes"] = b"text"
    upload_checkpoint(folder, REPOSITORY, overwrite=True)
    assert repository.files.keys() == {*files_of(folder), ".gitattributes"}
    assert len(repository.commits) == 3


@each_row("token", ["", "hf_unknown", READER])
def test_who_may_not_write_is_told(online, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(UploadError, match=f"{REPOSITORY}.*token"):
        push_to_hub(tiny_captioner(), tiny_processor(), REPOSITORY)
    assert REPOSITORY not in online.repositories


def test_without_a_network(online, folder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="HF_HUB_OFFLINE"):
        upload_checkpoint(folder, REPOSITORY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UploadError, match=REPOSITORY):
        upload_checkpoint(folder, REPOSITORY)
