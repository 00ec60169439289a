"""The pages and pictures of the results, written to a copy from artificial runs."""

import re

import pytest

from benchmarks.harness import ROOT
from research import card_tables, jobs, lengths, result_tables, results, teacher
from research.claims import CLAIMS, HEAVY, PAPER_SHAPE
from research.comparisons import Results
from research.jobs import Search, searched_row
from research.records import read
from research.results import (
    DRAWN,
    SHOWN_CLAIMS,
    SUMMARY,
    again_sentence,
    claims_section,
    drawn_rows,
    heavy_sentence,
    main,
    setting,
    summary_table,
)
from research.rows import AGAIN, ALL, BY_NAME, D3S_SHAPED, D3S_SMALL, GRPO_BEST, GRPO_SHAPED, SECOND_RATE
from research.speedups import speedup_table
from research.step_costs import Costs, read_costs
from research.step_shapes import SHAPES_DATA, shapes_section
from research.tests.experiments import cells_of, costs_of, make_record, planned_runs, without_base_models

LEVELS = {GRPO_BEST: 4, PAPER_SHAPE: 2, "D3S": 6, D3S_SMALL: 5, "GRPO, G = 8": 3, f"CPPO, N = 2 of 4, {SECOND_RATE}": 1}
LEVELS |= {GRPO_SHAPED: 4, D3S_SHAPED: 5}
LEVELS |= {AGAIN + name: LEVELS[name] for name in (GRPO_BEST, PAPER_SHAPE, GRPO_SHAPED, D3S_SHAPED)}


def costs() -> Costs:
    """A step of 128 responses takes one second, and twice that where zeros are computed."""
    large = {(GRPO_SHAPED, 0): 3.0, (D3S_SHAPED, 0): 1.5}
    twice = dict.fromkeys([(PAPER_SHAPE, 1), (GRPO_BEST, 1), ("GRPO, G = 8", 1)], 2.0)
    return costs_of(dict.fromkeys([(name, 0) for name in LEVELS], 1.0) | twice | large)


def all_runs():
    runs = [run for name, right in LEVELS.items() for run in planned_runs(BY_NAME[name], [right])]
    return [*runs, make_record([0, 60], [[1], [2]], part="sweep", row="D3S", revision="older", seed=1000)]


def test_setting_counts_runs_and_names_their_code(monkeypatch):
    monkeypatch.setattr(results, "ALL", [BY_NAME["D3S"], BY_NAME["D2S"]])  # 12 runs each
    start = f"{len(all_runs()) - 1} runs on test problems"
    end = "1 runs searched the settings. Code at revision, older, on cpu."
    assert setting(all_runs()) == f"{start} of 24 planned ones; intervals need two seeds. {end}"
    monkeypatch.setattr(results, "ALL", [BY_NAME[name] for name in LEVELS])
    assert setting(all_runs()) == f"{start}. {end}"


def test_heavy_sentence_has_both_tasks():
    """D3S has 4 of 8 right, on precedence one more; GRPO 2."""
    runs = [
        run for name, right in ((D3S_SMALL, 4), (GRPO_BEST, 2)) for run in planned_runs(BY_NAME[HEAVY + name], [right])
    ]
    for run in runs:
        run.right[1:] += "D3S" in run.row and "precedence" in run.base
    gaps = "precedence +37.5 (+37.5 to +37.5) points (the claim holds); countdown +25.0 (+25.0 to +25.0) points (the"
    assert gaps in heavy_sentence(Results(runs, Costs([])))
    few = [run for run in runs if run.seed % 10 < 1]  # a single seed on each base model
    assert "countdown +25.0 points (undecided)." in heavy_sentence(Results(few, Costs([])))
    assert heavy_sentence(Results(runs[:1], Costs([]))) == ""


