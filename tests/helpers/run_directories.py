"""Write run directories with made-up metrics, evaluations and samples, for tests of reports."""

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path

import yaml

HOSTILE = "<script>alert(1)</script> $x^2$ | **b** \x1b[2J \u202e [red]"


def write_lines(path: Path, records: Iterable[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_run(directory: Path, *, seed: int = 0, steps: int = 130, **loss) -> Path:
    """Write a run directory as the trainer does: Pass@1 rises by about 0.4, N and K change linearly."""
    rng, wall, trained = random.Random(seed), 0.0, 0
    write_samples(directory, steps)
    config = {
        "model": {"name": "tiny:precedence"}, "tracker": {"mirrors": []}, "loss": {"kind": "grpo"} | loss,
        "schedule": {"n_init": 8, "n_final": 32, "k_init": 0.05, "k_final": 0.2},
        "train": {"output_dir": str(directory), "steps": 130, "seed": seed},
    }  # fmt: skip
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    evaluations, lines = [evaluation(0, 0.0, 0, 0.35)], []
    for step in range(1, steps + 1):
        p = (step - 1) / 129
        skill = 0.35 + 0.4 * p + 0.01 * (seed - 2) * p
        times = {"generate": 0.3 + 0.02 * rng.random(), "update": 0.1 + p, "evaluate": 1.2 if step % 20 == 0 else 0.0}
        times["step"] = times["generate"] + times["update"] + 0.01
        wall, trained = wall + times["step"] + times["evaluate"], trained + round(800 + 2400 * p)
        line = {
            "step": step, "progress": p, "wall_time": round(wall, 3), "reward/mean": skill + rng.gauss(0, 0.03),
            "advantage/var_all": 0.93 - 0.2 * p, "advantage/var_selected": 1.9 - 1.1 * p + rng.gauss(0, 0.05),
            "selection/usefulness": 1.0 - 0.4 * p, "tokens_trained": trained, "tokens_generated": 16_000 * step,
            "schedule/n": round(8 + p * 24), "schedule/k": 0.05 + p * 0.15, "policy/entropy": 0.32 * math.exp(-p),
            "policy/entropy_selected": 0.9 * math.exp(-p), "policy/approx_kl": abs(rng.gauss(2e-4, 1e-4)),
            "grad_norm": 0.6 + abs(rng.gauss(0, 0.08)), "completion/truncated": 0.0,
        }  # fmt: skip
        lines.append(line | {f"time/{name}": seconds for name, seconds in times.items()})
        if step % 20 == 0 or step == 130:
            evaluations.append(evaluation(step, wall, trained, skill + 0.01))
    write_lines(directory / "metrics.jsonl", lines)
    write_lines(directory / "eval.jsonl", evaluations)
    return directory


def write_small_run(directory: Path, config: dict | None) -> Path:
    """Write a run directory with one line of metrics, and `config` unless it is None."""
    directory.mkdir(parents=True)
    (directory / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
    return directory


def evaluation(step: int, wall_time: float, trained: int, pass_at_1: float) -> dict:
    """Return a line of eval.jsonl with Pass@1, Pass@8 and their intervals."""
    record = {
        "step": step, "wall_time": wall_time, "tokens_trained": trained, "data": "precedence", "n": 8, "problems": 256,
    }  # fmt: skip
    for k in (1, 8):
        value = 1 - (1 - pass_at_1) ** (1 + 1.2 * math.log(k))
        record |= {f"pass@{k}": value, f"pass@{k}_ci": [value - 0.03, value + 0.03]}
    majority = {"maj@n": pass_at_1, "maj@n_ci": [pass_at_1 - 0.03, pass_at_1 + 0.03]}
    return record | majority | {"mean_length": 31.0, "truncated": 0.01}


def write_samples(directory: Path, step: int, responses: tuple[str, ...] = ()) -> None:
    """Write four samples: two problems, each with a right and a wrong response, and high entropy on some digits."""
    rng, records = random.Random(step), []
    answers = {"6*3=18;3+18=21": 21, "3+6=9;9*3=27": 27, "8-2=6;6*4=24": 24, "2*4=8;8-8=0": 0}
    responses = responses or tuple(f"{text}\nThe answer is \\boxed{{{answer}}}.\n" for text, answer in answers.items())
    for i, response in enumerate(responses):
        entropies = [rng.random() * (1.4 if c in "0123456789" and rng.random() < 0.4 else 0.08) for c in response]
        bar = sorted(entropies)[-max(1, len(entropies) // 6)]
        advantage, problem = [1.32, -0.74, -1.9, 0.51][i % 4], ["3+6*3=", "8-2*4="][i // 2 % 2]
        dropped = {
            "step": step, "problem": problem, "answer": ["21", "0"][i // 2 % 2], "prompt": problem,
            "response": response, "tokens": list(response), "reward": float(i in (0, 3)), "right": i in (0, 3),
            "advantage": advantage,
            "n": 2, "k": 0.2, "rank": [[1, 1, 4], [3, 3, 4], [4, 4, 4], [2, 2, 4]][i % 4], "compared": "batch",
            "entropies": entropies, "selected": False, "trained": [False] * len(response), "priority": "",
            "priorities": [], "threshold": None, "reason": "not chosen by max_variance",
        }  # fmt: skip
        trained = {"selected": True, "trained": [h >= bar for h in entropies], "priority": "advantage_entropy"}
        trained |= {"priorities": [abs(advantage) * h for h in entropies], "threshold": abs(advantage) * bar}
        records.append(dropped if i == 1 else dropped | trained | {"reason": ""})
    (directory / "samples").mkdir(parents=True, exist_ok=True)
    write_lines(directory / "samples" / f"step_{step:06d}.jsonl", records)
