"""`hf-ngsan reproduce`: tables of tiny models, killed and resumed, compared by hand, and one sentence for mistakes."""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.metrics import CiderD
from hf_ngsan.metrics.comparison import compare, holm
from hf_ngsan.reproduction import find_table, make_plan, results
from tests.tables import each_row

from .running import fails, prints

SPEC = "scenes:size=16,validation=4,test=20,seed=5"
SMALL = [
    *("model.hidden_size=16", "model.num_attention_heads=2", "model.intermediate_size=32"),
    *("model.geometry_hidden_size=4", "training.epochs=1", "training.batch_size=8", "evaluation.every_epochs=2"),
]
TABLE_4 = ["reproduce", "ngsan", *SMALL, "--table", 4, "--data", SPEC, "--seeds", 2, "--processes", 2]
ROWS = ["SAN", "query-dependent"]


@pytest.fixture(scope="module")
def table(use_small_meteor, tmp_path_factory):
    """The folder of a table of two rows with two seeds, whose runs are made in this process."""

    def run_here(planned, device, running, modules):
        planned.folder.parent.mkdir(parents=True, exist_ok=True)
        assert [main(command) for command in planned.commands] == [0, 0]

    output = tmp_path_factory.mktemp("reproduce")
    command = [*TABLE_4[:-1], 1, "--output", output, "--only", *ROWS]
    with pytest.MonkeyPatch.context() as patch:
        use_small_meteor(patch)
        patch.setattr(results, "run_process", run_here)
        assert main(list(map(str, command))) == 0
    return output


def results_of(folder, table=4):
    return json.loads((folder / f"table-{table}.json").read_text())


def test_a_table_has_means_comparisons_and_the_papers_numbers(table):
    results, references = results_of(table), list(load_data(SPEC, "test")["captions"])
    scores = {}
    for row in ROWS:
        by_seed = []
        for seed in range(2):
            captions = json.loads((table / "runs" / f"{row.lower()}-{seed}.results").read_text())
            actual = CiderD().compute(
                predictions=[result["caption"] for result in captions], references=references, per_image=True
            )
            by_seed.append(100 * np.array(actual["per_image"]["cider_d"]))
        scores[row] = np.array(by_seed)
    by_hand = [compare((scores[row] - scores["SAN"]).mean(0)) for row in ROWS[1:]]
    for row, entry in zip(ROWS, results["rows"], strict=True):
        cider = entry["scores"]["cider_d"]
        assert entry["name"] == row and entry["seeds"] == [0, 1] and not entry["failed"]
        assert cider["mean"] == pytest.approx(scores[row].mean())
        assert cider["std"] == pytest.approx(scores[row].mean(1).std(ddof=1))
        assert cider["difference"] == pytest.approx(cider["mean"] - cider["paper"])
    corrected = holm([actual.p_value for actual in by_hand])
    for entry, expected, p_value in zip(results["rows"][1:], by_hand, corrected, strict=True):
        actual = entry["comparisons"]["cider_d"]
        assert actual["against"] == "SAN" and actual["p_holm"] == pytest.approx(p_value)
        assert actual["interval"] == pytest.approx(expected.interval)
        assert actual["difference"] == pytest.approx(expected.difference)
    assert results["rows"][1]["comparisons"]["cider_d"]["paper"] == pytest.approx(131.4 - 128.6)
    assert results["is_papers_data"] is False
    markdown = (table / "table-4.md").read_text()
    assert "other data" in markdown and all(f"| {row} | 2 |" in markdown for row in ROWS)
    assert {"symmetric", "cider_d"} <= {*results["rows"][0]["scores"]}


