"""Runs the web page of a captioner as a Space. Environment variables: MODEL is a name on the Hub, DATA (such as
"scenes") adds a drawing with movable objects, and INDEX, a folder written by `hf-ngsan index`, adds search."""

import os
import threading

from hf_ngsan.space import launch, load_parts, make_page

model, data, index = (os.environ.get(name) for name in ("MODEL", "DATA", "INDEX"))
page = make_page(load_parts(model or "ngsan-photos", data, index=index))
launch(page, host="0.0.0.0", port=7860, allowed_hosts=filter(None, [os.environ.get("SPACE_HOST")]))
threading.Event().wait()
