"""Tables of rows on artificial runs with known differences."""

from dataclasses import replace

import numpy as np
import pytest

from d3s.evaluation.intervals import Estimate
from research import result_tables
from research.claims import CLAIMS, HEAVY, PAPER_SHAPE
from research.comparisons import Results
from research.jobs import CLIPS, RATES, Search, Setting
from research.result_tables import CONTROLLED, LATER
from research.rows import BY_NAME, D3S_FIXED, D3S_SMALL, GRPO_BEST, HEAVY_ROWS, ROWS, SECOND_RATE
from research.statistics import p_value, subtract
from research.step_costs import Costs
from research.tests.experiments import cells_of, costs_of, make_record, planned_runs, without_base_models

LEVELS = {GRPO_BEST: [4], PAPER_SHAPE: [2], "D3S": [6], "PODS": [8]}  # right of 8 by seed, at every evaluation
NONE = Costs([])


def results_of(levels: dict[str, list[int]], costs: Costs = NONE) -> Results:
    return Results([run for name, right in levels.items() for run in planned_runs(BY_NAME[name], right)], costs)


# --- claims ----------------------------------------------------------------------------------------------------------


def test_verdicts_are_adjusted_for_all_claims():
    """Seeds 0, 1 and 4 of 8 above: alone below 5 %, but not as the first of seven claims."""
    (claim,) = [c for c in CLAIMS if (c.row, c.reference) == ("D2S", "D1S-Cross")]
    pair = {"D2S": [4, 5, 8], "D1S-Cross": [4]}
    alone = {verdict.claim: verdict for verdict in result_tables.verdicts(results_of(pair))}
    p = alone[claim].p
    assert 0.01 < p == p_value(subtract(*alone[claim].scores)) < 0.05 and alone[claim].holds == "yes"
    assert [v.holds for c, v in alone.items() if c != claim] == ["no runs"] * (len(CLAIMS) - 1)
    parts = ("random rollouts", "random tokens", "tokens by H alone", "tokens of each rollout")
    equal = ["D3S", D3S_FIXED, *(f"D3S, {part}" for part in parts)]
    company = pair | {name: [7] for name in equal}
    among = {verdict.claim: verdict for verdict in result_tables.verdicts(results_of(company))}
    assert sum(v.scores is not None for v in among.values()) == 7  # D3S against D2S is one of them
    assert (among[claim].p, among[claim].holds) == (pytest.approx(7 * p), "undecided")


@pytest.mark.parametrize("values, p, expected", [(0.1, 0.04, "yes"), (-0.1, 0.04, "no"), (0.1, 0.06, "undecided")])
def test_answer_has_the_sign_of_the_difference(values, p, expected):
    assert result_tables.answer(Estimate(values), p) == expected
    assert result_tables.answer(Estimate(values), float("nan")) == "undecided"  # a single run


def test_claims_table_has_known_differences():
    lines = cells_of(result_tables.claims_table(results_of(LEVELS)))
    assert lines["GRPO with groups of 4 beats GRPO with groups of 16"] == [
        "GRPO, G = 4 over GRPO, G = 16",
        "equal seconds, Pass@1",
        "12",
        "+25.0 (+25.0 to +25.0)",
        "0.000",
        "100",
        "0.0",
        "yes",
    ]
    assert lines["D3S beats PODS"][2:4] == ["12", "-25.0 (-25.0 to -25.0)"] and lines["D3S beats PODS"][-1] == "no"
    zeros = lines["D3S beats GRPO of its shape"]
    assert zeros[0].endswith("GRPO, G = 16, its zeros computed") and zeros[2:] == ["–"] * 5 + ["not timed"]
    assert lines["D3S beats GRPO of its shape in as many steps"][1:4] == [
        "equal steps, Pass@1",
        "12",
        "+50.0 (+50.0 to +50.0)",
    ]
    # 6 and 2 of 8 right: Pass@8 is 1 for both
    pass_at_8 = lines["D3S has more Pass@8 than GRPO of its shape in as many steps"]
    assert pass_at_8[1:4] == ["equal steps, Pass@8", "12", "+0.0 (+0.0 to +0.0)"]
    assert lines["Tokens by \\|A\\| x H beat random tokens"][-1] == "no runs"
    assert len(lines) == len(CLAIMS)


