"""A Space of a captioner. Its variables: MODEL, a name on the Hub; DATA, such as "scenes", for regions to drag about;
INDEX, a folder beside this file that `hf-ngsan index` made, for search."""

import os
import threading

from hf_ngsan.space import launch, load_parts, make_page

model, data, index = (os.environ.get(name) for name in ("MODEL", "DATA", "INDEX"))
page = make_page(load_parts(model or "ngsan-photos", data, index=index))
launch(page, host="0.0.0.0", port=7860, allowed_hosts=filter(None, [os.environ.get("SPACE_HOST")]))
threading.Event().wait()
