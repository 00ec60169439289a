"""Write run directories with made-up metrics, evaluations and samples, for tests of reports."""

import json
import math
import random
from pathlib import Path

import yaml

HOSTILE = "<script>alert(1)</script> $x^2$ | **b** \x1b[2J \u202e [red]"


def write_run(
    directory: Path,
    *,
    seed: int = 0,
    steps: int = 130,
    gain: float = 0.4,
    n: tuple = (8, 32),
    k: tuple = (0.05, 0.2),
    **loss,
) -> Path:
    """Write a run directory as the trainer does: Pass@1 rises by about `gain`, N and K change linearly."""
    rng, wall, trained, generated = random.Random(seed), 0.0, 0, 0
    (directory / "samples").mkdir(parents=True)
    config = {
        "model": {"name": "tiny:precedence"},
        "schedule": {"n_init": n[0], "n_final": n[1], "k_init": k[0], "k_final": k[1]},
        "train": {"output_dir": str(directory), "steps": 130, "seed": seed},
        "loss": {"kind": "grpo"} | loss,
        "tracker": {"mirrors": []},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    evaluations = [evaluation(0, 0.0, 0, 0.35)]
    lines = []
    for step in range(1, steps + 1):
        p = (step - 1) / 129
        skill = 0.35 + gain * (1 - math.exp(-3 * p)) / (1 - math.exp(-3)) + 0.01 * (seed - 2) * p
        kept, share = round(n[0] + p * (n[1] - n[0])), k[0] + p * (k[1] - k[0])
        tokens = kept * 16 * 31
        update = 0.03 + 0.004 * kept + tokens * share * 2e-5
        times = {"generate": 0.26 + 0.02 * rng.random(), "reward": 0.02, "exchange": 0.001, "logprobs": tokens * 4e-6}
        times |= {"select": 0.003, "update": update, "sync": 0.03, "checkpoint": 0.3 if step % 50 == 0 else 0.0}
        times |= {"evaluate": 1.2 if step % 20 == 0 else 0.0}
        times["step"] = sum(times.values()) - times["checkpoint"] - times["evaluate"] + 0.01
        between = times["checkpoint"] + times["evaluate"]
        wall, trained, generated = (
            wall + times["step"] + between,
            trained + round(tokens * share),
            generated + 32 * 16 * 31,
        )
        lines.append(
            {
                "step": step,
                "progress": p,
                "wall_time": round(wall, 3),
                "reward/mean": skill + rng.gauss(0, 0.03),
                "reward/std": 0.45,
                "reward/zero_std_groups": 0.02 + 0.3 * p + 0.02 * rng.random(),
                "advantage/var_all": 0.93 - 0.2 * p + rng.gauss(0, 0.01),
                "advantage/var_selected": 1.9 - 1.1 * p + rng.gauss(0, 0.05),
                "advantage/mean_selected": rng.gauss(0, 0.05),
                "selection/usefulness": 1.0 - max(0, p - 0.6) * 0.6,
                "selection/effective_groups": 15.5 - 4 * p + rng.gauss(0, 0.3),
                "selection/rollouts": kept * 16,
                "selection/rollouts_total": 512,
                "tokens_trained": trained,
                "tokens_generated": generated,
                "schedule/n": kept,
                "schedule/k": share,
                "policy/entropy": 0.32 * math.exp(-1.2 * p) + rng.gauss(0, 0.006),
                "policy/entropy_selected": 0.9 * math.exp(-0.8 * p) + rng.gauss(0, 0.02),
                "policy/approx_kl": abs(rng.gauss(2e-4, 1e-4)),
                "loss": rng.gauss(0, 0.02),
                "grad_norm": 0.6 + 0.5 * math.exp(-4 * p) + abs(rng.gauss(0, 0.08)),
                "learning_rate": 1e-3,
                "mismatch/mean_abs": abs(rng.gauss(2e-6, 3e-7)),
                "completion/length": 31 + rng.gauss(0, 0.4),
                "completion/truncated": max(0.0, 0.02 - 0.02 * p),
                "throughput/tokens_per_s": 9000 + rng.gauss(0, 300),
                "memory/generate_gb": 0.4,
                "memory/update_gb": 0.4,
            }
            | {f"time/{name}": seconds for name, seconds in times.items()}
        )
        if step % 20 == 0 or step == 130:
            evaluations.append(evaluation(step, wall, trained, skill + 0.01))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (directory / "eval.jsonl").write_text("".join(json.dumps(record) + "\n" for record in evaluations))
    write_samples(directory, steps)
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
    rng = random.Random(step)
    responses = responses or tuple(
        f"{text}\nThe answer is \\boxed{{{answer}}}.\n"
        for text, answer in [("6*3=18;3+18=21", 21), ("3+6=9;9*3=27", 27), ("8-2=6;6*4=24", 24), ("2*4=8;8-8=0", 0)]
    )
    records = []
    for i, response in enumerate(responses):
        entropies = [rng.random() * (1.4 if c in "0123456789" and rng.random() < 0.4 else 0.08) for c in response]
        bar = sorted(entropies)[-max(1, len(entropies) // 6)]
        advantage = [1.32, -0.74, -1.9, 0.51][i % 4]
        records.append(
            {
                "step": step,
                "problem": ["3+6*3=", "8-2*4="][i // 2 % 2],
                "answer": ["21", "0"][i // 2 % 2],
                "prompt": ["3+6*3=", "8-2*4="][i // 2 % 2],
                "response": response,
                "reward": float(i in (0, 3)),
                "advantage": advantage,
                "n": 2,
                "k": 0.2,
                "rank": [[1, 1, 4], [3, 3, 4], [4, 4, 4], [2, 2, 4]][i % 4],
                "compared": "batch",
                "selected": i != 1,
                "tokens": list(response),
                "entropies": entropies,
                "trained": [i != 1 and h >= bar for h in entropies],
                "priority": "" if i == 1 else "advantage_entropy",
                "priorities": [] if i == 1 else [abs(advantage) * h for h in entropies],
                "threshold": None if i == 1 else abs(advantage) * bar,
                "reason": "not chosen by max_variance" if i == 1 else "",
            }
        )
    path = directory / "samples" / f"step_{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
