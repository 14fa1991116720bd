"""Settings of the whole test run: no network, and one order of work whatever the machine."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SUITE_MARKERS = ("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test")


def pytest_configure(config):
    for marker in SUITE_MARKERS:
        config.addinivalue_line("markers", f"{marker}: set by transformers' common tests")
