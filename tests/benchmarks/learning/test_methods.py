"""The compared configurations: valid, distinct, and with the settings that a comparison needs."""

from pathlib import Path

import yaml

from benchmarks.learning import methods
from benchmarks.learning.methods import BY_NAME, CLIPS, COMPARISONS, METHODS, SMALL_GROUP, STUDIES, sweep_settings
from tests.helpers.experiments import config_of, make_run

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def test_ablation_does_not_follow_the_default_configuration():
    """A new default in configs/tiny.yaml leaves the settings of finished runs as they were."""
    tiny, ablation = (yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()) for name in ("tiny", "ablation"))
    for section in ("rollout", "selector", "schedule", "loss", "optim"):
        assert set(tiny.get(section, ())) <= set(ablation.get(section, ())), section
    assert {"steps", "prompts_per_step"} <= set(ablation["train"])


def test_cells_are_valid_and_distinct(tmp_path):
    cells = [*METHODS, *(cell for study in STUDIES for cell, _ in study.cells)]
    folders = {cell.folder(tmp_path) for cell in cells}
    assert len(folders) == len({cell.name for cell in cells})


def test_comparisons_and_studies_name_methods():
    assert {name for study in STUDIES for _, name in study.cells} <= set(BY_NAME)
    assert {name for item in COMPARISONS for name in (item.method, item.reference)} <= set(BY_NAME)


def test_equal_time_steps_fill_the_seconds_of_grpo(tmp_path):
    """GRPO takes 2 steps of 40 s; a method of 4 s per step gets 20 steps, a method of 10 s gets 8."""
    names = [SMALL_GROUP, "PODS", "D1S-Cross", "D3S", "D3S, fixed"]
    rows = {"GRPO": [[make_run(tmp_path / "GRPO", [0.1, 0.5], 10, 40.0)]]}
    rows |= {name: [[make_run(tmp_path / name, [0.1, 0.5], 10, 4.0 if name == "D3S" else 10.0)]] for name in names}
    study = methods.equal_time(rows)
    steps = {name: config_of(cell).train.steps for cell, name in study.cells}
    assert steps == dict.fromkeys(names, 8) | {"GRPO": 48, "D3S": 20}


def test_gspo_methods_share_denominator_and_clips():
    gspo, d3s = (config_of(BY_NAME[name]) for name in ("GSPO", "D3S on GSPO"))
    assert gspo.loss == d3s.loss and gspo.optim == d3s.optim and d3s.schedule.n_final == 16
    for name in ("GSPO", "D3S on GSPO"):
        overrides = sweep_settings(BY_NAME[name], [1e-4, 2e-4]).values()
        losses = [config_of(BY_NAME[name].extended(*values)).loss for values in overrides]
        assert [(loss.epsilon, loss.epsilon_high) for loss in losses] == 2 * list(CLIPS)
    assert len(sweep_settings(BY_NAME["D3S"], [1e-4, 2e-4])) == 2
