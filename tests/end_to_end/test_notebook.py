"""Test the notebook: what is stored is what its source gives, and its cells run in order, with a shorter training."""

import json
import sys

import pytest

from d3s.common import read_json_lines
from dev.notebook import SOURCE, cells, notebook


def test_stored_notebook_is_that_of_its_source():
    stored = SOURCE.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert stored == notebook(SOURCE.read_text(encoding="utf-8"))
    found = json.loads(stored)["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in found] == cells(SOURCE.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in found)


@pytest.mark.slow
def test_cells_run(base_model, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(SOURCE.parent)
    names: dict = {}
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    for kind, text in cells(SOURCE.read_text(encoding="utf-8")):
        if kind == "code":
            exec(text.replace('"train.steps=40"', f'"train.steps=2", "model.name={base_model}"'), names)
    assert int(names["kept"].sum()) == 64 and 0 < int(names["batch"].selected.sum()) < 0.25 * len(names["priorities"])
    assert names["advantages"][names["kept"]].var() > names["advantages"].var()
    assert plt.imread(names["picture"]).shape[1] == 1376
    assert len(read_json_lines(names["folder"] / "metrics.jsonl")) == 2
    assert "tokens trained, priority ≥" in capsys.readouterr().out
