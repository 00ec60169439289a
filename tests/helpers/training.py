"""Train in this process: a few steps of a tiny random model with the transformers engine."""

from collections.abc import Sequence
from pathlib import Path

from d3s.config.load import load_config
from d3s.config.schema import Config
from tests.helpers.command_line import lines

B, G, STEPS = 4, 16, 3  # prompts of a step, rollouts of a prompt, steps
EVALUATED = [  # two problems, whose responses are scored without a process of their own
    "eval.data=[synthetic:precedence]", "eval.limit=2", "eval.n=2", "eval.k=[1]",
    "eval.reward=tests.helpers.rewards:even_length",
]  # fmt: skip


def train(
    model: Path,
    folder: Path,
    files: Sequence[str] = (),
    overrides: Sequence[str] = (),
    code: int = 0,
    checkpoint: Path | None = None,
) -> tuple[Config, list[dict]]:
    """Run a Trainer, from a checkpoint if given, which must return `code`. Return the configuration and the metrics.

    Rules are tried first, as at the start of train.py.
    """
    from d3s.trainer import Trainer
    from d3s.trials import attempt_rules

    config = load_config(
        ["configs/tiny.yaml", "tests/helpers/small.yaml", *files],
        [
            f"model.name={model}", f"train.output_dir={folder}", f"train.steps={STEPS}", f"train.prompts_per_step={B}",
            f"rollout.num_generations={G}", "rollout.engine=transformers", "rollout.max_completion_length=12",
            "reward.functions=[tests.helpers.rewards:even_length]", "reward.workers=1", "data.limit=40",
            "eval.data=[]", *overrides,
        ],
    )  # fmt: skip
    attempt_rules(config)
    trainer = Trainer(config, checkpoint)
    assert trainer.train() == code
    trainer.close()
    return config, lines(folder / "metrics.jsonl")
