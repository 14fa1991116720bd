"""Requests with one or several mistakes: each gets an answer of one sentence, and the server continues.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_server.py` uses another seed.
"""

import base64
import io
import json
import os
import random
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.serving import ServingLimits, create_app
from tests.models.tiny import tiny_captioner, tiny_processor

VISION = {"kind": "grid", "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 6], "depths": [1, 1]}}
LIMITS = ServingLimits(request_bytes=300_000, images=8, pixels=1_000_000, cost=512, seconds=20, wait_ms=0)
FEW = 120
DEEP, DIGITS = "@deep@", "@digits@"
"""Placeholders in a document for values that Python does not write: nested lists, and a number of 5,000 digits."""
WRITTEN = {DEEP: "[" * 50_000 + "]" * 50_000, DIGITS: "9" * 5_000}
VALUES = (
    *(None, True, "", " ", "x", "é", "\ud800", "a\0b", "a\nb", "a" * 5_000, "9" * 5_000, "~", "%s{}", "-1", "nan"),
    *(0, 1, -1, 2**31, 2**63, 10**9, 10**25, -(10**25), 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")),
    *([], {}, [[]], [None], [1, "a"], {"a": {"b": [1]}}, ["x"] * 2_000, DEEP, DIGITS),
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    model, processor = tiny_captioner(vision_config=VISION, visual_feature_size=6), tiny_processor()
    processor.image_processor = CaptioningImageProcessor(size={"height": 16, "width": 16})
    model.generation_config.max_new_tokens = 5
    with TestClient(
        create_app(CaptioningPipeline(model=model.eval(), processor=processor), LIMITS), raise_server_exceptions=False
    ) as actual:
        yield actual


def picture(draw: random.Random) -> bytes:
    """An intact or damaged image, or something else."""
    size = draw.choice([(8, 8), (40, 30), (1, 1), (1, 3_000), (3_000, 3_000)])
    kinds = [("RGB", "PNG"), ("L", "JPEG"), ("1", "PNG"), ("P", "GIF"), ("RGBA", "WEBP"), ("I;16", "PNG")]
    mode, kind = draw.choice(kinds)
    file = io.BytesIO()
    pixels = Image.fromarray(np.zeros(size[::-1], np.uint8))
    (pixels if mode == "I;16" else pixels.convert(mode)).save(file, kind)
    content = bytearray(file.getvalue())
    deed = draw.randrange(8)
    if deed == 0:
        content = content[: draw.randrange(len(content) + 1)]
    elif deed == 1:
        for _ in range(draw.choice([1, 20])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif deed == 2:
        content = bytearray(
            draw.choice([b"", b"\0", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"<svg onload=alert(1)>", b"PK\3\4"])
        )
    elif deed == 3:
        content += draw.randbytes(draw.choice([1, 1_000]))
    return bytes(content)


def value(draw: random.Random) -> object:
    actual = draw.choice(VALUES)
    return actual if not isinstance(actual, str) else WRITTEN.get(actual, actual)


def request(draw: random.Random) -> dict:
    """Keyword arguments of a request."""
    options = {"num_beams": 2, "max_new_tokens": 4, "text": "a", "scores": True}
    chosen = {name: item for name, item in options.items() if draw.random() < 0.4}
    for _ in range(draw.choice([0, 1, 1, 2])):
        name = draw.choice([*options, "images", "unknown", "", "text\n", "num_beams "])
        chosen[name] = value(draw)
    if draw.random() < 0.4:
        fields = {name: "" if item is None else str(item)[:5_000] for name, item in chosen.items() if name != "images"}
        parts = [("files", (draw.choice(["a.png", "../a.png", "a\n.png", "", "é" * 300]), picture(draw)))]
        parts *= draw.choice([1, 1, 3, 9])
        data = {name: text.encode("utf-8", "replace").decode() for name, text in fields.items()}
        return {"files": parts, "data": data}
    images = [base64.b64encode(picture(draw)).decode() for _ in range(draw.choice([1, 1, 2, 9]))]
    if draw.random() < 0.2:
        images[draw.randrange(len(images))] = draw.choice(
            ["", "*", "data:image/png;base64,AAAA", "http://127.0.0.1/", 7, None]
        )
    body = {"images": images, **chosen}
    text = json.dumps(body) if draw.random() < 0.8 else json.dumps(body)[: draw.randrange(20_000)]
    content = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.1:
        content = draw.choice(
            [b"", b"null", b"[" * 50_000, b"\xff\xfe", b'{"images": [1e999]}', b'{"a": NaN}', content * 2]
        )
    kind = draw.choice(
        ["application/json"] * 6 + ["text/plain", "multipart/form-data", "multipart/form-data; boundary=x", "a/b/c"]
    )
    return {"content": content, "headers": {"content-type": kind}}


@pytest.mark.slow
def test_odd_requests_are_answered_in_one_sentence(client):
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
