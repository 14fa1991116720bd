"""Requests with one or several mistakes: each gets an answer of one sentence, and the server continues.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_server.py` uses another seed.
"""

import json
import os
import random

import pytest
from PIL import Image

from tests.data.images.photos import encoded
from tests.serving.test_app import client, in_base64, pipeline  # noqa: F401

FEW = 120
DEEP, DIGITS = "@deep@", "@digits@"
"""Placeholders in a document for values that Python does not write: nested lists, and a number of 5,000 digits."""
WRITTEN = {DEEP: "[" * 50_000 + "]" * 50_000, DIGITS: "9" * 5_000}
VALUES = (
    *(None, True, "", " ", "x", "é", "\ud800", "a\0b", "a\nb", "a" * 5_000, "9" * 5_000, "~", "%s{}", "-1", "nan"),
    *(0, 1, -1, 2**31, 2**63, 10**9, 10**25, -(10**25), 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")),
    *([], {}, [[]], [None], [1, "a"], {"a": {"b": [1]}}, ["x"] * 2_000, DEEP, DIGITS),
)
SIZES = [(8, 8), (40, 30), (1, 1), (1, 3_000), (3_000, 3_000)]
KINDS = [("RGB", "PNG"), ("L", "JPEG"), ("1", "PNG"), ("P", "GIF"), ("RGBA", "WEBP"), ("I;16", "PNG")]
NO_IMAGES = [b"", b"\0", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"<svg onload=alert(1)>", b"PK\3\4"]
BODIES = [b"", b"null", b"[" * 50_000, b"\xff\xfe", b'{"images": [1e999]}', b'{"a": NaN}']
CONTENT_TYPES = ["text/plain", "multipart/form-data", "multipart/form-data; boundary=x", "a/b/c"]


def picture(draw: random.Random) -> bytes:
    """An intact or damaged image, or something else."""
    mode, kind = draw.choice(KINDS)
    content = bytearray(encoded(Image.new(mode, draw.choice(SIZES)), kind))
    deed = draw.randrange(8)
    if deed == 0:
        content = content[: draw.randrange(len(content) + 1)]
    elif deed == 1:
        for _ in range(draw.choice([1, 20])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif deed == 2:
        content = draw.choice(NO_IMAGES)
    elif deed == 3:
        content += draw.randbytes(draw.choice([1, 1_000]))
    return bytes(content)


def request(draw: random.Random) -> dict:
    """Keyword arguments of a request."""
    options = {"num_beams": 2, "max_new_tokens": 4, "text": "a", "scores": True}
    chosen = {name: item for name, item in options.items() if draw.random() < 0.4}
    for _ in range(draw.choice([0, 1, 1, 2])):
        chosen[draw.choice([*options, "images", "unknown", "", "text\n", "num_beams "])] = draw.choice(VALUES)
    if draw.random() < 0.4:
        file = (draw.choice(["a.png", "../a.png", "a\n.png", "", "é" * 300]), picture(draw))
        texts = {name: str(item).encode("utf-8", "replace").decode() for name, item in chosen.items()}
        return {"files": [("files", file)] * draw.choice([1, 1, 3, 9]), "data": texts}
    images = [in_base64(picture(draw)) for _ in range(draw.choice([1, 1, 2, 9]))]
    if draw.random() < 0.2:
        images[0] = draw.choice(["", "*", "data:image/png;base64,AAAA", "http://127.0.0.1/", 7, None])
    text = json.dumps({"images": images, **chosen})
    for placeholder, value in WRITTEN.items():
        text = text.replace(f'"{placeholder}"', value)
    content = text[: draw.choice([None] * 4 + [draw.randrange(20_000)])].encode()
    if draw.random() < 0.1:
        content = draw.choice([*BODIES, content * 2])
    return {"content": content, "headers": {"content-type": draw.choice(["application/json"] * 6 + CONTENT_TYPES)}}


@pytest.mark.slow
def test_odd_requests_are_answered_in_one_sentence(client):  # noqa: F811
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    statuses = set()
    for number in range(FEW):
        draw = random.Random(f"{seed} {number}")
        asked = request(draw)
        others = [("/caption", "GET"), ("/x/../etc", "POST"), ("/", "PUT")]
        path, method = draw.choice([("/caption", "POST")] * 20 + others)
        answer = client.request(method, path, **asked)
        statuses.add(answer.status_code)
        output = f"seed {seed}, request {number}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code in (200, 400, 404, 405, 413, 415), output
        if path == "/caption" and method == "POST":
            actual = answer.json()
            message = actual.get("error", "")
            assert "captions" in actual or (len(message.splitlines()) == 1 and len(message) < 600), output
    assert {200, 400} <= statuses
    assert client.get("/health").status_code == 200
