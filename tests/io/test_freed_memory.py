"""What becomes of memory that tensors on the CPU have freed."""

import os
import platform
import subprocess
import sys

import pytest

from hf_ngsan.io.freed_memory import SETTINGS

PAGES_OF_TENSOR = 6_000
"""Of 25 MB, at 4 KiB a page."""

PROGRAM = """
import resource, sys
import torch
from hf_ngsan.io.freed_memory import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(6_250_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
pages = [new_pages() for _ in range(20)]
print(sorted(pages)[len(pages) // 2])
"""


def median_of_new_pages(**environment: str) -> int:
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide this themselves")
def test_tensors_reuse_freed_memory_unless_the_user_has_decided_otherwise() -> None:
    assert median_of_new_pages() < PAGES_OF_TENSOR / 100
    assert median_of_new_pages(MALLOC_MMAP_THRESHOLD_="131072") > PAGES_OF_TENSOR


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide this themselves")
def test_kept_memory_is_given_back() -> None:
    program = """
import psutil, torch
from hf_ngsan.io.freed_memory import give_back_freed_memory, keep_freed_memory

keep_freed_memory()
memory = lambda: psutil.Process().memory_info().rss
before = memory()
torch.ones(50_000_000)
kept = memory()
give_back_freed_memory()
print(kept - before, memory() - before)
"""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    run = subprocess.run([sys.executable, "-c", program], env=inherited, capture_output=True, text=True, check=True)
    kept, left = map(int, run.stdout.split())
    assert kept > 150e6 and left < 50e6
