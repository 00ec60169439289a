"""Measure which responses the built-in rule of rollout.hopeless stops: right ones, wrong ones, and tokens saved.

    python -m research.hopeless_bias

Samples validation problems by the transformers engine, with the rule and without it, from the base models and from one
trained by 48 steps of D3S. Seeds are equal, so a stopped response is the beginning of the one that is not. Writes the
table between the `hopeless-bias` marks of docs/beyond.md.
"""

import os
from pathlib import Path

from benchmarks.harness import ROOT, machine, markdown
from d3s.config.load import load_config
from d3s.data.synthetic import TASKS, countdown_reward
from d3s.methods.step_shaper import unreachable
from d3s.reward import verify
from d3s.rollout.engine import Rollout, SamplingParams
from d3s.rollout.hopeless import HopelessRule
from d3s.rollout.seeds import rollout_seeds
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.tiny import byte_tokenizer, ensure_base
from research.beyond_rows import RATE, row
from research.methods import fixed
from research.runs import train
from research.tables import DOCS, write_between_marks

PROBLEMS, RESPONSES, SEED = 128, 16, 100
RULE = f"{unreachable.__module__}:{unreachable.__name__}"
ASKED_AT = "; "  # as in configs/method/hopeless.yaml
REWARDS = {"precedence": verify, "countdown": countdown_reward}


def sample(model: str, task: str) -> tuple[list[Rollout], list[Rollout], list[bool]]:
    """The responses without the rule and with it, and whether each response without it is right."""
    tokenizer, problems = byte_tokenizer(), TASKS[task].draw("validation", PROBLEMS, 0)
    settings = load_config([], ["rollout.engine=transformers"]).rollout
    engine = TransformersEngine(model, settings, dtype="float32", max_model_len=120)
    prompts = [tokenizer.encode(text) for text, *_ in problems]
    seeds = rollout_seeds(SEED, "hopeless", list(range(PROBLEMS)), RESPONSES)
    watch = HopelessRule(RULE, ASKED_AT, tokenizer).watch([text for text, *_ in problems])
    params = SamplingParams(max_tokens=64)
    full, stopped = (engine.generate(prompts, RESPONSES, params, seeds, hopeless=rule) for rule in (None, watch))
    texts = (tokenizer.decode(r.response_ids, skip_special_tokens=True) for r in full)
    right = [REWARDS[task](text, problems[r.prompt_index][1]) == 1 for text, r in zip(texts, full)]
    return full, stopped, right


def shares(full: list[Rollout], stopped: list[Rollout], right: list[bool]) -> tuple[float, float, float, float]:
    """Shares of right responses, of these and of the wrong ones that are stopped, and of the tokens that this saves."""
    of_right, of_wrong = ([r.stopped for r, ok in zip(stopped, right) if ok == verdict] for verdict in (True, False))
    tokens, rest = (sum(len(r.response_ids) for r in rollouts) for rollouts in (full, stopped))
    stopped_shares = (sum(flags) / max(1, len(flags)) for flags in (of_right, of_wrong))
    return len(of_right) / len(right), *stopped_shares, 1 - rest / tokens


def main() -> None:
    os.chdir(ROOT)
    cell = row("hopeless bias", 48, RATE, *fixed(8, 0.2))
    trained: Path = train(cell, SEED, ROOT / "runs" / "hopeless-bias") / "model"
    models = {
        "precedence, base": (ensure_base("tiny:precedence"), "precedence"),
        "precedence, after 48 steps of D3S": (trained, "precedence"),
        "countdown, base": (ensure_base("tiny:countdown"), "countdown"),
    }
    rows = [
        [name, *(f"{100 * share:.1f}" for share in shares(*sample(str(model), task)))]
        for name, (model, task) in models.items()
    ]
    table = markdown(["model", "right answers", "of these stopped", "wrong answers stopped", "tokens saved"], rows)
    text = f"{PROBLEMS * RESPONSES:,} responses each, code at {machine()['revision']}, shares in %:\n\n{table}\n"
    write_between_marks(DOCS / "beyond.md", "hopeless-bias", text)
    print(text)


if __name__ == "__main__":
    main()
