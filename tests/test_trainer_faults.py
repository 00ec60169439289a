"""How runs end and what they leave: signals, faults, too little memory, a target, the best model, LoRA.

Resumed runs are compared with uninterrupted ones, bitwise; evaluations are scripted.
"""

import json
import os
import re
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from d3s import trainer, training_run
from d3s.actor import Actor
from d3s.checkpoint import find_resume, read_state
from d3s.commands.train import in_run_directory, run
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.loss import LOSS_RULES, grpo_loss
from d3s.packing import MICROBATCH
from d3s.pretrained import load_pretrained
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.tracking.run_directory import check_resume
from d3s.tracking.tracker import Tracker
from d3s.trainer import Trainer
from tests.helpers.command_line import lines, timeless
from tests.helpers.data_files import write_rows
from tests.helpers.evaluations import scripted_result
from tests.helpers.small_memory import above, small_memory
from tests.helpers.small_run import checkpoint_names, parameters, same_parameters, same_run
from tests.helpers.training import EVALUATED, train

FAST = "optim.learning_rate=1e-2"  # one update moves the weights far enough for the probe


# --- faults -----------------------------------------------------------------------------------------------------------


def test_signal_finishes_the_step_and_saves(tied_model, tmp_path, monkeypatch):
    """A signal during the first update. tests/end_to_end/test_resume.py tests how a process ends by a signal."""
    update, handler = Actor.update, signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Actor, "update", lambda *a: signal.raise_signal(signal.SIGTERM) or update(*a))
    _, steps = train(tied_model, tmp_path, overrides=["checkpoint.every=0"], code=128 + signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == handler
    assert [step["step"] for step in steps] == [1] and checkpoint_names(tmp_path) == ["step_000001"]


@pytest.mark.parametrize(
    ("lost", "checksums", "message"),
    [
        ([2], True, None),
        ([2, 3], True, "norm.weight are not the actor's"),
        ([2, 3], False, "rollout.max_logprob_gap allows 0.001"),
    ],
)
def test_lost_sync_is_repeated_once(tied_model, tmp_path, monkeypatch, lost, checksums, message):
    """A second loss ends the run: without checksums the log-probabilities of the probe prompts reveal it."""
    load_weights, calls = TransformersEngine.load_weights, []

    def load_some_weights(self, weights):
        calls.append(len(calls) + 1)
        list(weights) if calls[-1] in lost else load_weights(self, weights)

    monkeypatch.setattr(TransformersEngine, "load_weights", load_some_weights)
    if not checksums:
        monkeypatch.setattr(TransformersEngine, "checksums", lambda engine: {})
    error = f"sync of step 1: .*{message}.*stale or wrongly"
    with pytest.raises(UserError, match=error) if message else nullcontext():
        train(tied_model, tmp_path, overrides=[FAST, "train.steps=1"])
    assert calls == [1, 2, 3]  # before training, after the first step, and its repetition


@pytest.mark.parametrize(("call", "every", "message"), [(3, 0, "is nan"), (4, 1, "step 2 .* not saved: .* is nan")])
def test_half_a_step_is_never_saved(tied_model, tmp_path, monkeypatch, call, every, message):
    """A loss that is NaN in an optimizer step of step 2: the first saves step 1, the second leaves its checkpoint."""
    calls, saved, checkpoint = [], {}, tmp_path / "checkpoints" / "step_000001"

    def nan_once(logprobs, old_logprobs, advantages, epsilon, epsilon_high, denominator):
        calls.append(1)
        value, stats = grpo_loss(logprobs, old_logprobs, advantages, epsilon, epsilon_high, denominator)
        if len(calls) == 4:
            saved.update(parameters(checkpoint))
        return (value * float("nan") if len(calls) == call else value), stats

    monkeypatch.setitem(LOSS_RULES.builtin, "grpo", nan_once)
    with pytest.raises(UserError, match=message):
        train(tied_model, tmp_path, overrides=[f"checkpoint.every={every}"])
    assert checkpoint_names(tmp_path) == ["step_000001"] and bool(saved) == bool(every)
    after = parameters(checkpoint)
    assert all((after[name] == value).all() for name, value in saved.items())


def test_no_checkpoint_precedes_the_first_update(tied_model, tmp_path, monkeypatch):
    """Resumed from one, the run would lack the evaluation before training."""

    def nan(logprobs, old_logprobs, advantages, epsilon, epsilon_high, denominator):
        value, stats = grpo_loss(logprobs, old_logprobs, advantages, epsilon, epsilon_high, denominator)
        return value * float("nan"), stats

    monkeypatch.setitem(LOSS_RULES.builtin, "grpo", nan)
    with pytest.raises(UserError, match=r"^step 1: the loss is nan; a lower "):
        train(tied_model, tmp_path, overrides=EVALUATED)
    assert not (tmp_path / "checkpoints").exists() and len(lines(tmp_path / "eval.jsonl")) == 1


def test_warnings_are_given_once(tied_model, tmp_path, monkeypatch):
    """Of micro-batches that do not fit, with the value to set; of a mismatch, which this precision has not."""
    monkeypatch.setattr(trainer, "mismatch_problem", lambda config: "bfloat16")
    with small_memory(above(60)):
        train(tied_model, tmp_path)
    warnings = lines(tmp_path / "warnings.jsonl")
    assert [line["key"] for line in warnings].count("engine_correction") == 1
    [message] = [line["message"] for line in warnings if "microbatch" in line["message"]]
    # the option counts a shared prompt for each rollout; it is shorter than their responses
    assert 15 <= int(re.search(r"repeated with (\d+),", message).group(1)) <= 2 * 60


@pytest.mark.parametrize(("failing", "place"), [("update", "backward"), ("compute_logprobs", "forward")])
def test_sequence_beyond_memory_stops_after_a_checkpoint(tied_model, tmp_path, monkeypatch, failing, place):
    """In the second step. Resumed with enough memory, the run ends as one that always had it."""
    options = ["checkpoint.every=0", "loss.old_logprobs=actor", "data.order=d3s.methods.mopps:Mopps"]
    train(tied_model, tmp_path / "enough", overrides=options)
    method, collect, finished = getattr(Actor, failing), Trainer.collect, []

    def in_small_memory(*arguments, **options):
        with small_memory(lambda tokens: place if finished == [0, 1] else None):
            return method(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "collect", lambda run: finished.append(run.state.step) or collect(run))
        patched.setattr(Actor, failing, in_small_memory)
        with pytest.raises(UserError, match=r"passes of one sequence, .*; step 1 is saved in .*checkpoints$"):
            train(tied_model, tmp_path / "run", overrides=options)
    [name] = checkpoint_names(tmp_path / "run")
    assert name == "step_000001"
    train(tied_model, tmp_path / "run", overrides=options, checkpoint=tmp_path / "run" / "checkpoints" / name)
    assert same_run(tmp_path / "enough", tmp_path / "run")


def test_resumed_run_has_the_micro_batches_of_its_start(tied_model, tmp_path, monkeypatch):
    """Whatever memory is free by then, as with others the last bits would differ. An option decides again."""
    sizes = []
    for gb, *options in ((0.01,), (40,), (40, "train.max_tokens_per_microbatch=99")):
        monkeypatch.setattr("d3s.fitting.free_memory", lambda gb=gb: int(gb * 2**30))
        done = max((tmp_path / "checkpoints").glob("*"), default=None)
        train(
            tied_model, tmp_path, [], ["checkpoint.every=1", f"train.steps={len(sizes) + 1}", *options], checkpoint=done
        )
        sizes.append(read_state(tmp_path / "checkpoints" / f"step_{len(sizes) + 1:06}")["microbatch"])
    assert sizes[0] == sizes[1] < MICROBATCH and sizes[2] == 99


def test_memory_ending_in_the_sync_saves_nothing(tied_model, tmp_path, monkeypatch):
    """In the probe of the second step; the weights are no longer those of the first."""
    sync = trainer.sync_engine

    def in_small_memory(*arguments):
        with small_memory(lambda tokens: "forward" if arguments[5] == 2 else None):
            return sync(*arguments)

    monkeypatch.setattr(trainer, "sync_engine", in_small_memory)
    with pytest.raises(UserError, match=r"^weight sync of step 2: out of memory in passes of one .*utilization$"):
        train(tied_model, tmp_path / "run", overrides=["checkpoint.every=0"])
    assert not (tmp_path / "run" / "checkpoints").exists()


# --- whole runs with events -------------------------------------------------------------------------------------------

HERE = "tests.test_trainer_faults:"
faults: list[tuple[str, int, str]] = []  # where, in which step, and which; each comes once
STEP = SimpleNamespace(number=0)  # of the run: the one that is trained, or was before the evaluation


def happen(place):
    """Let the next fault come if its place and step are here."""
    if faults and faults[0][:2] == (place, STEP.number):
        kind = faults.pop(0)[2]
        if kind == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        elif kind == "kill":
            raise KeyboardInterrupt
        else:
            raise ValueError("moody")


def train_reward(response, answer):
    happen("train")
    return float(len(response) % 2 == 0)


def eval_reward(response, answer):
    happen("eval")
    return float(len(response) % 2 == 0)


EVENTS = {  # the faults, what the command says of each, and the next --resume
    "evaluation fails in the middle": [(("eval", 2, "error"), r"^eval\.reward: .*:eval_rew.*step 2 is saved", "auto")],
    "evaluation fails at the end": [(("eval", 4, "error"), r"^eval\.reward: .*step 4 is saved", "auto")],
    "first evaluation fails": [(("eval", 0, "error"), r"^eval\.reward: ", "never")],
    "signals in evaluations": [(("eval", 2, "signal"), 143, "auto"), (("eval", 4, "signal"), 143, "auto")],
    "kills around evaluations": [(("before log", 2, "kill"), None, "auto"), (("after log", 4, "kill"), None, "auto")],
    "a failing reward, twice": [(("train", 2, "error"), r"^reward\.functions: .*step 1 is saved", "auto")] * 2,
    "a kill while a checkpoint is replaced": [(("link", 2, "kill"), None, "auto")],
    "back to an earlier step, then a kill": [
        (("after log", 4, "kill"), None, "step_000001"),
        (("train", 3, "error"), r"step 2 is saved", "auto"),
    ],
    "a full disk at the last export": [(("export", 4, "full"), r"model: cannot be written", "auto")],
}  # fmt: skip


@pytest.fixture(scope="module")
def whole_run(tied_model, tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("events") / "whole"
    assert command(tied_model, folder, keep=9) == 0
    return folder


def command(model, folder, resume="never", keep=1):
    """The exit code of train.py, in this process."""
    STEP.number = -1  # rewards are tried before the first step
    config = load_config(
        ["configs/tiny.yaml", "tests/helpers/small.yaml"],
        [
            f"model.name={model}", f"train.output_dir={folder}", "train.steps=4", "train.prompts_per_step=2",
            "rollout.num_generations=4", "schedule.n_init=2", "schedule.n_final=4", "rollout.engine=transformers",
            "rollout.max_completion_length=8", f"reward.functions=[{HERE}train_reward]", "data.limit=20", *EVALUATED,
            f"eval.reward={HERE}eval_reward", "eval.every=2", "checkpoint.every=1", f"checkpoint.keep={keep}",
        ],
    )  # fmt: skip
    return in_run_directory(config, resume, run)


@pytest.mark.parametrize("name", EVENTS)
def test_run_goes_on_after_events(name, whole_run, tied_model, tmp_path, monkeypatch):
    """With one checkpoint kept: metrics, evaluations and model are those of the uninterrupted run, to the bit."""
    step, log = Trainer.step, Tracker.log_eval
    number = lambda trainer: setattr(STEP, "number", trainer.state.step)  # noqa: E731
    monkeypatch.setattr(Trainer, "step", lambda t: setattr(STEP, "number", t.state.step + 1) or step(t))
    evaluate, export, link = Trainer._evaluate, trainer.export_model, os.link
    monkeypatch.setattr(Trainer, "_evaluate", lambda t: number(t) or evaluate(t))
    monkeypatch.setattr(os, "link", lambda *a: happen("link") or link(*a))

    def exported(*arguments):
        try:
            happen("export")
        except ValueError:
            raise UserError("model: cannot be written (No space left on device)") from None
        export(*arguments)

    for module in (trainer, training_run):
        monkeypatch.setattr(module, "export_model", exported)
    monkeypatch.setattr(Tracker, "log_eval", lambda *a: happen("before log") or log(*a) or happen("after log"))
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    folder, resume, keep = tmp_path / "run", "never", 9 if "earlier" in name else 1
    for fault, expected, following in EVENTS[name]:
        faults[:] = [fault]
        if isinstance(expected, int):
            assert command(tied_model, folder, resume, keep) == expected
        else:
            with pytest.raises(UserError if expected else KeyboardInterrupt, match=expected):
                command(tied_model, folder, resume, keep)
        assert not faults
        resume = str(folder / "checkpoints" / following) if following.startswith("step") else following
    assert command(tied_model, folder, resume, keep) == 0
    for signal_number, handler in handlers.items():
        signal.signal(signal_number, handler)
    assert same_run(whole_run, folder)
    assert timeless(lines(folder / "eval.jsonl")) == timeless(lines(whole_run / "eval.jsonl"))
    assert checkpoint_names(folder)[-keep:] and max(checkpoint_names(folder)) == "step_000004"
    assert (folder / "abandoned_1").exists() == ("earlier" in name)
    last = [read_state(path / "checkpoints" / "step_000004") for path in (whole_run, folder)]
    assert last[0] == last[1] and not last[0]["evaluation_due"]


def test_resumed_finished_run_stays_as_it_is(whole_run, tied_model, tmp_path):
    """The first start says that no step is left, a second one nothing."""
    folder, contents = shutil.copytree(whole_run, tmp_path / "run"), []
    for _ in range(2):
        assert command(tied_model, folder, "auto", keep=9) == 0
        names = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
        contents.append({path: path.read_bytes() for path in names})
    assert contents[0] == contents[1]
    first = {path.relative_to(folder): content for path, content in contents[0].items()}
    assert {name for name, content in first.items() if (whole_run / name).read_bytes() != content} == {
        Path("warnings.jsonl")
    }


def test_shrunk_data_goes_on_or_is_one_sentence(tied_model, tmp_path):
    """Rules that know the problems refuse in a sentence; the others go on with those that are left, and warn."""
    path = tmp_path / "problems.jsonl"
    for rule, refused in (("shuffle", None), ("d3s.methods.vade:Vade", "data.path: got other problems than those of")):
        write_rows(path, [{"problem": f"{i} + {i} =", "answer": str(2 * i)} for i in range(12)])
        folder, options = tmp_path / rule.rpartition(":")[2], [f"data.path={path}", f"data.order={rule}"]
        train(tied_model, folder, overrides=[*options, "train.steps=2", "checkpoint.every=1"])
        write_rows(path, [{"problem": f"{i} + {i} =", "answer": str(2 * i)} for i in range(5)])
        with pytest.raises(UserError, match=refused) if refused else nullcontext():
            train(tied_model, folder, overrides=[*options, "train.steps=3"], checkpoint=find_resume(folder, "auto"))
            assert "changed/data.path" in {line["key"] for line in lines(folder / "warnings.jsonl")}


# --- the best model and the target ------------------------------------------------------------------------------------

OPTIONS = [*EVALUATED, "eval.every=1", "checkpoint.every=1", "checkpoint.keep=9", "train.steps=5"]
BEST = [*OPTIONS, "eval.keep_best=true"]


@pytest.fixture
def evaluate(monkeypatch):
    """evaluate(values) lets the evaluations of the next run have these values of Pass@1."""

    def script(*values):
        remaining = iter(values)
        monkeypatch.setattr(trainer, "evaluate_on_ranks", lambda *_: [scripted_result("precedence", next(remaining))])

    return script


def best_evaluation(folder):
    return json.loads((folder / "best" / "evaluation.json").read_text())


def test_run_ends_at_the_target_and_resumes_to_nothing(tied_model, tmp_path, evaluate):
    """As at its last step: a checkpoint, the model, exit code 0. A higher target continues as an unbroken run."""
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    values = (0.1, 0.2, 0.5, 0.3, 0.4, 0.5)
    evaluate(*values)
    train(tied_model, whole, overrides=[*OPTIONS, "eval.stop_at=0.9"])
    evaluate(*values[:3])
    options = [*OPTIONS, "checkpoint.every=3"]
    config, metrics = train(tied_model, ended, overrides=[*options, "eval.stop_at=0.5"])
    assert len(metrics) == 2
    assert [line["step"] for line in lines(ended / "warnings.jsonl") if line["key"] == "stop_at"] == [2]
    assert same_parameters(ended / "model", whole / "checkpoints" / "step_000002")

    checkpoint = find_resume(ended, "auto")
    assert checkpoint.name == "step_000002" and check_resume(checkpoint, 2, config) == []
    written = {path: path.read_bytes() for path in (ended / "metrics.jsonl", ended / "eval.jsonl")}
    train(tied_model, ended, overrides=[*options, "eval.stop_at=0.5"], checkpoint=checkpoint)
    assert all(path.read_bytes() == content for path, content in written.items())
    assert "takes no step; raise eval.stop_at" in lines(ended / "warnings.jsonl")[-1]["message"]
    assert not (ended / "resumes.jsonl").exists()

    evaluate(*values[3:])
    train(tied_model, ended, overrides=[*options, "eval.stop_at=0.9"], checkpoint=checkpoint)
    assert same_run(whole, ended)


def test_base_model_at_the_target_is_not_trained(tied_model, tmp_path, evaluate):
    evaluate(0.7)
    _, metrics = train(tied_model, tmp_path, overrides=[*BEST, "eval.stop_at=0.7"])
    assert metrics == [] and best_evaluation(tmp_path)["step"] == 0 and (tmp_path / "model" / "config.json").exists()


def test_best_model_is_kept_also_by_a_resumed_run(tied_model, tmp_path, evaluate):
    """Killed after step 4, whose model was the best, and resumed from step 2. A tie keeps the earlier one."""
    values = (0.2, 0.3, 0.1, 0.4, 0.6, 0.6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    evaluate(*values)
    train(tied_model, whole, overrides=BEST)
    assert best_evaluation(whole)["step"] == 4
    assert same_parameters(whole / "best", whole / "checkpoints" / "step_000004")
    assert not same_parameters(whole / "best", whole / "model") and not list(whole.glob(".*partial*"))
    load_pretrained(str(whole / "best"), 8)
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "model")
    evaluate(*values[3:])
    train(tied_model, killed, overrides=BEST, checkpoint=killed / "checkpoints" / "step_000002")
    assert best_evaluation(killed) == best_evaluation(whole)
    assert same_parameters(killed / "best", whole / "best") and same_run(whole, killed)
    assert timeless(lines(killed / "eval.jsonl")) == timeless(lines(whole / "eval.jsonl"))


def test_resumption_forgets_the_best_of_a_lost_future(tied_model, tmp_path, evaluate):
    """The option is turned on by a resumption; a second one never gets as good as what the first one had."""
    evaluate(0.2, 0.3, 0.1)
    train(tied_model, tmp_path, overrides=[*OPTIONS, "train.steps=2"])
    for first, values, expected in ((2, (0.3, 0.9), 0.9), (3, (0.25, 0.2), 0.25)):
        evaluate(*values)
        checkpoint = tmp_path / "checkpoints" / f"step_{first:06d}"
        train(tied_model, tmp_path, overrides=[*BEST, f"train.steps={first + 2}"], checkpoint=checkpoint)
        assert best_evaluation(tmp_path)["value"] == expected
    assert [line["key"] for line in lines(tmp_path / "warnings.jsonl")].count("parts/best") == 1


def test_lora_run_syncs_merged_weights_and_exports(tied_model, tmp_path, evaluate):
    """The engine's weights are the exported ones, and peft rebuilds them from the base model and the adapter.

    The adapter of the best model is kept beside that of the last one, which has learned more.
    """
    evaluate(0.2, 0.5, 0.1)
    _, steps = train(tied_model, tmp_path, overrides=[*BEST, "lora.rank=4", FAST, "loss.beta=0.1", "train.steps=2"])
    assert all(step["sync/max_abs_dlogp"] < 1e-4 < step["grad_norm"] for step in steps)
    assert steps[-1]["policy/kl_ref"] > 0
    base, merged = (AutoModelForCausalLM.from_pretrained(path) for path in (tied_model, tmp_path / "model"))
    moved = (base.model.layers[0].mlp.up_proj.weight - merged.model.layers[0].mlp.up_proj.weight).abs().max()
    assert moved > 1e-3 and torch.equal(base.lm_head.weight, merged.lm_head.weight)
    rebuilt = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()
    for name, weight in merged.state_dict().items():
        torch.testing.assert_close(rebuilt[name], weight, rtol=0, atol=1e-6)
    best, last = (load_file(tmp_path / f / "adapter_model.safetensors") for f in ("best-adapter", "adapter"))
    assert best.keys() == last.keys() and any(not torch.equal(best[name], last[name]) for name in best)
