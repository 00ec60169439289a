"""The verifier on public equality cases and benchmark answers (skipped without ../shared/data)."""

import random
import re
from collections.abc import Callable, Iterator

import pytest

from benchmarks.verifier.compare import DATA, benchmark_golds, load_cases, respelled
from d3s.verifier.verifier import Verifier

CASES = DATA / "verifier_cases.jsonl"
BENCHMARKS = sorted(path.stem for path in (DATA / "benchmarks").glob("*.jsonl"))
LETTER = r"(?<![A-Za-z\\(])[a-z](?![A-Za-z])"
pytestmark = pytest.mark.skipif(not CASES.is_file(), reason=f"no test data at {DATA}")


@pytest.mark.parametrize(("kinds", "extraction"), [(("pair", "boxed"), "strict"), (("phrase", "free"), "lenient")])
def test_public_cases_have_no_false_positive(kinds: tuple[str, ...], extraction: str) -> None:
    cases = [case for case in load_cases(CASES) if case["kind"] in kinds]
    with Verifier(workers=2, extraction=extraction) as verifier:
        rewards = verifier.score([case["response"] for case in cases], [case["gold"] for case in cases])
    wrong = [case for case, reward in zip(cases, rewards) if (reward == 1.0) != case["equal"]]
    assert [case for case in wrong if not case["equal"]] == [] and len(wrong) <= 0.01 * len(cases)


def wrong_scores(verifier: Verifier, pairs: list[tuple[str, str]], score: float) -> list[tuple[str, str]]:
    """The pairs of gold answer and answer that do not get this score."""
    scores = verifier.score([f"Thus $\\boxed{{{answer}}}$." for _, answer in pairs], [gold for gold, _ in pairs])
    return [pair for pair, other in zip(pairs, scores) if other != score]


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


def test_rewritten_golds_stay_equal_changed_ones_not() -> None:
    """Every gold answer equals itself. A sample, rewritten with the same value, stays equal; changed in one step, not.

    Only a formula comparison can show that `1 * (gold) + 0` is the gold answer, and that `gold + 1` is not.
    """
    generator = random.Random(20)
    same, other = [], []
    for name in BENCHMARKS:
        answers = sorted(set(benchmark_golds(name)))
        same += [(gold, gold) for gold in answers]
        for gold in generator.sample(answers, min(len(answers), 20)):
            rewritten = {rewrite(gold) for rewrite in generator.sample(REWRITINGS, 4)}
            other += [(gold, answer) for answer in one_step_changes(gold, generator)]
            if "\\" in gold and respelled(gold) != gold:
                rewritten.add(respelled(gold))
                other.append((gold, f"({gold}) + 1"))
            same += [(gold, answer) for answer in rewritten - {gold}]
    with Verifier(workers=2, timeout_s=30.0) as verifier:
        assert (wrong_scores(verifier, same, 1.0), wrong_scores(verifier, other, 0.0)) == ([], [])
    assert len(same) + len(other) > 500