def test_claims_on_new_seeds_are_shown_by_task():
    """D3S has 5 of 8 right, on precedence one more; GRPO 4. A step costs what it does on the first seeds."""
    levels = {AGAIN + D3S_SHAPED: 5, AGAIN + GRPO_SHAPED: 4, "D3S": 6}
    runs = [run for name, right in levels.items() for run in planned_runs(BY_NAME[name], [right])]
    for run in runs:
        run.right[1:] += run.row == AGAIN + D3S_SHAPED and "precedence" in run.base
    found = Results(runs, costs())
    lines = cells_of(result_tables.again_table(found))
    assert [cell.split()[0] for cell in lines[f"{D3S_SHAPED} over {GRPO_SHAPED}"][:3]] == ["+25.0", "+12.5", "+18.8"]
    assert lines[f"{GRPO_BEST} over {PAPER_SHAPE}"] == ["no runs"] * 4
    assert again_sentence(found).startswith("On new seeds D3S's best shape is +18.8 (")
    assert again_sentence(Results([], costs())) == ""


def test_summary_has_the_compared_rows():
    """Zeros computed: all tokens are trained; else half of them, as the records say."""
    lines = cells_of(summary_table(Results(all_runs(), costs())))
    assert list(lines) == [label for label, _ in SUMMARY.values()]
    assert lines["GRPO, G = 16, every rollout computed"] == ["25.0", "-25.0 ± 0.0", "100.0", "100"]
    assert lines["D3S, G = 4, best shape of a step"] == ["62.5", "+12.5 ± 0.0", "100.0", "50"]
    assert lines["GRPO, G = 4, best shape of a step"][1] == "–"


def test_summary_leaves_out_what_is_not_measured():
    """GRPO that computes zeros, without the seconds of that; all rows, without those of the best GRPO."""
    assert cells_of(summary_table(Results(all_runs(), Costs([])))) == {}
    once = costs_of(dict.fromkeys([(name, 0) for name in LEVELS], 1.0) | {(GRPO_SHAPED, 0): 3.0, (D3S_SHAPED, 0): 1.5})
    lines = cells_of(summary_table(Results(all_runs(), once)))
    assert "GRPO, G = 16, every rollout computed" not in lines and len(lines) == 3


def test_claims_section_has_the_first_claims():
    lines = cells_of(claims_section(Results(all_runs(), costs())))
    assert set(lines) == {claim.text for claim in CLAIMS[:SHOWN_CLAIMS]}
    verdicts = [cells[0] for cells in lines.values()]
    held = verdicts.count("yes")
    assert 0 < held < len(lines) and set(verdicts[-held:]) == {"yes"}  # the others come first
    assert lines["D3S beats the best GRPO"] == ["yes", "+25.0 (+25.0 to +25.0)", "0.0", "0.000"]
    assert {(claim.axis, claim.k) for claim in CLAIMS[:SHOWN_CLAIMS]} == {("seconds", 1)}  # as the page says


