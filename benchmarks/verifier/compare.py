"""Compare the verifier with math-verify on the same answers: accuracy, speed, hostile input.

    python -m benchmarks.verifier.compare [--hostile] [--responses N]      (make bench-verifier)

Prints the tables of docs/rewards.md. Needs the test data in ../shared/data, which is not part of the repository. Both
verifiers get one process. math-verify runs as its documentation says, with its own time limits.
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.verifier.competition_answers import competition_answers
from benchmarks.verifier.generated_answers import generated_answers
from benchmarks.verifier.hostile_answers import hostile_answers
from d3s.verifier.verifier import Verifier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
STRICT_KINDS = ("pair", "boxed", "generated", "competition")
Scorer = Callable[[Sequence[str], Sequence[str]], list[float]]


def math_verify_scores(responses: Sequence[str], golds: Sequence[str]) -> list[float]:
    """Score as math-verify documents: parse both sides, the gold answer as LaTeX, then verify(gold, answer)."""
    from math_verify import parse, verify

    scores = []
    for response, gold in zip(responses, golds):
        try:
            scores.append(float(verify(parse(f"\\boxed{{{gold}}}"), parse(response))))
        except Exception:
            scores.append(0.0)
    return scores


def load_cases(path: Path) -> list[dict]:
    """Read the equality cases and add `kind` and `response`, in which bare answers have a box."""
    with path.open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    for case in cases:
        case["kind"] = case["note"].split(";")[0].removeprefix("kind=")
        case["response"] = f"\\boxed{{{case['prediction']}}}" if case["kind"] == "pair" else case["prediction"]
    return cases


def generated_cases(seed: int, draws: int) -> list[dict]:
    """Return generated equality cases in the form of `load_cases`."""
    return [
        {"kind": "generated", "gold": case.gold, "prediction": case.answer, "equal": case.equal, "note": case.kind,
         "response": f"\\boxed{{{case.answer}}}"}
        for case in generated_answers(seed, draws)
    ]  # fmt: skip


def competition_cases() -> list[dict]:
    """Return the hand-written cases in the form of `load_cases`."""
    return [
        {"kind": "competition", "gold": gold, "prediction": answer, "equal": equal, "note": "",
         "response": f"\\boxed{{{answer}}}"}
        for gold, answer, equal in competition_answers()
    ]  # fmt: skip


def accuracy_table(cases: list[dict], scorers: dict[str, dict[str, Scorer]]) -> tuple[Table, list[str]]:
    """Count right verdicts, false positives and false negatives per kind and verifier; list the mistakes of d3s."""
    table = Table("kind", "verifier", "cases", "right", "%", "false positives", "false negatives", "s")
    mistakes = []
    groups = defaultdict(list)
    for case in cases:
        groups[case["kind"]].append(case)
        if "real model answer" in case["note"] or "sampled prediction" in case["note"]:
            groups["(of these: real model answers)"].append(case)
    for kind, rows in groups.items():
        for name, by_mode in scorers.items():
            score = by_mode["strict" if kind in STRICT_KINDS or kind.startswith("(") else "lenient"]
            start = time.perf_counter()
            rewards = score([row["response"] for row in rows], [row["gold"] for row in rows])
            seconds = time.perf_counter() - start
            wrong = [(row, reward) for row, reward in zip(rows, rewards) if (reward == 1.0) != row["equal"]]
            positives = sum(1 for _, reward in wrong if reward == 1.0)
            right = len(rows) - len(wrong)
            percent = f"{100 * right / len(rows):.1f}"
            cells = (len(rows), right, percent, positives, len(wrong) - positives, f"{seconds:.2f}")
            table.add_row(kind, name, *map(str, cells))
            if name == "d3s":
                mistakes += [f"{kind}: gold {row['gold']!r}, answer {row['prediction'][-80:]!r}" for row, _ in wrong]
    return table, mistakes


def speed_table(count: int, verifier: Verifier) -> Table:
    """Measure answers per second on responses of about 1,500 characters around gold answers, one process each."""
    generator = random.Random(0)
    golds = {name: benchmark_golds(name) for name in ("math_train", "gsm8k_train")}
    reasoning = "We add the two sides, so $x^2 + 2x = \\frac{3}{4}$, and then divide both by the number of cases. " * 15
    table = Table("responses", "verifier", "answers", "seconds", "answers/s", "ratio")
    for label, name in (
        ("gold answers of MATH, half exchanged", "math_train"),
        ("plain numbers (GSM8K), half exchanged", "gsm8k_train"),
    ):
        answers = generator.sample(golds[name], count)
        predictions = [a if generator.random() < 0.5 else generator.choice(golds[name]) for a in answers]
        responses = [f"{reasoning}So the answer is $\\boxed{{{text}}}$." for text in predictions]
        _add_speed_rows(table, label, responses, answers, verifier)
    answers = generator.sample([a for a in golds["math_train"] if "\\" in a], min(count, 500))
    responses = [f"{reasoning}So the answer is $\\boxed{{{respelled(text)}}}$." for text in answers]
    _add_speed_rows(table, "formulas of MATH, respelled", responses, answers, verifier)
    return table


def respelled(text: str) -> str:
    """Add a term of zero and a factor of one, so that only a formula comparison shows equality."""
    plain = not any(
        sign in text for sign in ("=", ",", "<", ">", "[", "&", "%", "\\text", "\\mbox", "matrix", "\\le", "\\ge")
    )
    return f"1\\cdot({text})+0" if plain else text


def _add_speed_rows(table: Table, label: str, responses: list[str], answers: list[str], verifier: Verifier) -> None:
    speeds = {}
    for name, score in (("d3s", verifier.score), ("math-verify", math_verify_scores)):
        start = time.perf_counter()
        score(responses, answers)
        seconds = time.perf_counter() - start
        speeds[name] = len(answers) / seconds
        ratio = f"{speeds['d3s'] / speeds['math-verify']:.1f}x" if len(speeds) == 2 else ""
        table.add_row(label, name, str(len(answers)), f"{seconds:.2f}", f"{speeds[name]:.0f}", ratio)


def plain_number_speed(count: int = 20_000) -> float:
    """Measure answers per second of one core on plain numbers in short responses."""
    generator = random.Random(1)
    answers = [
        generator.choice((str(generator.randrange(10**6)), f"{generator.random() * 100:.2f}")) for _ in range(count)
    ]
    responses = [
        f"Thus the total is \\boxed{{{a if generator.random() < 0.5 else generator.randrange(1000)}}}." for a in answers
    ]
    with Verifier(workers=1) as verifier:
        start = time.perf_counter()
        verifier.score(responses, answers)
        return count / (time.perf_counter() - start)


def reflexivity_table(verifier: Verifier) -> Table:
    """Score every gold answer of every benchmark, in a box, against itself."""
    table = Table("benchmark", "gold answers", "equal to themselves")
    for path in sorted((DATA / "benchmarks").glob("*.jsonl")):
        golds = benchmark_golds(path.stem)
        rewards = verifier.score([f"\\boxed{{{gold}}}" for gold in golds], golds)
        table.add_row(path.stem, str(len(golds)), str(int(sum(rewards))))
    return table


def hostile_table() -> Table:
    """Score every hostile input by itself with the default limits, and a formula after each."""
    table = Table(
        "hostile inputs", "scored right", "slowest, s", "timeouts", "crashes", "executed", "next answer right"
    )
    with tempfile.TemporaryDirectory() as folder, Verifier(workers=1) as verifier:
        canary = Path(folder) / "canary"
        verifier.score([r"\boxed{\sqrt{4}}"], ["2"])
        rows, right, slowest, unaffected = list(hostile_answers(str(canary))), 0, 0.0, 0
        for index, (response, gold) in enumerate(rows):
            start = time.perf_counter()
            right += verifier.submit(response, gold).result() == 1.0
            slowest = max(slowest, time.perf_counter() - start)
            unaffected += verifier.submit(rf"\boxed{{\sqrt{{{(index + 2) ** 2}}}}}", str(index + 2)).result() == 1.0
        stats = verifier.take_stats()
        failures = (stats["timeouts"], stats["crashes"], canary.exists())
        table.add_row(*map(str, (len(rows), right, f"{slowest:.2f}", *failures, f"{unaffected}/{len(rows)}")))
    return table


def benchmark_golds(name: str) -> list[str]:
    """Return the gold answers of one benchmark file."""
    with (DATA / "benchmarks" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["answer"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=1_000, help="responses per speed measurement")
    parser.add_argument("--hostile", action="store_true", help="also score the hostile inputs (minutes)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated answers")
    options = parser.parse_args()
    console = Console(width=130)
    if not DATA.is_dir():
        raise SystemExit(f"{DATA}: no test data; place the benchmark files there")
    with Verifier(workers=1) as strict, Verifier(workers=1, extraction="lenient") as lenient:
        for verifier in (strict, lenient):
            verifier.score([r"\boxed{\sqrt{4}}"], ["2"])  # warm up before timing
        math_verify_scores([r"\boxed{\sqrt{4}}"], ["2"])
        scorers: dict[str, dict[str, Scorer]] = {
            "d3s": {"strict": strict.score, "lenient": lenient.score},
            "math-verify": {"strict": math_verify_scores, "lenient": math_verify_scores},
        }
        table, mistakes = accuracy_table(
            load_cases(DATA / "verifier_cases.jsonl") + generated_cases(options.seed, draws=4) + competition_cases(),
            scorers,
        )
        console.print(table, *mistakes, sep="\n")
        console.print(speed_table(options.responses, strict))
        console.print(f"plain numbers, short responses, d3s alone: {plain_number_speed():.0f} answers/s")
        console.print(reflexivity_table(strict))
    if options.hostile:
        console.print(hostile_table())


if __name__ == "__main__":
    main()
