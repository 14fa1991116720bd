import subprocess
import sys

import pytest

import hf_ngsan.metrics


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys; import hf_ngsan.ground.lazy; before = set(sys.modules)\n"
        "import hf_ngsan.metrics, hf_ngsan.commands.score\n"
        "from hf_ngsan.metrics import PTBTokenizer\n"
        "heavy = {'torch', 'datasets', 'evaluate', 'pandas', 'pyarrow'} & (set(sys.modules) - before)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    for name in hf_ngsan.metrics.__all__:
        assert getattr(hf_ngsan.metrics, name) is vars(hf_ngsan.metrics)[name] is not None
    assert {"__doc__", *hf_ngsan.metrics.__all__} <= set(dir(hf_ngsan.metrics))


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="Bleurt"):
        _ = hf_ngsan.metrics.Bleurt