@pytest.mark.slow
def test_finished_runs_are_not_trained_again_and_kills_change_nothing(table, tmp_path, capsys):
    arguments = [*TABLE_4, "--output", tmp_path, "--seeds", 1, "--only", *ROWS]
    command = [sys.executable, "-m", "hf_ngsan.cli", *map(str, arguments)]
    for files in ("*/training_config.yaml", "*/history.jsonl"):  # in the first epoch, and after it
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(f"runs/{files}")):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, capture_output=True)
    for name in ("san-0.results", "query-dependent-0.results"):
        assert (tmp_path / "runs" / name).read_text() == (table / "runs" / name).read_text()
    for killed, full in zip(results_of(tmp_path)["rows"], results_of(table)["rows"], strict=True):
        values = [
            [row["scores"][name]["values"][0] for name in killed["scores"] if name != "meteor"]
            for row in (killed, full)  # the METEOR of the table is other: its data are small
        ]
        assert values[0] == values[1]
    times = {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/**/*") if file.is_file()}
    prints(capsys, *arguments)
    assert {file: file.stat().st_mtime_ns for file in times} == times


def test_a_run_that_fails_is_named_and_stops_no_other(table, tmp_path, capsys, monkeypatch):
    shutil.copytree(table, tmp_path / "table")
    for name in ("san-0", "san-1"):
        (tmp_path / "table" / "runs" / f"{name}.record.json").unlink()

    def run_here(planned, device, running, modules):
        return "no disk" if planned.seed else None

    monkeypatch.setattr(results, "run_process", run_here)
    assert main(list(map(str, [*TABLE_4, "--output", tmp_path / "table", "--only", *ROWS]))) == 1
    assert "SAN, seed 1, failed: no disk" in capsys.readouterr().out
    assert [row["seeds"] for row in results_of(tmp_path / "table")["rows"]] == [[0], [0, 1]]
    papers = results.as_markdown({**results_of(tmp_path / "table"), "is_papers_data": True})
    assert "other data" not in papers and "as in the paper" in papers


class Process:
    """A process that has ended."""

    def __init__(self, program, code, log, stdout, **settings):
        assert json.loads(program[-1])[0][0] == "train"
        stdout.write(log)
        self.code = code

    def wait(self):
        return self.code


@each_row(
    ("code", "log", "error"),
    [(0, "done\n", "None"), (2, "a\nhf-ngsan: error: no disk\n", "no disk"), (-9, "", "it ended with code -9")],
)
def test_the_error_of_a_run_is_the_last_line_of_its_log(code, log, error, tmp_path, monkeypatch):
    plan = make_plan(find_table("ngsan", "4"), output=tmp_path, data=SPEC, only=["SAN"], overrides=["data.limit=30"])
    assert "--limit" in plan.runs[0].commands[1]
    monkeypatch.setattr(results.subprocess, "Popen", partial(Process, code=code, log=log))
    assert str(results.run_process(plan.runs[0], 0, set(), [])).startswith(error)


def test_a_plan_is_made_without_training(tmp_path, capsys):
    printed = prints(capsys, *TABLE_4, "--output", tmp_path, "--dry-run", "--only", *ROWS)
    assert [line.split("\t")[0::2] for line in printed.splitlines()[2:]] == [[row, "2 pending runs"] for row in ROWS]
    assert not (tmp_path / "runs").exists()


def test_check_writes_the_table_and_trains_nothing(table, capsys):
    before = (table / "table-4.json").read_text()
    printed = prints(capsys, *TABLE_4, "--output", table, "--check", "--only", *ROWS)
    assert "| SAN | 2 |" in printed and (table / "table-4.json").read_text() == before
    full = prints(capsys, *TABLE_4, "--output", table, "--check")
    assert "| key-dependent | 0 |" in full


def test_runs_of_other_data_or_settings_are_refused(table, capsys):
    files = sorted(file for file in table.rglob("*") if file.is_file())
    other = [SPEC.replace("test=20", "test=21") if word == SPEC else word for word in TABLE_4]
    message = fails(capsys, *other, "--output", table, "--check", "--only", *ROWS)
    assert "data.spec" in message
    message = fails(capsys, *TABLE_4, "training.learning_rate=0.1", "model.dropout=0.3", "--output", table)
    assert "model.dropout" in message
    assert sorted(file for file in table.rglob("*") if file.is_file()) == files


def test_rows_that_were_evaluated_otherwise_do_not_mix(table, tmp_path, capsys):
    copied = tmp_path / "table"
    shutil.copytree(table, copied)
    command = [*TABLE_4, "--output", copied, "--check", "--only", "SAN"]
    prints(capsys, *command)
    record = copied / "runs" / "san-1.record.json"
    content = json.loads(record.read_text())
    content["evaluation"]["cider_d"] = "cider_d|beams:5"
    record.write_text(json.dumps(content))
    assert "evaluation settings (cider_d)" in fails(capsys, *command)


def test_mistakes_are_one_sentence_and_write_nothing(tmp_path, capsys):
    output = ["--output", tmp_path / "new"]
    assert "1 (numbers of layers)" in fails(capsys, "reproduce", "ngsan", "--table", 40, *output)
    assert "ngsan, rstnet" in fails(capsys, "reproduce", "san", "--table", 1, *output)
    assert "content-independent" in fails(capsys, *TABLE_4, *output, "--only", "content")
    few = ["reproduce", "ngsan", "--table", 4, "--data", "scenes:size=40,validation=4,test=10", *output]
    assert "10 rows" in fails(capsys, *few)
    assert "--seeds" in fails(capsys, *TABLE_4, "training.seed=3", *output)
    assert "distinguishes" in fails(capsys, *TABLE_4, "model.geometric_bias=[]", *output)
    assert "no finished run" in fails(capsys, *TABLE_4, *output, "--check")
    assert "not for vatex" in fails(
        capsys, "reproduce", "ngsan", "--table", 1, "--data", "vatex:DIR", "--scale", "small", *output
    )
    assert not (tmp_path / "new").exists()
