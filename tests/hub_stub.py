"""A Hub on 127.0.0.1, with the part of its protocol that pushing and loading checkpoints needs."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

REPOSITORY = "user/captioner"
WRITER, READER = "hf_writer", "hf_reader"
"""Tokens: one may write to the repositories of `user`, the other to no repository."""


Commit = tuple[str, dict[str, bytes]]


@dataclass
class Repository:
    """Commits from the first to the last, and the commits of tags."""

    private: bool = False
    commits: list[Commit] = field(default_factory=lambda: [("0" * 40, {})])
    tags: dict[str, str] = field(default_factory=dict)

    def at(self, revision: str) -> Commit | None:
        """The id and files of a commit, by its id, by a tag, or as the newest commit of main."""
        named = self.commits[-1][0] if revision == "main" else self.tags.get(revision, revision)
        return next((commit for commit in self.commits if commit[0] == named), None)

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][1]


class HubHandler(BaseHTTPRequestHandler):
    """Answers the requests of huggingface_hub's client."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int = 200, body: bytes | dict | list = b"", **headers: str):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def body(self, limit: int | None = None) -> bytes:
        """The body of a request; of more than `limit` bytes only so many are read."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            length = int(self.headers.get("Content-Length", 0))
            return self.rfile.read(length if limit is None else min(length, limit))
        content = b""
        while limit is None or len(content) < limit:
            size = int(self.rfile.readline(), 16)
            content += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                break
        return content

    def repository(self, name: str) -> Repository | None:
        actual = self.server.repositories.get(name)
        if actual is None:
            self.answer(404, X_Error_Code="RepoNotFound")
        return actual

    def may_write(self) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != WRITER:
            self.answer(403 if token == READER else 401, {"error": "no"})
        return token == WRITER

    def do_POST(self):
        path, body = unquote(self.path.split("?")[0]), self.body()
        self.server.requests.append(f"POST {path}")
        if path == "/api/validate-yaml":
            self.answer(body={"errors": [], "warnings": []})
        elif not self.may_write():
            return
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            status = 409 if name in self.server.repositories else 200
            private = asked.get("private") or asked.get("visibility") == "private"
            self.server.repositories.setdefault(name, Repository(bool(private)))
            self.answer(status, {"url": f"{self.server.url}/{name}"})
        elif path.endswith(".git/info/lfs/objects/batch"):
            self.answer(body={"transfer": "basic", "objects": [self.upload_of(o) for o in json.loads(body)["objects"]]})
        else:
            name, _, rest = path.removeprefix("/api/models/").partition("/")
            owner, (name, _, rest) = name, rest.partition("/")
            if repository := self.repository(f"{owner}/{name}"):
                self.write(repository, f"{owner}/{name}", rest, body)

    def upload_of(self, file: dict) -> dict:
        if file["oid"] in self.server.large_files:
            return {**file}
        return {**file, "actions": {"upload": {"href": f"{self.server.url}/large/{file['oid']}", "header": {}}}}

    def write(self, repository: Repository, name: str, rest: str, body: bytes):
        kind, _, revision = rest.partition("/")
        if kind == "preupload":
            files = json.loads(body)["files"]
            modes = {f["path"]: "lfs" if f["size"] >= self.server.large_from else "regular" for f in files}
            answers = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            self.answer(body={"files": answers})
        elif kind == "commit":
            files = dict(repository.at(revision)[1])
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif entry["key"] == "lfsFile":
                    files[value["path"]] = self.server.large_files[value["oid"]]
                elif entry["key"] == "deletedFile":
                    del files[value["path"]]
            commit = hashlib.sha1(f"{len(repository.commits)}".encode() + body).hexdigest()
            repository.commits.append((commit, files))
            url = f"{self.server.url}/{name}/commit/{commit}"
            self.answer(body={"commitUrl": url, "commitOid": commit})
        elif kind == "tag":
            tag = json.loads(body)["tag"]
            status = 409 if tag in repository.tags else 200
            repository.tags.setdefault(tag, revision)
            self.answer(status)
        else:
            self.answer(404)

    def do_PUT(self):
        oid = self.path.removeprefix("/large/")
        if self.server.cuts:
            self.body(self.server.cuts.pop())
            self.close_connection = True
            self.connection.close()
            return
        content = self.body()
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.large_files[oid] = content
        self.answer()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/api/whoami-v2":
            self.answer(body={"type": "user", "name": "user"})
            return
        parts = [unquote(part) for part in path.removeprefix("/api/models").strip("/").split("/")]
        repository = self.repository("/".join(parts[:2]))
        if repository is None:
            return
        kind, revision = (parts[2], parts[3]) if len(parts) > 3 else ("revision", "main")
        actual = repository.at(revision)
        if actual is None:
            self.answer(404, X_Error_Code="RevisionNotFound")
            return
        commit, files = actual
        if kind == "resolve":
            content = files.get("/".join(parts[4:]))
            if content is None:
                self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            else:
                self.answer(body=content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)
        elif kind == "tree":
            self.answer(body=[{"type": "file", "path": p, "size": len(c), "oid": commit} for p, c in files.items()])
        else:
            siblings = [{"rfilename": name} for name in files]
            self.answer(body={"id": "/".join(parts[:2]), "sha": commit, "siblings": siblings})

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


class Hub(ThreadingHTTPServer):
    """A Hub at `url`, as HF_ENDPOINT, with `repositories` by name, and the paths of POST `requests`.

    Files of at least `large_from` bytes are uploaded separately, as with LFS: `large_files` has their contents by
    SHA-256, and `cuts` the numbers of bytes after which the next uploads are interrupted, the last one first.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories: dict[str, Repository] = {}
        self.large_from = 2**62
        self.large_files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.requests: list[str] = []

    def handle_error(self, *arguments) -> None:  # of clients that have disconnected
        pass


@contextmanager
def hub() -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
