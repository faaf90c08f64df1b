"""Tables are means over the networks that learn in context, with the spread of a retest."""

import re

import numpy as np
import pytest

from experiments.dai import tables
from experiments.dai.controls import NUMBERS, SIMILARITIES
from icl_lab.lab import records
from icl_lab.lab.record import Record

ACCURACIES = ("zero_shot", "in_context", "finetuned", "finetuned_free", "chance", "ceiling")


@pytest.fixture
def arrays():
    """Two networks, six tasks, two rows, three layers; the second network does not learn in context."""
    found = {name: np.full((2, 6), 0.5) for name in ACCURACIES}
    found["in_context"] = np.array([[0.9] * 6, [0.5] * 6])
    found |= {name: np.zeros((2, 6, 2, 3)) for name in SIMILARITIES} | {name: np.zeros((2, 6, 2)) for name in NUMBERS}
    found["sim_aou"] = found["sim_aou"] + np.array([[[[0.1, 0.2, 0.3]]], [[[9, 9, 9]]]])
    found["sim_am_after"] = found["sim_am_after"] + np.array([1.0, 0.2, 0.4])
    found["recall"][0, :, 1] = [0.1, 0.3, np.nan, np.nan, np.nan, np.nan]
    retest = {name: np.zeros((2, 6, 2, 2)) for name in (*SIMILARITIES, *NUMBERS)}
    retest["sim_aou"][0, :, 0] = 0.1  # the first half, of both rows
    return {"rotary": found | {"retest": retest}}


def test_rows_are_means_over_networks_that_learn_in_context_with_a_retest(arrays):
    table = tables.by_row(["finetuning", "local"], arrays)["rotary"]
    assert table["finetuning"]["sim_aou"] == {"mean": 0.2, "retest": 0.05}
    assert table["finetuning"]["sim_am_after"] == {"mean": 0.3, "retest": 0}  # without the first layer
    assert table["local"]["recall"]["mean"] == 0.2  # of the tasks where it is defined


def test_tasks_have_chance_and_the_bayes_answer_and_can_be_printed(arrays):
    tasks = [f"task{t}" for t in range(6)]
    by_task = tables.by_task(tasks, arrays)
    assert by_task["rotary"]["task1"]["in_context"] == 0.9
    assert by_task["rotary"]["task1"]["ceiling"] == 0.5
    assert by_task["rotary"]["task1"]["sim_aou"] == 0.2
    lines = tables.lines({"tasks": tasks, "by_task": by_task})
    assert len(lines) == 1 + len(tables.BY_TASK)
    assert lines[0] == ["networks", "metric", *tasks, "mean"]
    assert ["rotary", "sim_aou", *["0.200"] * 7] in lines
    assert tables.markdown(lines).splitlines()[1] == "| " + " | ".join(["---"] * 9) + " |"


def test_without_a_network_that_learns_in_context_a_table_is_empty(arrays):
    arrays["rotary"]["in_context"][:] = 0.5
    table = tables.by_task(["a", "b", "c", "d", "e", "f"], arrays)["rotary"]
    assert table["a"]["sim_aou"] is None
    assert tables.by_row(["finetuning", "local"], arrays)["rotary"]["local"]["recall"] == {"mean": None, "retest": None}


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert tables.main([str(tmp_path)]) == 2
    assert "record.json" in capsys.readouterr().err
    assert tables.main([]) == 2
    assert tables.main([str(tmp_path), "another"]) == 2
    assert "unexpected argument 'another'" in capsys.readouterr().err


def test_a_flag_is_no_folder(tmp_path, capsys, arrays):
    """Help is printed, an unknown flag is named, and --csv may stand on either side of the folder."""
    assert tables.main(["--help"]) == 0
    assert {"--csv", "--run"} <= set(re.findall(r"--\w+", capsys.readouterr().out))
    assert tables.main([str(tmp_path), "--commas"]) == 2
    assert "commas" in capsys.readouterr().err
    tasks = [f"task{t}" for t in range(6)]
    metrics = {"tasks": tasks, "by_task": tables.by_task(tasks, arrays)}
    records.save(Record("dai.implicit_finetuning", "own", {}, metrics, {}, {}), tmp_path, claims=[])
    for words in (["--csv", str(tmp_path)], [str(tmp_path), "--csv"]):
        assert tables.main(words) == 0
        assert capsys.readouterr().out.startswith("networks,metric,task0,")
