"""Supervised training of a run directory: data, actor, checkpoints and log around its loop."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import torch

from d3s.actor import Actor
from d3s.actor.lora import check_targets
from d3s.common import UserError, make_directory
from d3s.config.schema import Config
from d3s.data.demonstrations import encode_demonstrations, read_demonstrations
from d3s.data.problems import problem_order
from d3s.data.prompts import render_prompt, resolve_template
from d3s.distributed import first_of_node_first, heartbeat, phase
from d3s.fitting import fit_recomputation
from d3s.loss import LOSS_RULES, cross_entropy_loss
from d3s.packing import Batch, supervised_batch
from d3s.pretrained import load_pretrained, stop_token_ids
from d3s.schedule import training_progress
from d3s.sft.pruning import needs_scores, prune
from d3s.shapes import known_parameters
from d3s.threads import choose_threads
from d3s.tiny import find_model
from d3s.tracking.fingerprint import changed_contents, model_contents, take_fingerprint
from d3s.tracking.metrics import update_metrics
from d3s.tracking.stop_signals import stoppable
from d3s.training_run import TrainingRun, describe_size, memory_gb

# Of those that the actor computes.
UPDATE_METRICS = {"loss", "grad_norm", "policy/entropy_selected", "selection/tokens_forwarded"}


class SftTrainer(TrainingRun):
    """One run of train_sft.py. The data order and the pruning depend on the seed and the step alone."""

    def __init__(self, config: Config, checkpoint: Path | None = None) -> None:
        """Load data and actor."""
        super().__init__(config, checkpoint)
        pairs = read_demonstrations(config.data, config.train.seed)
        with first_of_node_first(self.accelerator) as first:
            model = find_model(config.model.name)
            self.tokenizer, budget = load_pretrained(model, max_tokens=1, check=first)
            files = model_contents(model)
        choose_threads(known_parameters(model))
        check_targets(model, config.lora)
        fitted = fit_recomputation(config, model, self.accelerator, self.began.get("microbatch"))
        end = stop_token_ids(model)[0] if self.tokenizer.eos_token_id is None else self.tokenizer.eos_token_id
        limit = min(config.data.max_prompt_length + config.rollout.max_completion_length, budget + 1)
        self.samples, dropped = encode_demonstrations(pairs, config.data, self.tokenizer, end, limit)
        longest = max(len(prompt) + len(response) for prompt, response in self.samples)
        self.held_out = self._hold_out() if config.sft.held_out else None
        template = render_prompt("{problem}", config.data.template, self.tokenizer)
        rows = {} if config.data.path.startswith("synthetic:") else {"data.path": pairs}
        fingerprint = take_fingerprint(config, files | rows | {"data.template": [template]}, self.accelerator)
        changed = changed_contents(config, self.began.get("fingerprint", {}), fingerprint)
        make_directory(self.run)
        heartbeat("load the actor")  # collective, unlike the loading before it
        loss = replace(LOSS_RULES, builtin={"cross_entropy": cross_entropy_loss}).rule("cross_entropy")
        self.actor = Actor(model, fitted, self.accelerator, longest, loss)
        self._restore()
        self._open_log(fingerprint, changed)
        if dropped:
            self.tracker.warn("overlong", f"{dropped} demonstrations longer than {limit} tokens were dropped")
        self._record_settings(changed)

    @stoppable
    def train(self) -> int:
        """Train to the last step, or to the end of the step in which a signal to stop arrives; the exit code."""
        self._introduce()
        pruned = self.config.sft.prune != "none"
        if self.held_out and self.state.step == 0:
            self.held_out_loss()
        started, cpu = time.perf_counter(), time.process_time()
        for batch in self.batches():
            metrics = (self.prune(batch) if pruned else {}) | self.update(batch)
            self.state.step += 1
            times = {"time/step": time.perf_counter() - started, "time/cpu": time.process_time() - cpu}
            done = self.state.step == self.config.train.steps
            try:
                if self.held_out and (done or self._due(self.config.eval.every)):
                    metrics["held_out/loss"] = self.held_out_loss()
            finally:  # an evaluation that fails must not lose the step
                self._log(metrics, times)
                if self._due(self.config.checkpoint.every):
                    self._save()
            if stop := self._stopping():
                return self._stop(stop)
            started, cpu = time.perf_counter(), time.process_time()
        self._export()
        self.tracker.say(f"the trained model is in {self.run / 'model'}")
        return 0

    def _hold_out(self) -> Batch:
        """Take sft.held_out of the samples out of the training data, each with its copies or not at all."""
        count, share = len(self.samples), self.config.sft.held_out
        texts = [tuple(map(tuple, sample)) for sample in self.samples]
        copies, left, held = Counter(texts), max(1, round(share * count)), set()
        for i in problem_order(count, self.config.train.seed, position=0, count=count):
            if texts[i] not in held and copies[texts[i]] <= left:
                held.add(texts[i])
                left -= copies[texts[i]]
        if len(held) in (0, len(copies)):
            problem = f"got {share:g}, which is {'all' if held else 'none'} of {count} demonstrations with their copies"
            raise UserError(f"sft.held_out: {problem}; choose another share, or remove copies")
        chosen = [text in held for text in texts]
        batch = supervised_batch(list(compress(self.samples, chosen)))
        self.samples = [sample for sample, out in zip(self.samples, chosen) if not out]
        return batch

    def held_out_loss(self) -> float:
        """The mean cross-entropy of the held-out tokens in nats, which it shows. Collective."""
        with phase("evaluate"):
            loss = -self.actor.compute_logprobs(self.held_out, entropies=False)[0].mean().item()
        self.tracker.say(f"held-out loss at step {self.state.step}: {loss:.4f}")
        return loss

    def batches(self) -> Iterator[Batch]:
        """The batches of the remaining steps; `state.position` counts the demonstrations taken."""
        while self.state.step < self.config.train.steps:
            count = self.config.train.prompts_per_step
            indices = problem_order(len(self.samples), self.config.train.seed, self.state.position, count)
            self.state.position += count
            yield supervised_batch([self.samples[i] for i in indices])

    def prune(self, batch: Batch) -> dict[str, Any]:
        """Restrict a batch to the samples and tokens that are trained, by a pass without gradient where needed."""
        rule, scores = self.config.sft.prune, (None, None)
        generator = torch.Generator().manual_seed(self.config.train.seed * 1_000_003 + self.state.step)
        if needs_scores(rule):
            with phase("logprobs"):
                scores = self.actor.compute_logprobs(batch)
        return prune(batch, rule, *scores, generator)

    def update(self, batch: Batch) -> dict[str, Any]:
        """One optimizer step on the selected tokens; dropped samples are not run, dropped tokens have no head."""
        generator = torch.Generator().manual_seed(self.config.train.seed)  # of an order within one optimizer step
        steps, rate = self._update_actor(batch, generator)
        metrics, trained = update_metrics(steps), int(batch.trained.sum())
        counts = {"selection/tokens": trained, "selection/tokens_total": len(batch.selected), "learning_rate": rate}
        return {name: metrics[name] for name in metrics.keys() & UPDATE_METRICS} | counts

    def _introduce(self) -> None:
        config, count = self.config, len(self.samples)
        passes = config.train.steps * config.train.prompts_per_step / count
        self.tracker.say(
            f"{config.model.name}: {describe_size(self.actor.lm, config.model.compile)}, {config.model.dtype}, "
            f"{self.accelerator.num_processes} x {self.accelerator.device.type}; {count:,} demonstrations; "
            f"{config.train.steps} steps ({self.state.step} done) of {config.train.prompts_per_step}, "
            f"{passes:.2f} passes over the data; writes to {self.run}"
        )
        template, first = resolve_template(config.data.template, self.tokenizer), self.samples[0]
        texts = (self.tokenizer.decode(ids, skip_special_tokens=False) for ids in first)
        self.tracker.say("template: {}\nprompt: --->{}<---\nresponse: --->{}<---".format(template, *texts))

    def _log(self, metrics: dict[str, Any], times: dict[str, float]) -> None:
        progress = training_progress(self.state.step - 1, self.config.train.steps)
        counts = {"step": self.state.step, "progress": progress, "tokens_trained": self.state.tokens_trained}
        rate = metrics["selection/tokens_total"] / times["time/step"]
        machine = {"throughput/tokens_per_s": rate, "memory/update_gb": memory_gb()}
        self.tracker.log(counts | dict(sorted(metrics.items())) | times | machine)

    def close(self) -> None:
        """Flush and close all files, and restore the signal handlers."""
        self.tracker.close()
        self.restore_signals()
