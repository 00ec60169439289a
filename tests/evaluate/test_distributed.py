"""Evaluation on ranks, against the evaluation of one data set after the other in one process."""

from types import SimpleNamespace

import pytest

from d3s.config.load import load_config
from d3s.evaluate.distributed import evaluate_on_ranks
from d3s.evaluate.evaluator import evaluate
from d3s.evaluate.sampling import Sampling
from tests.helpers.scripted_engine import TOKENIZER, ScriptedEngine, exact_score, make_prompts, scripted_digit


@pytest.mark.parametrize(("ranks", "tensor_parallel"), [(1, 1), (2, 1), (3, 1), (4, 2)])
def test_ranks_give_the_results_of_one_process(monkeypatch, ranks, tensor_parallel):
    """Each rank makes one engine call; the last to gather has the samples of all."""
    settings = ["eval.n=4", "eval.k=[1,4]", "eval.temperature=0.5", "rollout.temperature=0.9", "train.seed=3"]
    tests = {"precedence": make_prompts(9), "gsm8k": make_prompts(4)}
    config = load_config([], [*settings, "eval.data=[synthetic:precedence, gsm8k]"])
    config.rollout.tensor_parallel_size = tensor_parallel
    sampling = Sampling(n=4, temperature=0.5, max_tokens=config.rollout.max_completion_length, seed=3)
    gathered, sampled = [], []
    monkeypatch.setattr(
        "d3s.evaluate.distributed.all_gather_objects", lambda own, _: gathered.extend(own) or list(gathered)
    )
    for rank in range(ranks):
        engine, accelerator = ScriptedEngine(), SimpleNamespace(num_processes=ranks, process_index=rank)
        if rank < ranks - 1:  # the other ranks' samples are missing until the last has gathered
            with monkeypatch.context() as patch:
                patch.setattr("d3s.evaluate.distributed.summarize", lambda *_: None)
                evaluate_on_ranks(engine, exact_score, TOKENIZER, tests, config, accelerator)
        else:
            results = evaluate_on_ranks(engine, exact_score, TOKENIZER, tests, config, accelerator)
        assert len(engine.calls) == 1 and engine.params == sampling.params
        sampled.append(set(engine.seeds))
    assert len(gathered) == 13  # every problem is reported by one rank
    assert len(set.union(*sampled)) == 13 * 4 and sum(map(len, sampled)) == 13 * 4 * tensor_parallel
    for result, (name, prompts) in zip(results, tests.items(), strict=True):
        assert result == evaluate(ScriptedEngine(), exact_score, TOKENIZER, prompts, sampling, ks=(1, 4), data=name)


def test_synthetic_tasks_are_scored_by_their_own_reward():
    """Of the problem `0->0`, the reward of countdown accepts the expression 0 and no other digit."""
    config = load_config([], ["eval.n=8", "eval.k=[1]", "eval.data=[synthetic:countdown]"])
    accelerator, engine = SimpleNamespace(num_processes=1, process_index=0), ScriptedEngine()

    def never(response, answer, row):
        raise AssertionError("the default score was used")

    tests = {"countdown": make_prompts(10, answer="0->0", reward="d3s.data.synthetic:countdown_reward")}
    (result,) = evaluate_on_ranks(engine, never, TOKENIZER, tests, config, accelerator)
    zeros = sum(scripted_digit(seed) == 0 for seed in engine.seeds)
    assert 0 < zeros < 80 and result.estimates["avg@n"].value == pytest.approx(zeros / 80)