def test_claim_with_zeros_computed_uses_their_cost():
    """The reference has 0 to 5 of 8 right at steps 0 to 60; D3S's seconds are 30 of its steps with zeros computed."""
    costs = costs_of({("D3S", 0): 1.0, (PAPER_SHAPE, 0): 1.0, (PAPER_SHAPE, 1): 2.0})
    right = np.repeat(np.arange(6)[:, None], 2, 1)
    reference = [replace(run, right=right) for run in planned_runs(BY_NAME[PAPER_SHAPE], [0])]
    results = Results([*reference, *planned_runs(BY_NAME["D3S"], [6])], costs)
    lines = cells_of(result_tables.claims_table(results))
    assert lines["D3S beats GRPO of its shape"][3].startswith("+43.8 ")  # 6/8 - 2.5/8 at 30 steps
    assert lines["D3S beats GRPO of its shape in as many steps"][3].startswith("+12.5 ")  # 6/8 - 5/8 at 60 steps


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_table_has_differences_to_both_references():
    lines = cells_of(result_tables.rows_table(results_of(LEVELS)))
    assert lines[GRPO_BEST] == ["60", "50.0 (50.0 to 50.0)", "100.0 (100.0 to 100.0)", "–", "+25.0 (+25.0 to +25.0)"]
    assert lines["PODS"][3:] == ["+50.0 (+50.0 to +50.0)", "+75.0 (+75.0 to +75.0)"]
    assert lines[PAPER_SHAPE][3:] == ["-25.0 (-25.0 to -25.0)", "–"]
    assert list(lines) == [row.name for row in ROWS if row.name in LEVELS]  # others have no runs


def test_tables_say_why_there_is_no_score():
    """A row that ends at 50 of 60 steps' seconds, a schedule of other seconds, and no runs of the reference."""
    results = results_of({"D3S": [6], GRPO_BEST: [4]})
    fast = [replace(run, seconds=run.steps * 1.0) for run in planned_runs(BY_NAME["PODS"], [8])]
    other = [replace(run, seconds=run.steps * 3.0) for run in planned_runs(BY_NAME["D3S-I"], [8])]
    results = Results([*results.all_runs("D3S"), *results.all_runs(GRPO_BEST), *fast, *other], NONE)
    lines = cells_of(result_tables.rows_table(results))
    assert lines["PODS"] == ["84 (ends at 70% of the seconds)", *["–"] * 4]
    assert lines["D3S-I"] == ["40 (+50% seconds)", *["–"] * 4]
    assert list(cells_of(result_tables.bases_table(results))) == [GRPO_BEST, "D3S"]
    assert lines["D3S"][4] == "no runs"
    at_steps = cells_of(result_tables.axes_table(results))
    assert at_steps["PODS"] == ["+50.0 (+50.0 to +50.0)"] * 2 + ["no runs"] * 2


