"""The synchronous loop: generate, reward, select, update, sync. One call per stage."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from shlex import quote

import torch

from d3s.actor import Actor
from d3s.actor.lora import check_targets
from d3s.actor.micro_batches import SequenceMemoryError
from d3s.checkpoint import export_model, part_states, restore_parts
from d3s.collector import Collector, gather_batch
from d3s.common import NOTHING_TRAINED, UserError, make_directory
from d3s.config.checks import mismatch_problem
from d3s.config.schema import VERIFIER, Config
from d3s.data.dataset import contents, encode_problems, read_problems
from d3s.data.order import build_order
from d3s.data.prompts import resolve_template
from d3s.distributed import all_gather_objects, first_of_node_first, heartbeat, require_equal
from d3s.evaluation.best_evaluation import RECORD, BestEvaluation, read_record
from d3s.evaluation.evaluator import evaluate_on_ranks
from d3s.evaluation.files import Sample
from d3s.evaluation.sampling import Request, look_at
from d3s.first_look import engine_line, prompt_lines
from d3s.fitting import fit_recomputation
from d3s.groups import RolloutGroups, add_counts, resample
from d3s.passes import add_logprobs, add_ranks, forward_passes
from d3s.pretrained import load_pretrained
from d3s.reference import open_reference, require_use
from d3s.reward import RewardError, RewardFunction
from d3s.rollout import build_engine
from d3s.rollout.sync import sync_engine
from d3s.rollout.vllm_setup import check_batch_invariance
from d3s.rules import stateful, through_file
from d3s.schedule import Schedule, evaluation_problem, training_progress
from d3s.selector import Selector
from d3s.shapes import known_parameters
from d3s.threads import choose_threads
from d3s.tiny import find_model
from d3s.tracking.fingerprint import REFERENCE, WEIGHTS, changed_contents, model_contents, take_fingerprint
from d3s.tracking.metrics import TrainingStep, step_metrics, token_metrics
from d3s.tracking.profiler import StepProfiler
from d3s.tracking.samples import sample_records
from d3s.tracking.stop_signals import stoppable
from d3s.tracking.throughput import Throughput, cpu_seconds
from d3s.training_run import TrainingRun, describe_size, memory_gb
from d3s.trials import attempt_rewards

UNTRAINED = (
    "tokens_trained: no token was trained in any step, so the model is as it was; each group had equal rewards, or "
    "selector.rollouts and selector.tokens selected nothing"
)


class Trainer(TrainingRun):
    """One run: `train()` is the loop, `step()` its body. The imports above say where each stage is implemented."""

    def __init__(self, config: Config, checkpoint: Path | None = None) -> None:
        """Load data, engine and actor."""
        super().__init__(config, checkpoint)
        check_batch_invariance(config.rollout, trains=True)
        require_use(config)
        problems = read_problems(config)
        self.reward_function = RewardFunction(config.reward, config.rollout.max_completion_length)
        attempt_rewards(config, problems, self.reward_function)
        with first_of_node_first(self.accelerator) as first:
            model = find_model(config.model.name)
            self.tokenizer, budget = load_pretrained(model, config.rollout.max_completion_length, check=first)
            files = model_contents(model)
            teacher = config.loss.reference and find_model(config.loss.reference)
            if teacher:
                budget = min(budget, open_reference(config, teacher, self.tokenizer, check=first))
                files[REFERENCE] = model_contents(teacher)[WEIGHTS]
        choose_threads(known_parameters(model))
        check_targets(model, config.lora)
        self.prompts, self.tests = encode_problems(config, problems, self.tokenizer, budget)
        hashed = files | contents(config, problems, self.tokenizer)
        fingerprint = take_fingerprint(config, hashed, self.accelerator)
        changed = changed_contents(config, self.began.get("fingerprint", {}), fingerprint)
        self.schedule = Schedule(config, partial(require_equal, "schedule.follow", accelerator=self.accelerator))
        self.order = build_order(config, self.prompts.problems)
        self.best = BestEvaluation(config)
        self.selector = Selector(config.selector, config.reward)
        self.passes = {k < 1: forward_passes(config, k) for k in (0.5, 1.0)}
        longest = max(len(ids) for prompts in (self.prompts, *self.tests.values()) for ids in prompts.ids)
        max_length = longest + config.rollout.max_completion_length
        sized = config.updated(data={"max_prompt_length": longest})
        fitted = fit_recomputation(sized, model, self.accelerator, self.began.get("microbatch"))
        make_directory(self.run)
        self.engine = build_engine(
            model,
            fitted.rollout,
            dtype=config.model.dtype,
            max_model_len=max_length,
            seed=config.train.seed,
            head_dtype=config.model.head_dtype,
            weights_folder=self.run / "server_weights",
        )
        self.engine.sleep()
        heartbeat("load the actor")  # collective, unlike the loading before it
        self.actor = Actor(model, fitted, self.accelerator, max_length, teacher=teacher)
        self.collector = Collector(
            config, self.accelerator, self.engine, self.reward_function, self.tokenizer, self.prompts
        )
        self.parts = stateful(self.order, self.schedule.follow, self.collector.strategy, *self.reward_function.objects)
        self.parts |= {"best": self.best} if self.best.used else {}
        self.profiler = StepProfiler(config, self.accelerator)
        self.throughput = Throughput(config, self.actor.lm.config.to_dict(), self.accelerator)
        self._restore(evaluation_due=True)
        new_parts = restore_parts(self.parts, self.state.parts, self.accelerator)
        self.best.forget_unless_kept(all_gather_objects([read_record(self.run / "best")], self.accelerator)[0])
        due = self.state.evaluation_due
        self._open_log(fingerprint, changed, evaluation_due=due, checkpoint=self.checkpoint)
        self._warn(problems.notes, new_parts if self.checkpoint else [])
        if not self.best.problem():
            self._record_settings(changed)
        self.collector.look.say, self.collector.look.asked = self.tracker.say, "\\boxed" in self.prompts.texts[0]
        self.memory: dict[str, float] = {}

    def _warn(self, notes: list[str], new_parts: list[str]) -> None:
        """Warn of the data and options, and of parts without a saved state."""
        warnings = {f"data{i}": note for i, note in enumerate(notes)}
        warnings |= {"engine_correction": mismatch_problem(self.config), "schedule": evaluation_problem(self.config)}
        warnings |= {f"parts/{name}": f"the checkpoint has no state of {name}, which starts anew" for name in new_parts}
        warnings["stop_at"] = self.best.problem()
        for key, text in warnings.items():
            if text:
                self.tracker.warn(key, text)

    def _look_at(self, request: Request, sample: Sample) -> None:
        own = self.config.eval.reward or request.problem.reward or VERIFIER
        look_at(self.collector.look, request, sample, own)

    # --- the loop --------------------------------------------------------------------------------------------------

    @stoppable
    def train(self) -> int:
        """Train to the last step, or to the end of the step in which a signal to stop arrives; the exit code."""
        self._introduce()
        self._sync_engine(self.state.step)
        while True:
            if done := self.state.step == self.config.train.steps:
                self._export()  # before the last evaluation, which can fail
            self._evaluate()
            if stop := self._stopping():
                return self._stop(stop)
            if done or self.best.reached:
                break
            cpu = cpu_seconds()
            with self._timed("step"), self._saving_before(RewardError, SequenceMemoryError):
                metrics = self.advance()
            metrics["time/cpu"] = cpu_seconds() - cpu
            self._log(metrics)
            self.seconds = {}  # evaluation and checkpoint time is logged with the next step
            for problem in self.profiler.finish(self.state.step):
                self.tracker.warn(problem, problem)
            self.state.evaluation_due = self._due(self.config.eval.every) or self.state.step == self.config.train.steps
            if self._due(self.config.checkpoint.every):
                self._save()  # before the evaluation, which a resumed run makes if it does not end
        if not done:
            self._export()
        kind = "trained" if self.state.tokens_trained else "untrained"
        self.tracker.say(
            f"the {kind} model is in {self.run / 'model'}; for its curves: python -m d3s.report {quote(str(self.run))}"
        )
        if self.state.step >= self.config.train.steps and not self.state.tokens_trained:
            self.tracker.warn("untrained", UNTRAINED)
            return NOTHING_TRAINED
        return 0

    def advance(self) -> dict[str, float]:
        """Make a training step and count it. Returns its metrics."""
        done = self.step()
        self.state.step += 1
        return self._record(done)

    def step(self) -> TrainingStep:
        """One training step, in the seven steps of README.md."""
        config, step = self.config, self.state.step
        generator = torch.Generator().manual_seed(config.train.seed * 1_000_003 + step)

        n, k = self.schedule.at(step)  # 1. schedule: rollouts kept per problem, fraction of their tokens
        cross_share = self.schedule.cross_share()
        passes = self.passes[k < 1]

        groups = self.collect()  # 2. generate; 3. reward each response meanwhile
        eligible = groups.finished if config.loss.overlong_filtering else torch.ones_like(groups.finished)
        self.profiler.start(step + 1)

        with self._timed("exchange"):  # 4. advantage; 5. select rollouts
            advantages = self.selector.advantages(groups)
            require_equal("reward.advantages", advantages[0], self.accelerator)
            choose = partial(self.selector.rollouts, groups, advantages, eligible, cross_share)
            n = self.schedule.n_of(n, choose, generator)  # as planned, unless schedule.follow decides
            selection = choose(n, generator)
            require_equal("selector.rollouts", selection.kept, self.accelerator)
            if self.selector.settings.normalize == "after":
                require_equal("reward.advantages", selection.advantages, self.accelerator)
            token_advantages = self.collector.token_advantages(groups, selection)
            batch = gather_batch(groups, selection, self.accelerator, token_advantages)
            metrics = {} if token_advantages is None else token_metrics(batch, selection)

        with self._timed("logprobs"):
            add_ranks(self.actor, batch, passes)
        with self._timed("select"):  # 6. select tokens
            k = self.schedule.k_of(k, batch)  # as planned, unless schedule.follow decides
            self.selector.tokens(batch, k, generator)
            require_equal("selector.tokens", batch.selected, self.accelerator)
            if batch.weights is not None:
                require_equal("selector.tokens", batch.weights, self.accelerator)
        with self._timed("logprobs"):
            metrics |= add_logprobs(self.actor, batch, passes)

        updates, metrics["learning_rate"] = self._update_actor(batch, generator)  # 7. update, then sync the engine
        self.state.tokens_generated += groups.generated
        self.memory["memory/update_gb"] = memory_gb()
        with self._timed("sync"):  # also after a step that kept nothing: the engine sleeps and must wake
            metrics |= self._sync_engine(step + 1)
        return TrainingStep(k, groups, selection, batch, updates, metrics)

    # --- stages -------------------------------------------------------------------------------------------------------

    def collect(self) -> RolloutGroups:
        """Sample and reward responses to the next problems, then let the engine sleep."""
        with self._timed("generate"):
            try:
                groups = self._collect_next(self.config.train.prompts_per_step)
                if self.config.rollout.dynamic_sampling:
                    groups = resample(groups, self._collect_next)
                self.memory["memory/generate_gb"] = memory_gb()
            finally:
                self.engine.sleep()
        self.seconds["generate"] -= groups.waited
        self.seconds["reward"] = groups.waited
        return groups

    def _collect_next(self, count: int) -> RolloutGroups:
        asked, position = self.collector.problems_for(count), self.state.position
        problems = self.order.take(count=asked, position=position)
        require_equal("data.order", problems, self.accelerator)
        groups = self.collector.collect(problems, position, step=self.state.step, count=count)
        self.order.learn(problems=groups.problems, verdicts=groups.verdicts, rewards=groups.rewards)
        self.state.position += asked
        return groups

    def _sync_engine(self, step: int) -> dict[str, float]:
        """Load the weights after `step` into the engine and verify them. Collective."""
        trained = self.state.tokens_trained > 0
        return sync_engine(self.engine, self.actor, self.accelerator, self.prompts.ids, self.config, step, trained)

    def _evaluate(self) -> None:
        """If due, evaluate on every benchmark, the problems sharded over the ranks, log the results and save that.

        A signal to stop ends it, and it remains due.
        """
        if not self.state.evaluation_due or self._stopping():
            return
        with self._timed("evaluate"):
            started, opened = time.perf_counter(), self.reward_function.score_functions()
            arguments = self.engine, opened, self.tokenizer, self.tests, self.config, self.accelerator
            with self._saving_before(RewardError):
                results = evaluate_on_ranks(*arguments, lambda: self.stop_signal, self._look_at)
            if results is None:
                return
            spent = {"seconds": time.perf_counter() - started, "tokens_trained": self.state.tokens_trained}
            spent["processes"] = self.accelerator.num_processes
            for result in results:
                self.tracker.log_eval({"step": self.state.step} | result.record() | spent)
            accuracies = [right / result.n for result in results for right in result.right]
            if reason := self.schedule.observe_eval(accuracies):
                self.tracker.decide(self.state.step, "schedule.follow", reason)
            if self.best.used and (reason := self.best.observe_eval(results, self.state.step)):
                self.tracker.decide(self.state.step, "stop_at", reason)
        self.reward_function.take_stats()  # verifications of the evaluation do not count for the next step
        self.engine.take_preemptions()
        if self.config.eval.keep_best and self.best.improved:
            with self._timed("checkpoint"):
                export_model(self.actor, self.tokenizer, self.run / "best", {RECORD: self.best.evaluation})
        self.state.evaluation_due = False
        ends = self.best.reached and self.state.step > 0 and self.config.checkpoint.every > 0
        if self.tests and (ends or self.saved == self.state.step):
            self._save()

    def _save(self) -> None:
        parts = part_states(self.parts, self.accelerator)
        self.state.parts = {name: through_file(state, name) for name, state in parts.items()}
        super()._save()

    @contextmanager
    def _saving_before(self, *errors: type[UserError]) -> Iterator[None]:
        """If one of these ends the block, on all ranks, save a checkpoint of the last step and say so."""
        before = deepcopy(part_states(self.parts, self.accelerator))
        position = self.state.position
        try:
            yield
        except errors as error:
            if not self.state.step:
                raise
            restore_parts(self.parts, before, self.accelerator)
            self.state.position = position
            self._save()
            raise UserError(f"{error}; step {self.state.step} is saved in {self.run / 'checkpoints'}") from error

    # --- metrics ------------------------------------------------------------------------------------------------------

    def _introduce(self) -> None:
        config, accelerator = self.config, self.accelerator
        device = torch.cuda.get_device_name() if accelerator.device.type == "cuda" else "the CPU"
        self.tracker.say(
            f"{config.model.name}: {describe_size(self.actor.lm, config.model.compile)}, {config.model.dtype}, "
            f"{accelerator.num_processes} x {device}; {len(self.prompts.problems):,} problems; "
            f"{config.train.steps} steps ({self.state.step} done) of "
            f"{config.train.prompts_per_step} x {config.rollout.num_generations} responses; writes to {self.run}"
        )
        template = resolve_template(config.data.template, self.tokenizer)
        ends, stop = self.engine.stop_token_ids, config.rollout.stop
        about = prompt_lines(template, self.prompts.texts[0], self.tokenizer, ends, stop, config.reward.extraction)
        for label, text in [*about, ("engine", engine_line(self.engine))]:
            self.tracker.say(f"{label}: {text}")

    def _record(self, done: TrainingStep) -> dict[str, float]:
        """Write the samples of a step, show its metrics to schedule.follow, and return them."""
        metrics = step_metrics(done) | self.throughput.update(done.updates, done.groups, self.prompts.ids)
        settings, step = self.config.tracker, self.state.step
        if self.accelerator.is_main_process and settings.samples_every and (step - 1) % settings.samples_every == 0:
            self.tracker.log_samples(step, sample_records(self.config, done, self.prompts, self.tokenizer))
        if reason := self.schedule.observe(metrics):
            self.tracker.decide(step, "schedule.follow", reason)
        return metrics | (self.order.metrics() or {}) | (self.schedule.follow.metrics() or {})

    def _log(self, metrics: dict[str, float]) -> None:
        times = {f"time/{name}": seconds for name, seconds in self.seconds.items()}
        machine = self.memory | {"engine/preemptions": self.engine.take_preemptions()}
        machine |= self.throughput.rates(metrics, self.seconds)
        progress = {
            "progress": training_progress(self.state.step - 1, self.config.train.steps),
            "tokens_trained": self.state.tokens_trained,
            "tokens_generated": self.state.tokens_generated,
        }
        own = {f"reward/{name}": count for name, count in self.reward_function.take_stats().items()}
        own["time/cpu"] = metrics.pop("time/cpu")
        sums = add_counts(all_gather_objects([Counter(own)], self.accelerator))  # over ranks
        self.tracker.log({"step": self.state.step} | progress | metrics | sums | times | machine)

    def close(self) -> None:
        """End the processes of reward functions, flush and close all files, and restore the signal handlers.

        Also after a constructor that failed.
        """
        try:
            for part in ("engine", "reward_function", "tracker"):
                if hasattr(self, part):
                    getattr(self, part).close()
        finally:
            self.restore_signals()