def test_drawn_rows_share_their_runs():
    """GRPO with groups of 8 has two seeds, so the third of the others is not drawn."""
    rows = drawn_rows(Results(all_runs(), costs()))
    assert list(rows) == [name for name in DRAWN if name in LEVELS] and "D3S" not in rows
    seeds = {name: {base: [run.seed for run in runs] for base, runs in row.items()} for name, row in rows.items()}
    expected = {base: [10 * i, 10 * i + 1] for i, base in enumerate(BY_NAME["D3S"].bases)}
    assert all(found == expected for found in seeds.values())


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A repository of pages with marks, and the artificial runs as its data."""
    without_base_models(monkeypatch)
    (tmp_path / "docs").mkdir()
    (tmp_path / "research").mkdir()
    marks = "before\n<!-- results -->\nOLD\n<!-- /results -->\nbetween\n"
    marks += "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("card", "card-search", "lengths"))
    marks += "<!-- marks -->\nOLD\n<!-- /marks -->\nafter\n"
    for name in ("README.md", "docs/results.md", "research/results-tables.md"):
        (tmp_path / name).write_text(marks)
    (tmp_path / "docs/beyond.md").write_text("<!-- teacher -->\n<!-- /teacher -->\n")
    monkeypatch.setattr(result_tables, "ALL", [BY_NAME["PODS"]])  # whose search is shown: every one takes time
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(results, "RESEARCH", tmp_path / "research")
    monkeypatch.setattr(results, "read", lambda path=None: [] if path else all_runs())
    monkeypatch.setattr(results, "read_costs", costs)
    return tmp_path


def test_pages_say_what_the_data_say():
    """The committed pages are those of the committed data: nobody has edited a figure, nor forgotten to write it."""
    records = read()
    found = Results(records, read_costs())
    tables = [
        result_tables.claims_table, result_tables.rows_table, result_tables.groups_table, result_tables.heavy_table,
        result_tables.added_table, result_tables.look_table, result_tables.controls_table, result_tables.again_table,
        speedup_table,
    ]  # fmt: skip
    expected = {
        "README.md": [
            card_tables.summary_table(card_tables.MEASURED),
            again_sentence(found) + heavy_sentence(found) + results.progress(records),
        ],
        "docs/results.md": [summary_table(found), claims_section(found), results.card_section()],
        "research/results-tables.md": [results.card_search(), lengths.table(), *(table(found) for table in tables)],
    }
    shapes = {record.identity: record for record in read(SHAPES_DATA)}
    expected["research/beyond-tables.md"] = [shapes_section(shapes)]
    for name, texts in expected.items():
        page = (ROOT / name).read_text()
        assert all(text in page for text in texts), f"{name} is not of docs/data: run `make results`"


def test_prose_intervals_are_those_of_the_tables():
    """Every interval that the text of the results page quotes by hand stands in a generated table."""
    text, _, rest = (ROOT / "docs/results.md").read_text().replace("−", "-").partition("<!-- results -->")
    text += rest.partition("<!-- /results -->")[2]
    before, _, rest = text.partition("<!-- card -->")
    card, _, after = rest.partition("<!-- /card -->")
    text, tables = before + after, card + (ROOT / "research/results-tables.md").read_text()
    quoted = re.findall(r"\([+-]?\d+\.\d+ to\s[+-]?\d+\.\d+", text)
    assert len(quoted) > 10
    assert [interval for interval in quoted if " ".join(interval.split()) not in tables] == []


def test_second_rate_is_the_other_one_of_two_close_ones(monkeypatch):
    """A control that repeats the chosen rate would say nothing."""
    monkeypatch.setattr(jobs, "ensure_base", lambda _: None)
    known = {record.identity: record for record in read()}
    controls = [row for row in ALL if row.name.endswith(SECOND_RATE)]
    assert len(controls) == 2
    for row in controls:
        search = Search(BY_NAME[row.name.removesuffix(f", {SECOND_RATE}")], known)
        rates = {search.chosen().rate, Search(searched_row(row), known).chosen().rate}
        assert len(rates) == 2 and set(search.close_rates()) == rates


def test_main_writes_between_the_marks(pages, monkeypatch):
    main()
    texts = {
        name: (pages / name).read_text() for name in ("README.md", "docs/results.md", "research/results-tables.md")
    }
    for name, text in texts.items():
        assert text.startswith("before\n<!-- results -->\n") and text.endswith("<!-- /marks -->\nafter\n")
        assert text.count("OLD") == (0 if "tables" in name else 1) and "between" in text
    assert card_tables.summary_table(card_tables.MEASURED) in texts["README.md"]
    assert summary_table(Results(all_runs(), costs())) in texts["docs/results.md"]
    assert claims_section(Results(all_runs(), costs())) in texts["docs/results.md"]
    assert teacher.table() in (pages / "docs/beyond.md").read_text()
    tables = texts["research/results-tables.md"]
    assert "| D3S over GRPO, G = 4 | equal seconds, Pass@1 | 12 | +25.0 (+25.0 to +25.0) |" in tables
    assert "| step of plain GRPO | update, % | source |" in tables.partition("<!-- marks -->")[2]
    assert setting(all_runs()) in tables and results.progress(all_runs()) in texts["docs/results.md"]
    for picture in ("results.png", "update-share.png", "card.png"):
        assert (pages / "docs" / picture).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(results, "draw", lambda *_: None)
    monkeypatch.setattr(results.update_share, "draw", lambda *_: None)
    main()
    assert {name: (pages / name).read_text() for name in texts} == texts  # equal data, equal pages