def test_axes_table_has_both_axes():
    """PODS samples twice the tokens: at those of D3S it has made 30 steps."""
    runs = [replace(run, generated=2 * run.generated) for run in planned_runs(BY_NAME["PODS"], [0])]
    steps = runs[0].steps
    runs = [replace(run, right=np.repeat((steps // 12)[:, None], 2, 1)) for run in runs]
    lines = cells_of(
        result_tables.axes_table(Results([*runs, *results_of(LEVELS | {"PODS": [0]}).all_runs("D3S")], NONE))
    )
    assert lines["PODS"] == ["no runs"] * 4
    others = [run for name in ("D3S", GRPO_BEST) for run in planned_runs(BY_NAME[name], [4])]
    lines = cells_of(result_tables.axes_table(Results([*runs, *others], NONE)))
    assert [cell.split()[0] for cell in lines["PODS"][:2]] == ["+12.5", "-18.8"]  # 5/8 and 2.5/8 over 4/8


def test_groups_table_has_both_costs():
    """2 seconds a step without zeros and 4 with them, against 60 seconds of D3S."""
    costs = costs_of({("D3S", 0): 1.0, (GRPO_BEST, 0): 2.0, (GRPO_BEST, 1): 4.0})
    runs = planned_runs(BY_NAME[GRPO_BEST], [0])
    runs = [replace(run, right=np.repeat(np.arange(7)[:, None], 2, 1)) for run in runs]
    lines = cells_of(result_tables.groups_table(Results([*runs, *planned_runs(BY_NAME["D3S"], [4])], costs)))
    assert lines == {
        "GRPO, G = 4, A = 0 left out": ["30", "31.2 (31.2 to 31.2)", "100.0 (100.0 to 100.0)"],
        "GRPO, G = 4, every rollout computed": ["15", "15.6 (15.6 to 15.6)", "100.0 (100.0 to 100.0)"],
    }


def test_bases_table_keeps_bases_apart():
    runs = [replace(run, right=run.right + run.base.endswith("@1")) for run in planned_runs(BY_NAME["D3S"], [4])]
    table = result_tables.bases_table(Results([*runs, *planned_runs(BY_NAME[GRPO_BEST], [1])[:1]], NONE))
    assert table.splitlines()[0] == "|  | tiny:countdown | tiny:countdown@1 | tiny:precedence | tiny:precedence@1 |"
    lines = cells_of(table)
    assert [cell.split()[0] for cell in lines["D3S"]] == ["50.0", "62.5", "50.0", "62.5"]
    assert lines[GRPO_BEST] == ["–", "–", "12.5", "–"]


def test_heavy_table_is_by_task():
    right = {row.name: i + 2 for i, row in enumerate(HEAVY_ROWS)}
    runs = [run for row in HEAVY_ROWS for run in planned_runs(row, [right[row.name]])]
    for run in runs:
        run.right[1:] += "NAT" in run.row and "count" in run.base
    lines = cells_of(result_tables.heavy_table(Results(runs, NONE)))
    assert all(HEAVY not in name for name in lines) and len(lines) == len(HEAVY_ROWS)
    assert lines[GRPO_BEST][4] == lines[GRPO_BEST][7] == "–"
    assert lines[GRPO_BEST][0] == "20"
    nat = [cell.split()[0] for cell in lines["NAT, K = 20 %"]]
    assert nat[:3] == ["3", "28", "62.5"] and nat[4:6] == ["+37.5", "75.0"] and nat[7] == "+50.0"
    assert "all rollouts, K = 20 % by \\|A\\| x H" in lines


def test_added_table_keeps_the_runs_apart_that_were_seen_first():
    """GRPO has 1 of 8 right; D3S 1 more in the first five seeds, 2 in the others, 3 on the second base model."""
    grpo, d3s = (planned_runs(BY_NAME[HEAVY + name], [1]) for name in (GRPO_BEST, D3S_SMALL))
    d3s = [run for run in d3s if run.base != "tiny:countdown@1+32k"]
    for run in d3s:
        run.right[1:] += 3 if "@1" in run.base else 1 if run.seed % 10 < 5 else 2
    lines = cells_of(result_tables.added_table(Results([*grpo, *d3s], NONE)))
    values = [[cell.split()[0] for cell in cells] for cells in lines.values()]
    assert values == [["+12.5", "+12.5"], ["+25.0", "+25.0"], ["+37.5", "–"], ["+31.2", "+25.0"]]
    assert cells_of(result_tables.added_table(Results(grpo, NONE))) == {name: ["–", "–"] for name in lines}


def test_look_table_has_the_verdicts_before_runs_were_added():
    """GRPO with groups of 4 is 1 and 2 of 8 above in its known seeds; the third, added later, makes it equal."""
    runs = [*planned_runs(BY_NAME[GRPO_BEST], [3, 4, 3]), *planned_runs(BY_NAME[PAPER_SHAPE], [2])]
    runs += planned_runs(BY_NAME["D3S"], [6])
    runs = [replace(run, revision=LATER[0] if run.seed % 10 == 2 else "first") for run in runs]
    lines = cells_of(result_tables.look_table(Results(runs, NONE)))
    text = "GRPO with groups of 4 beats GRPO with groups of 16"
    before, after = lines[text]
    assert before.startswith("yes: +18.8 ") and ", 8 runs, p " in before
    assert after.startswith("yes: +16.7 ") and ", 12 runs, p " in after
    first = [run for run in runs if run.revision == "first" or run.row != GRPO_BEST]
    assert cells_of(result_tables.look_table(Results(first, NONE)))[text][0] == before
    late = [replace(run, revision=LATER[1]) for run in runs]
    assert cells_of(result_tables.look_table(Results(late, NONE)))[text][0] == "no runs"


def test_controls_table_compares_with_both_rates():
    """D3S has 4 of 8 right and CPPO 3, at the other rate 2, on precedence 1 more."""
    names = {D3S_SMALL: 4, CONTROLLED[0][1]: 3, f"{CONTROLLED[0][1]}, {SECOND_RATE}": 2, "D3S": 4}
    runs = [run for name, right in names.items() for run in planned_runs(BY_NAME[name], [right])]
    for run in runs:
        run.right[1:] += run.row.endswith(SECOND_RATE) and "precedence" in run.base
    chosen, other, *heavy = cells_of(result_tables.controls_table(Results(runs, NONE))).values()
    assert [cell.split()[0] for cell in chosen] == ["+12.5"] * 3
    assert [cell.split()[0] for cell in other] == ["+12.5", "+25.0", "+18.8"]
    assert heavy == [["no runs"] * 3] * 2


# --- what rows trained on --------------------------------------------------------------------------------------------


def test_mean_of_weighs_steps():
    """Intervals of 10 and 30 steps; a run that never logged a value does not count."""
    run = make_record([0, 10, 40], [[0], [0], [0]])
    run.logged["entropy"][:] = 1, 5
    silent = make_record([0, 10, 40], [[0], [0], [0]])
    silent.logged["entropy"][:] = np.nan
    assert result_tables.mean_of([run], "entropy") == 4
    assert result_tables.mean_of([run, silent], "entropy") == 4


def test_training_table_has_means_of_runs():
    runs = planned_runs(BY_NAME["PODS"], [4])
    for i, run in enumerate(runs):
        run.logged["clipped"][:], run.logged["zero_std_groups"][:] = 0.002 * (i % 2), 0.25
        run.kl_to_base[-1] = 0.5
    runs = [replace(run, norm_follows_variance=0.75 if i else float("nan")) for i, run in enumerate(runs)]
    (cells,) = cells_of(result_tables.training_table(Results(runs, NONE), ["PODS"])).values()
    assert cells[:4] == ["50.0", "100", "25", "0.1"]
    assert cells[7:] == ["0.75 (0.75 to 0.75)", "0.500 (0.500 to 0.500)"]


def test_sweep_table_marks_what_is_chosen(monkeypatch):
    without_base_models(monkeypatch)
    monkeypatch.setattr(result_tables, "ALL", [BY_NAME[name] for name in ("PODS", "GSPO", "schedule: linear")])
    known = {}
    scores = {Setting(RATES[1], clip): right for clip, right in zip(CLIPS, (3, 4, 2))}
    scores |= {Setting(RATES[0], CLIPS[1]): 5, Setting(RATES[2], CLIPS[1]): 1, Setting(RATES[0] / 2, CLIPS[1]): 2}
    for setting, right in scores.items():
        for job in Search(BY_NAME["GSPO"], {}).jobs(setting):
            known[job.identity()] = make_record([0, 60], [[0], [right]], logged={"clipped": np.zeros(1)})
    clips, rates = cells_of(result_tables.sweep_table(known))["GSPO"]
    assert clips == "0.01: 37.5, **0.03: 50.0**, 0.09: 25.0"
    assert rates == "2.5e-05: 25.0, **5e-05: 62.5**, 0.0001: 50.0, 0.0002: 12.5"
    assert list(cells_of(result_tables.sweep_table(known))) == ["GSPO"]


def test_names_with_bars_are_escaped():
    assert result_tables.escaped("|A| x H") == "\\|A\\| x H"
