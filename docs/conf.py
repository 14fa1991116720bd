"""Settings of the site: `make docs` builds it from the pages of this folder and from the package itself."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from reference import as_restructured_text, copy_repository_pages, link_within_the_site, write_reference

import hf_ngsan

project, author, release = "hf-ngsan", "the developers of hf-ngsan", hf_ngsan.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc, exclude_patterns = "index", ["README.md", "_build"]
html_theme, html_title = "furo", "hf-ngsan"
copyright = "the developers of hf-ngsan. Code: Apache-2.0. Models of photographs: non-commercial use"  # the footer
html_static_path, html_js_files, html_css_files = ["_static"], ["search.js"], ["code.css"]
suppress_warnings = ["misc.highlighting_failure"]  # of CSV

myst_enable_extensions, myst_heading_anchors = ["dollarmath"], 4
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of transformers are in its own documentation
napoleon_use_ivar = True
napoleon_custom_sections = [("Call arguments", "params_style"), ("Class attributes", "params_style")]
copybutton_prompt_text = ">>> "


def write_pages(app: Any) -> None:
    write_reference(Path(app.srcdir, "reference"))
    copy_repository_pages(Path(app.srcdir, "repository"))


def setup(app: Any) -> None:
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_within_the_site)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon
