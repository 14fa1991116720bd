"""The papers' tables as data: every row trains the model that it names, at the paper's scale and on other data."""

from pathlib import Path

import pytest
import yaml

from hf_ngsan.reproduction import PAPERS, UnknownTableError, find_table, make_plan
from hf_ngsan.tasks import load_training_config
from tests.tables import each_row

TABLES = [(paper, number) for paper, file in PAPERS.items() for number in yaml.safe_load(file.read_text())["tables"]]


@each_row(("paper", "number"), TABLES)
def test_rows_are_training_configs_that_differ(paper, number):
    table = find_table(paper, number)
    assert {*table.baselines.values()} <= {*table.rows} and len(table.rows) >= 2
    for name, numbers in table.rows.items():
        assert bool(numbers) != table.runs[name].ours or number == "5", name
    for reader in [None, *table.small]:
        configs = []
        for name in table.rows:
            run = table.runs[name]
            if reader is None:
                changes = f"{table.paper_settings} {run.paper_changes}"
                config = run.config
            else:
                changes = f"{table.small[reader]['settings']} {run.changes}"
                config = run.small.get(reader, table.small[reader]["config"])
            training_config = load_training_config(config, changes.split())
            sections = training_config.to_dict()
            del sections["training"]["output_dir"]
            configs.append(sections)
        assert all(item not in configs[:place] for place, item in enumerate(configs)), reader


@each_row("number", ["1", "2", "3", "4", "6"])
def test_the_changes_of_other_data_are_those_of_the_papers_configs(number):
    """Each row of NG-SAN has the same fields of the architecture at both scales."""
    table = find_table("ngsan", number)
    fields = ("query_norm", "key_norm", "norm_affine", "geometric_bias", "absolute_geometry", "geometry_features")
    for name in table.rows:
        run = table.runs[name]
        paper = load_training_config(run.config, run.paper_changes.split()).model
        small = load_training_config("ngsan/coco_layout", run.changes.split()).model
        defaults = {"key_norm": None, "norm_affine": False, "absolute_geometry": False}
        values = [[model.get(field, defaults.get(field)) for field in fields] for model in (paper, small)]
        assert values[0] == values[1], name
        if number == "1":
            assert paper["num_hidden_layers"] == small["num_hidden_layers"], name


def test_numbers_of_the_papers():
    """Some values were copied by hand from the papers."""
    assert find_table("ngsan", "1").rows["N-SAN, L = 6"]["cider_d"] == 131.1
    assert find_table("ngsan", "4").rows["query-dependent"] == {
        **{"cider_d": 131.4, "bleu_4": 39.3, "rouge_l": 59.0, "meteor": 29.2, "spice": 23.0},
    }
    assert find_table("rstnet", "2").rows["both"]["cider_d"] == 135.6
    assert find_table("mhsan", "5").rows["no diversity"] == {"image_to_text_r1": 72.3, "text_to_image_r1": 58.4}
    assert find_table("spatial_captioner", "1").rows["proposed"]["bleu_4"] == 22.6


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(UnknownTableError, match="ngsan, rstnet"):
        find_table("transformer", "1")
    with pytest.raises(UnknownTableError, match=r"4 \(variants of geometry"):
        find_table("ngsan", "12")
    with pytest.raises(UnknownTableError, match="content-independent; key-dependent"):
        make_plan(find_table("ngsan", "4"), output=Path(), only=["SAN", "content"])
