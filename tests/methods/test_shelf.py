"""The shelf d3s/methods/: every file has an overlay and a paper, and options are checked."""

import ast
import re
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.plan.trials import attempt_rules

SHELF = sorted(path for path in Path("d3s/methods").glob("*.py") if path.stem != "__init__")


def test_every_method_has_an_overlay_and_a_paper():
    overlays = "".join(path.read_text() for path in Path("configs").rglob("*.yaml"))
    for path in SHELF:
        assert re.search(r"arXiv \d{4}\.\d{5}|OpenReview \w{10}", ast.get_docstring(ast.parse(path.read_text()))), path
        assert f"d3s.methods.{path.stem}:" in overlays, path


LATR, CARRY, ROUNDS = "latr:LATR", "carry_over:CarryOver", "two_rounds:TwoRounds"
NO_TEXTS, ENGINE = "rollout.stop=[end]", ["rollout.engine=vllm", "loss.old_logprobs=engine"]


@pytest.mark.parametrize(
    ("option", "rule", "others", "problem"),
    [
        ("selector.rollouts", "ragen:variance_mass, share: 1.1", [], "share must be in (0, 1], not 1.1"),
        ("selector.rollouts", "two_stage:two_stage, stage: 1", [], "stage must be an integer above 1, not 1"),
        ("selector.rollouts", "two_stage:two_stage, stage: true", [], "stage must be an integer above 1, not True"),
        ("selector.tokens", "likely_tokens:likely_tokens, least: 1.5", [], "least must be in [0, 1], not 1.5"),
        ("selector.tokens", "nat:nat, prefix: true", ["loss.beta=0.1"], "requires loss.beta: 0"),
        ("rollout.strategy", f"{LATR}, share: 2", [], "share must be a number from 0 to 1, not 2"),
        ("rollout.strategy", f"{LATR}, steps: -1", [], "steps must be an integer of at least 0, not -1"),
        ("rollout.strategy", LATR, [NO_TEXTS], "requires rollout.stop: []"),
        ("rollout.strategy", LATR, ["rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        ("rollout.strategy", LATR, ["rollout.seeds=engine"], "requires rollout.seeds: request"),
        ("rollout.strategy", LATR, ["reward.shaper=a:b"], "requires reward.shaper: null"),
        ("rollout.strategy", CARRY, ["rollout.engine=vllm"], "requires loss.old_logprobs: engine"),
        ("rollout.strategy", CARRY, ["rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        ("rollout.strategy", CARRY, [*ENGINE, NO_TEXTS], "requires rollout.stop: []"),
        ("rollout.strategy", f"{CARRY}, extra: 2", ENGINE, "extra must be a number from 0 to 1, not 2"),
        ("rollout.strategy", f"{CARRY}, max_age: 0", ENGINE, "max_age must be an integer of at least 1, not 0"),
        ("rollout.strategy", f"{ROUNDS}, first: 1", [], "first must be an integer from 2 to G - 1, not 1"),
        ("rollout.strategy", f"{ROUNDS}, first: 128", [], "first must be an integer from 2 to G - 1"),
        ("rollout.strategy", f"{ROUNDS}, extra: 0", [], "extra must be a number above 0, at most 15"),
        ("rollout.strategy", f"{ROUNDS}, extra: true", [], "extra must be a number above 0, at most 15"),
        ("rollout.strategy", ROUNDS, ["rollout.tensor_parallel_size=2"], "requires rollout.tensor_parallel_size: 1"),
    ],
)
def test_options_are_refused_before_a_run(option, rule, others, problem):
    with pytest.raises(UserError, match=f"^{re.escape(option)}: .*{re.escape(problem)}"):
        attempt_rules(load_config([], [f"{option}={{rule: d3s.methods.{rule}}}", *others]))
