"""Uploads checkpoints to the Hub, each in one commit with a tag."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedModel

from ..io.messages import chain, one_sentence
from .upload_folder import checkpoint_tag, files_of, write_checkpoint

logger = logging.getLogger(__name__)

ATTEMPTS = 6
MAX_PAUSE = 8
"""Maximal seconds between two attempts of an upload."""
TRANSIENT = {408, 429, 500, 502, 503, 504}
OF_THE_HUB = {".gitattributes", "README.md"}
"""Files of a new repository, which do not count as foreign."""
LOG_IN = "log in with hf auth login, or set HF_TOKEN to a token with the right to write"

Result = TypeVar("Result")


class UploadError(OSError):
    """An upload that failed or that the Hub refused; the message names the repository and the reason."""


def push_to_hub(
    model: PreTrainedModel,
    processor: Any,
    repo_id: str,
    *,
    private: bool | None = None,
    token: bool | str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    commit_description: str | None = None,
    max_shard_size: int | str = "50GB",
    tags: list[str] | None = None,
) -> CommitInfo:
    """Uploads a model, its processor, the code of both and a card, in one commit.

    The card describes the model by its configuration; that of `hf-ngsan push` also has its training and evaluation.

    Args:
        model, processor: see [`save_for_hub`].
        repo_id: `user/name`, or `name` for the user of the token; made if absent.
        private: whether a new repository is private.
        token, create_pr, commit_message, commit_description, max_shard_size: as in transformers.
        revision: a branch, made if absent, or an open pull request, such as `refs/pr/1`.
        overwrite: delete other files of the repository in the same commit; without it they are refused.
        tags: further tags of the card.

    Raises:
        ValueError: see [`save_for_hub`]; or no name of a repository.
        UploadError: no token, no right to write, a repository with other files, or a Hub that cannot be reached.
    """
    repo_id = full_name(repo_id, token)
    with TemporaryDirectory() as folder:
        write_checkpoint(
            model,
            processor,
            folder,
            repo_id,
            tags=tags or (),
            max_shard_size=max_shard_size,
            is_tagged=not is_for_pull_request(revision, create_pr),
        )
        return upload_checkpoint(
            folder,
            repo_id,
            private=private,
            token=token,
            overwrite=overwrite,
            revision=revision,
            create_pr=create_pr,
            commit_message=commit_message,
            commit_description=commit_description,
        )


def is_for_pull_request(revision: str | None, create_pr: bool) -> bool:
    return create_pr or (revision or "").startswith("refs/pr/")


def full_name(repo_id: str, token: bool | str | None = None) -> str:
    """Returns `user/name` of a repository; the user of the token if the name has none.

    Raises:
        ValueError: no name of a repository.
        UploadError: the token is missing or invalid.
    """
    validate_repo_id(repo_id)
    if token is False or not (token if isinstance(token, str) else get_token()):
        raise UploadError(f"{repo_id} cannot be written without a token; {LOG_IN}.")
    if "/" in repo_id:
        return repo_id
    with telling_reasons(repo_id):
        return f"{HfApi(token=token).whoami()['name']}/{repo_id}"


def upload_checkpoint(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: bool | str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    commit_description: str | None = None,
) -> CommitInfo:
    """Uploads a folder of [`write_checkpoint`] in one commit.

    A commit to a branch gets the tag that its card names; one for a pull request gets none. Broken connections are
    retried. Called again after a failure, it uploads only files that the Hub lacks.

    Args:
        folder: folder of the checkpoint.
        repo_id: `user/name`; made if absent.
        private, token, overwrite, revision, create_pr, commit_message, commit_description: see [`push_to_hub`].

    Raises:
        UploadError: see [`push_to_hub`]; the repository is unchanged.
    """
    folder, api = Path(folder), HfApi(token=token)
    names = files_of(folder)
    for_pull_request = is_for_pull_request(revision, create_pr)
    with telling_reasons(repo_id):
        repeat(lambda: api.create_repo(repo_id, private=private, exist_ok=True))
        if revision is not None and not for_pull_request:
            repeat(lambda: api.create_branch(repo_id, branch=revision, exist_ok=True))
        existing = repeat(lambda: api.list_repo_files(repo_id, revision=revision))
        others = sorted({*existing} - {*names} - OF_THE_HUB)
        if others and not overwrite:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise UploadError(
                f"{repo_id} holds files that are not of this checkpoint: {others[0]}{more}; choose another "
                "repository, or delete them with --overwrite."
            )

        def commit() -> CommitInfo:
            added = [CommitOperationAdd(name, folder / name) for name in names]
            return api.create_commit(
                repo_id,
                [*added, *map(CommitOperationDelete, others)],
                commit_message=commit_message or "Upload model, processor, code and card",
                commit_description=commit_description,
                revision=revision,
                create_pr=create_pr,
            )

        info = repeat(commit)
    if not for_pull_request:
        tag = checkpoint_tag(folder)
        try:
            repeat(lambda: api.create_tag(repo_id, tag=tag, revision=info.oid, exist_ok=True))
        except Exception as error:  # the upload is complete without its tag
            left = f"the tag {tag} of its card could not be made ({one_sentence(error)}); push again to make it."
            logger.warning("%s is complete at commit %s, but %s", repo_id, info.oid, left)
    return info


def repeat(step: Callable[[], Result]) -> Result:
    """Returns the result of a step of an upload; repeats it after a pause if the connection breaks."""
    pause = 1
    for _ in range(ATTEMPTS - 1):
        try:
            return step()
        except Exception as error:
            if not is_transient(error):
                raise
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)
    return step()


def is_transient(error: Exception) -> bool:
    """Returns whether an error comes from the connection, or from a busy Hub."""
    for one in chain(error):
        if isinstance(one, OfflineModeIsEnabled):
            return False
        if isinstance(one, HfHubHTTPError):
            return one.response.status_code in TRANSIENT
        if isinstance(one, HTTPError | ConnectionError | TimeoutError):
            return True
    return False


@contextmanager
def telling_reasons(repo_id: str) -> Iterator[None]:
    """Turns errors of the Hub or the connection inside the `with` block into an [`UploadError`] of one sentence."""
    try:
        yield
    except UploadError:
        raise
    except Exception as error:
        status = next((one.response.status_code for one in chain(error) if isinstance(one, HfHubHTTPError)), None)
        if status == 401:
            reason = f"{repo_id}: the Hub does not accept the token; {LOG_IN}."
        elif status == 403:
            reason = f"{repo_id}: the token has no right to write there; choose a repository of yours, or {LOG_IN}."
        elif isinstance(error, OfflineModeIsEnabled):
            reason = f"{repo_id} cannot be reached while HF_HUB_OFFLINE is set; unset it."
        elif status is not None or is_transient(error):
            cause = one_sentence(error)
            reason = f"{repo_id} was not uploaded completely ({cause}); run the same again to upload what is missing."
        else:
            raise
        raise UploadError(reason) from error
