"""Evaluation on ranks, against the evaluation of one data set after the other in one process."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from d3s.config.load import load_config
from d3s.config.schema import VERIFIER
from d3s.evaluate.distributed import evaluate_on_ranks
from d3s.evaluate.evaluator import evaluate
from d3s.evaluate.sampling import Sampling
from tests.helpers.scripted_engine import TOKENIZER, ScriptedEngine, exact_score, make_prompts, scripted_digit

COUNTDOWN = "d3s.data.synthetic:countdown_reward"


@pytest.mark.parametrize(("ranks", "tensor_parallel"), [(1, 1), (2, 1), (3, 1), (4, 2)])
def test_ranks_give_the_results_of_one_process(monkeypatch, ranks, tensor_parallel):
    """Each rank makes one engine call; the last to gather has the samples of all."""
    settings = ["eval.n=4", "eval.k=[1,4]", "eval.temperature=0.5", "rollout.temperature=0.9", "train.seed=3"]
    tests = {"precedence": make_prompts(9), "gsm8k": make_prompts(4)}
    config = load_config([], [*settings, "eval.data=[synthetic:precedence, gsm8k]"])
    config.rollout.tensor_parallel_size = tensor_parallel
    sampling = Sampling(n=4, temperature=0.5, max_tokens=config.rollout.max_completion_length, seed=3)
    gathered, sampled, opened = [], [], {VERIFIER: exact_score}
    monkeypatch.setattr(
        "d3s.evaluate.distributed.all_gather_objects", lambda own, _: gathered.extend(own) or list(gathered)
    )
    for rank in range(ranks):
        engine, accelerator = ScriptedEngine(), SimpleNamespace(num_processes=ranks, process_index=rank)
        if rank < ranks - 1:  # the other ranks' samples are missing until the last has gathered
            with monkeypatch.context() as patch:
                patch.setattr("d3s.evaluate.distributed.summarize", lambda *_: None)
                evaluate_on_ranks(engine, opened, TOKENIZER, tests, config, accelerator)
        else:
            results = evaluate_on_ranks(engine, opened, TOKENIZER, tests, config, accelerator)
        assert len(engine.calls) == 1 and engine.params == sampling.params
        sampled.append(set(engine.seeds))
    assert len(gathered) == 13  # every problem is reported by one rank
    assert len(set.union(*sampled)) == 13 * 4 and sum(map(len, sampled)) == 13 * 4 * tensor_parallel
    for result, (name, prompts) in zip(results, tests.items(), strict=True):
        assert result.reward == VERIFIER
        assert replace(result, reward="") == evaluate(
            ScriptedEngine(), exact_score, TOKENIZER, prompts, sampling, ks=(1, 4), data=name
        )


def test_synthetic_tasks_are_scored_by_their_own_reward():
    """Of the problem `0->0`, the reward of countdown accepts the expression 0 and no other digit."""
    tests = {"countdown": make_prompts(10, answer="0->0", reward=COUNTDOWN)}
    result, digits = evaluate_once(tests)
    zeros = digits.count(0)
    assert 0 < zeros < 80 and result.estimates["avg@n"].value == pytest.approx(zeros / 80)
    assert result.record()["reward"] == COUNTDOWN


def test_evaluation_does_not_call_the_training_reward():
    """Responses are 2 for the gold answer 2, by the verifier; eval.reward scores all of them, whatever the data set."""
    training = ["reward.functions=[tests.helpers.rewards:reads_column]"]  # raises: the problems have no such column
    result, digits = evaluate_once({"countdown": make_prompts(10)}, *training)
    twos = digits.count(2)
    assert 0 < twos < 80 and result.estimates["avg@n"].value == pytest.approx(twos / 80)
    assert result.reward == VERIFIER
    for prompts in (make_prompts(10), make_prompts(10, reward=COUNTDOWN)):
        result, _ = evaluate_once({"countdown": prompts}, *training, "eval.reward=tests.helpers.rewards:always")
        assert result.estimates["avg@n"].value == 1 and result.reward == "tests.helpers.rewards:always"


def evaluate_once(tests, *overrides):
    """The only result of a rank, and the digits of the responses."""

    def never(response, answer, row):
        raise AssertionError("the score of the training was used")

    config = load_config([], ["eval.n=8", "eval.k=[1]", "eval.data=[synthetic:countdown]", *overrides])
    accelerator, engine = SimpleNamespace(num_processes=1, process_index=0), ScriptedEngine()
    opened = {path: never for path in config.reward.function_names().values() if path != VERIFIER}
    (result,) = evaluate_on_ranks(engine, opened, TOKENIZER, tests, config, accelerator)
    return result, [scripted_digit(seed) for seed in engine.seeds]
