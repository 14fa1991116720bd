"""The handler of Inference Endpoints, as in a pushed repository."""

import base64
from pathlib import Path

import pytest

from hf_ngsan.sharing import write_checkpoint
from hf_ngsan.sharing.endpoint_handler import MAX_IMAGES, EndpointHandler, decoded_input
from hf_ngsan.sharing.upload import HANDLER_CODE
from tests.data.images.photos import encoded
from tests.hub_stub import REPOSITORY
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

FILE = {"path": None, "bytes": None}
PLACES = ("/etc/passwd", "http://127.0.0.1/x", Path("/etc/passwd"))


@pytest.fixture(scope="module")
def handler(tmp_path_factory) -> EndpointHandler:
    folder = tmp_path_factory.mktemp("handler") / "model"
    write_checkpoint(pixel_captioner(), pixel_processor(), folder, REPOSITORY)
    names: dict = {}
    exec(compile((folder / "handler.py").read_text(), str(HANDLER_CODE), "exec"), names)
    return names["EndpointHandler"](str(folder))


def in_base64(image) -> str:
    return base64.b64encode(encoded(image)).decode()


def test_it_captions_what_the_pipeline_captions(handler):
    expected = [answer for [answer] in handler.pipeline(PHOTOS)]
    assert [handler({"inputs": photo})[0] for photo in PHOTOS] == expected
    assert [answer for [answer] in handler({"inputs": [in_base64(photo) for photo in PHOTOS]})] == expected
    assert handler({"inputs": {"image": in_base64(PHOTOS[0])}}) == expected[:1]
    assert decoded_input({"frames": ["YQ==", b"b"], "video": "Yw=="}, 0) == {"frames": [b"a", b"b"], "video": b"c"}
    content = bytes(range(256))
    for encode in (base64.encodebytes, base64.urlsafe_b64encode):  # RFC 2045, with line breaks, and RFC 4648
        encoded = encode(content).decode()
        texts = encoded, encoded.replace("\n", "\r\n"), encoded.rstrip("=\n"), f"data:image/png;base64,{encoded}"
        assert [decoded_input(text, 0) for text in texts] == [content] * 4
    beams = handler({"inputs": PHOTOS[0], "parameters": {"num_beams": 3, "num_return_sequences": 2}})
    assert beams == handler.pipeline(PHOTOS[0], num_beams=3, num_return_sequences=2)


@each_row(
    ("data", "fact"),
    [
        ({"inputs": []}, "0"),
        ({"inputs": ["x"] * (MAX_IMAGES + 1)}, str(MAX_IMAGES)),
        *(({"inputs": inputs}, "mage 0 ") for place in PLACES for inputs in (place, [[place]], {"frames": [[place]]})),
        *(({"inputs": {key: place}}, "mage 0 ") for key in ("image", "video", *FILE) for place in PLACES),
        *(({"inputs": {"image": {**FILE, key: place}}}, "mage 0 ") for key in FILE for place in PLACES),
        ({"inputs": PHOTOS[0], "parameters": {"on_error": "skip"}}, "on_error"),
    ],
)
def test_what_it_refuses(handler, data, fact):
    with pytest.raises(ValueError, match=fact):
        handler(data)
