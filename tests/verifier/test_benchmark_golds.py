"""The verifier on public equality cases and benchmark answers (skipped without ../shared/data)."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.verifier.compare import load_cases, respelled
from d3s.verifier.equivalence import equivalent
from d3s.verifier.latex import UnreadableError
from d3s.verifier.symbolic import equal_formulas
from d3s.verifier.verifier import Verifier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CASES = DATA / "verifier_cases.jsonl"
LETTER = r"(?<![A-Za-z\\(])[a-z](?![A-Za-z])"
pytestmark = pytest.mark.skipif(not CASES.is_file(), reason=f"no test data at {DATA}")


@pytest.mark.parametrize(("kinds", "extraction"), [(("pair", "boxed"), "strict"), (("phrase", "free"), "lenient")])
def test_public_cases_have_no_false_positive(kinds: tuple[str, ...], extraction: str) -> None:
    cases = [case for case in load_cases(CASES) if case["kind"] in kinds]
    with Verifier(workers=2, extraction=extraction) as verifier:
        rewards = verifier.score([case["response"] for case in cases], [case["gold"] for case in cases])
    right = [case for case, reward in zip(cases, rewards) if (reward == 1.0) == case["equal"]]
    false_positives = [case for case, reward in zip(cases, rewards) if reward == 1.0 and not case["equal"]]
    assert false_positives == []
    assert len(right) >= 0.99 * len(cases)


def golds(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["answer"] for line in lines]


def test_every_gold_answer_equals_itself() -> None:
    with Verifier(workers=1) as verifier:
        for path in sorted((DATA / "benchmarks").glob("*.jsonl")):
            answers = golds(path)
            rewards = verifier.score([f"Thus $\\boxed{{{answer}}}$." for answer in answers], answers)
            assert [answer for answer, reward in zip(answers, rewards) if reward != 1.0] == [], path.name


@pytest.mark.parametrize("name", ["minerva_math", "olympiadbench"])
def test_respelled_formulas_differ_when_one_is_added(name: str) -> None:
    """Only a formula comparison can show that `1 * (gold) + 0` is the gold answer, and that `gold + 1` is not."""
    formulas = [g for g in golds(DATA / "benchmarks" / f"{name}.jsonl") if respelled(g) != g][::24]
    more = [f"({formula}) + 1" for formula in formulas]
    with Verifier(workers=2, timeout_s=30.0) as verifier:
        same = verifier.score([f"\\boxed{{{respelled(formula)}}}" for formula in formulas], formulas)
        other = verifier.score([f"\\boxed{{{formula}}}" for formula in more], formulas)
    assert [f for f, reward in zip(formulas, same) if not reward] == []
    assert [f for f, reward in zip(formulas, other) if reward] == []


REWRITINGS: list[Callable[[str], str]] = [
    lambda gold: gold.replace("(", r"\left( ").replace(")", r"\right) ") if r"\left" not in gold else gold,
    lambda gold: rf"\displaystyle {gold}.",
    lambda gold: f"{{{gold}}}",
    lambda gold: f"**${gold}$**",
    lambda gold: gold.replace("-", "−"),
    lambda gold: gold.replace("+", " + ").replace("=", " = ").replace(",", ", ") if "{," not in gold else gold,
]


def one_step_changes(gold: str, generator: random.Random) -> Iterator[str]:
    """Change one digit, and one letter of a formula."""
    for pattern, other in ((r"[0-9]", lambda m: str((int(m[0]) + 1) % 10 or 2)), (LETTER, lambda m: "w")):
        places = list(re.finditer(pattern, gold))
        if places and (pattern != LETTER or (len({m[0] for m in places}) > 1 and "text" not in gold)):
            match = generator.choice(places)
            yield gold[: match.start()] + other(match) + gold[match.end() :]


def in_process(gold: str, answer: str) -> bool:
    try:
        return bool(equivalent(gold, answer, equal_formulas))
    except UnreadableError:
        return False


def test_rewritten_golds_stay_equal_changed_ones_not() -> None:
    """A sample of distinct gold answers of every benchmark, rewritten with the same value, and changed in one step."""
    generator = random.Random(20)
    missed, accepted, count = [], [], 0
    for path in sorted((DATA / "benchmarks").glob("*.jsonl")):
        answers = sorted(set(golds(path)))
        for gold in generator.sample(answers, min(len(answers), 20)):
            rewritten = {rewrite(gold) for rewrite in generator.sample(REWRITINGS, 4)} - {gold}
            missed += [(gold, answer) for answer in rewritten if not in_process(gold, answer)]
            changed = set(one_step_changes(gold, generator))
            accepted += [(gold, answer) for answer in changed if in_process(gold, answer)]
            count += len(rewritten) + len(changed)
    assert (missed, accepted) == ([], [])
    assert count > 400
