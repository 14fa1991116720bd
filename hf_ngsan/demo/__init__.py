"""The demo: a page of what the packaged models say, and, with `--train`, models of synthetic scenes trained anew."""
