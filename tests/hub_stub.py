"""A Hub of one repository on 127.0.0.1, with as much of its protocol as uploading and loading small files needs."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPOSITORY = "user/captioner"
COMMIT = "0" * 40


class HubHandler(BaseHTTPRequestHandler):
    """Keeps the files of the last commit in `self.server.files`."""

    def answer(self, status: int = 200, body: bytes | dict | list = b"", **headers: str):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            self.answer(body={"url": f"{self.server.url}/{REPOSITORY}"})
        elif self.path == "/api/validate-yaml":
            self.answer(body={"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self.answer(
                body={"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
            )
        elif "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self.answer(body={"commitUrl": f"{self.server.url}/{REPOSITORY}/commit/{COMMIT}", "commitOid": COMMIT})
        else:
            self.answer(404)

    def do_GET(self):
        path = self.path.split("?")[0]
        if "/resolve/" in path:
            name = path.split("/resolve/")[1].split("/", 1)[1]
            content = self.server.files.get(name)
            if content is None:
                self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            else:
                self.answer(body=content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=COMMIT)
        elif "/tree/" in path:
            files = self.server.files.items()
            self.answer(body=[{"type": "file", "path": p, "size": len(c), "oid": COMMIT} for p, c in files])
        elif path.startswith("/api/models/"):
            siblings = [{"rfilename": name} for name in self.server.files]
            self.answer(body={"id": REPOSITORY, "sha": COMMIT, "siblings": siblings})
        else:
            self.answer(404)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@contextmanager
def hub() -> Iterator[ThreadingHTTPServer]:
    """The running server; its `url` is what HF_ENDPOINT shall be."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubHandler)
    server.url, server.files = f"http://127.0.0.1:{server.server_address[1]}", {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
