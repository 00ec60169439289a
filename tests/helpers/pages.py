"""The Markdown pages of the repository, and the metrics that they document."""

import re
from pathlib import Path

from tests.helpers.warm_python import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
METRICS = ROOT / "docs/metrics.md"
CONDITIONAL_METRICS = {
    "policy/kl_ref", "mismatch/tokens_capped", "mismatch/tokens_masked", "mismatch/rollouts_masked", "loss/NAME",
    "prompts/seen", "prompts/visits_max", "prompts/expected_mixed", "rewards/NAME", "reward/decided", "reward/timeouts",
    "reward/crashes", "reward/out_of_memory", "reward/refused", "reward/no_answer", "reward/parse_failures",
    "reward/failures", "advantage/tokens_changed", "throughput/mfu", "strategy/branches", "strategy/pruned",
    "strategy/forced", "strategy/carried", "strategy/stale", "strategy/age", "strategy/differing", "schedule/progress",
    "selection/cross_share", "control/deviation", "control/change",
}  # fmt: skip


def section(page: Path, heading: str) -> str:
    """The text of a page between a heading of the second level and the next one."""
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def tables(text: str) -> list[list[str]]:
    """The tables of a page or section, each as its lines."""
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.M)]


def documented_metrics() -> set[str]:
    """The metrics in the table of METRICS; `a/b`, `c` is short for a/b and a/c, and `a/b`, `_c` for a/b and a/b_c."""
    keys = set()
    for cell in re.findall(r"^\| (`.*?) \|", section(METRICS, "Metrics"), re.M):
        first, *more = re.findall(r"`([^`]+)`", cell)
        group, slash, _ = first.partition("/")
        short = {first + key if key[0] == "_" else key if "/" in key else group + slash + key for key in more}
        keys |= {first} | (short if slash else set(more))
    return keys
