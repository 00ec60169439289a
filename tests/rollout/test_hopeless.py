"""Ending hopeless responses: the rule's questions and errors, and both engines against runs without a rule."""

import math
import shutil

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.reward import check_functions
from d3s.rollout.engine import SamplingParams
from d3s.rollout.hopeless import HopelessRule
from d3s.tiny import byte_tokenizer
from d3s.trainer import Trainer
from tests.helpers.rollouts import PROMPTS, concatenate
from tests.helpers.small_run import same_run
from tests.helpers.training import train

HERE, TOKENIZER = "tests.rollout.test_hopeless:", byte_tokenizer()
asked = []


def long(problem, text):
    asked.append((problem, text))
    return len(text) > 3


def raises(problem, text):
    raise ValueError("no\x1b[31m rule for this")


def returns_text(problem, text):
    return "yes"


def one_argument(text):
    return True


def test_rule_is_asked_at_its_characters_once():
    watch = HopelessRule(HERE + "long", ";\n", TOKENIZER).watch(["first", "second"])
    asked.clear()
    answers = [[watch(i, TOKENIZER.encode(text)) for text in ("a", "a;", "ab\n", "abc;", "abc;d")] for i in (0, 1)]
    assert answers == [[False, False, False, True, False]] * 2
    assert asked == [(problem, text) for problem in ("first", "second") for text in ("a;", "ab\n", "abc;")]
    assert watch(0, TOKENIZER.encode("abc;")) and len(asked) == 6


@pytest.mark.parametrize(
    ("name", "reason"),
    [("raises", "raised ValueError: no␛"), ("returns_text", "returned 'yes'")],
)
def test_errors_of_the_rule_become_one_sentence(name, reason):
    watch = HopelessRule(HERE + name, "+", TOKENIZER).watch(["what is 3+4?"])
    with pytest.raises(UserError) as refused:
        watch(0, TOKENIZER.encode("3+"))
    message = str(refused.value)
    assert message.startswith(f"rollout.hopeless: {HERE}{name} {reason}") and message.isprintable()
    assert '"what is 3+4?"' in message and '"3+"' in message


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no_module:rule", "expected module:function"), (HERE + "one_argument", r"expected \(problem, text\)")],
)
def test_rules_that_cannot_be_called_are_refused(name, reason):
    with pytest.raises(UserError, match=f"rollout.hopeless: .*{reason}"):
        check_functions(load_config([], [f"rollout.hopeless={name}"]))


def test_stopped_responses_are_beginnings(engine):
    """Token ids are those of the run without a rule, and complete with log-probabilities and entropies."""
    params, seeds, received = SamplingParams(max_tokens=40), list(range(64)), []

    def hopeless(prompt, ids):
        assert 0 <= prompt < 4 and len(ids) < 40
        return ids[-1] % 8 == prompt

    full = engine.generate(PROMPTS, 16, params, seeds)
    stopped = engine.generate(PROMPTS, 16, params, seeds, hopeless=hopeless, on_finished=received.append)
    assert sorted(map(id, received)) == sorted(map(id, stopped)) and not any(r.stopped for r in full)
    for short, long in zip(stopped, full, strict=True):
        ends = [i + 1 for i, token in enumerate(long.response_ids[:-1]) if token % 8 == short.prompt_index]
        length = ends[0] if ends else len(long.response_ids)
        assert short.response_ids == long.response_ids[:length] and short.stopped == bool(ends)
        assert short.finished == (long.finished and not ends) and short.sample == long.sample
        long.logprobs, long.entropies = long.logprobs[:length], long.entropies[:length]
    assert 0 < sum(r.stopped for r in stopped) < 64 and any(r.finished for r in stopped)
    for field in ("logprobs", "entropies"):
        torch.testing.assert_close(concatenate(stopped, field), concatenate(full, field), rtol=0, atol=1e-4)
    again = engine.generate(PROMPTS, 16, params, seeds)  # nothing of the stopped requests is left
    assert [r.response_ids[: len(s.response_ids)] for r, s in zip(again, stopped)] == [r.response_ids for r in stopped]


def test_stopped_responses_are_trained_and_not_cut(tied_model, tmp_path):
    """With DAPO's filter of responses that are cut at the limit, only stopped ones are left: hardly any other ends."""
    options = [f"rollout.hopeless={HERE}long", "rollout.hopeless_at=abcdefghijklm", "loss.overlong_filtering=true"]
    _, steps = train(tied_model, tmp_path, overrides=options)
    for step in steps:
        assert 0.1 < step["rollout/stopped"] < 0.9
        assert 0.1 < step["completion/truncated"] <= 1 - step["rollout/stopped"]
        assert step["completion/length"] < 11 and step["selection/rollouts"] > 0
        assert math.isfinite(step["grad_norm"]) and step["grad_norm"] > 0


def test_resumed_run_stops_the_same_responses(tied_model, tmp_path):
    """A run that lost its third step repeats it bit for bit."""
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    options = [f"rollout.hopeless={HERE}long", "rollout.hopeless_at=abcdefghijklm", "checkpoint.every=2"]
    _, steps = train(tied_model, whole, overrides=options)
    assert all(step["rollout/stopped"] > 0 for step in steps)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    trainer = Trainer(load_config([whole / "config.yaml"], [f"train.output_dir={resumed}"]), step_2(resumed))
    assert trainer.train() == 0
    trainer.close()
    assert same_run(whole, resumed)


def step_2(folder):
    """The checkpoint after two steps."""
    return folder / "checkpoints" / "step_000002"
