"""TRL's sides of benchmarks/speed/update.py and step.py, in TRL's environment.

    .venv-trl/bin/python -m benchmarks.speed.trl_side KIND FOLDER

KIND is `update` (one optimizer step per measurement), `losses` (several steps on one batch, reported once) or `step`
(a full training step per measurement, with vLLM). For the first two, rollouts and rewards enter through GRPOTrainer's
own `rollout_func` and `reward_funcs`, and TRL is unchanged. Its options are those that require the least work: no KL,
no gradient checkpointing, no vLLM correction, no forward pass for old log-probabilities (one optimizer step per
generation), its own chunked head and fused AdamW. `step` needs three changes to run on a CPU, see patch_vllm.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.harness import Meter, open_channel, report
from benchmarks.speed.workload import coin


class FixedRollouts(GRPOTrainer):
    """GRPOTrainer that records the cost of preparing the batch and the sum of a step's micro-batch losses."""

    preparing = (0.0, 0.0)  # wall seconds, CPU seconds
    step_loss = 0.0

    def _generate_and_score_completions(self, inputs):
        meter = Meter()
        meter.start()
        batch = super()._generate_and_score_completions(inputs)
        usage = meter.stop()
        self.preparing = (usage["wall"], usage["cpu"])
        return batch

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.step_loss += loss.item() if loss.dim() == 0 else 0.0
        return loss


class TimedUpdates(TrainerCallback):
    """Make one optimizer step per line on standard input. Preparing the batch (decoding, rewards) is not timed."""

    def __init__(self, channel) -> None:
        self.channel, self.meter, self.trainer = channel, Meter(), None

    def on_step_begin(self, args, state, control, **_) -> None:
        """Wait for the parent's request."""
        if not sys.stdin.readline():
            raise SystemExit(0)
        self.trainer.preparing = (0.0, 0.0)
        self.meter.start()

    def on_step_end(self, args, state, control, **_) -> None:
        """Report the update's usage."""
        usage = self.meter.stop()
        wall, cpu = self.trainer.preparing
        report(self.channel, usage | {"wall": usage["wall"] - wall, "cpu": usage["cpu"] - cpu})


class Losses(TrainerCallback):
    """Record the loss of every optimizer step."""

    def __init__(self) -> None:
        self.values, self.trainer = [], None

    def on_step_end(self, args, state, control, **_) -> None:
        """Append the sum over the micro-batches, whose losses TRL has divided by their number."""
        self.values.append(self.trainer.step_loss)
        self.trainer.step_loss = 0.0


def options(folder: Path, work: dict, steps: int) -> dict:
    """Arguments of GRPOConfig: the options with the least work, with the batch and micro-batches of `work`."""
    count = work["rollouts"]
    if count % work["micro_batch"]:
        raise SystemExit(f"--micro-batch: {work['micro_batch']} does not divide the number of rollouts, {count}")
    accumulation = count // work["micro_batch"]
    return {
        "output_dir": str(folder / "trl"),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "loss_type": work.get("loss", "grpo"),
        "beta": 0.0,
        "temperature": work["temperature"],
        "num_generations": work["group"],
        "num_iterations": work.get("iterations", 1),
        "max_completion_length": work["response_tokens"],
        "per_device_train_batch_size": work["micro_batch"],
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,
        "learning_rate": work["learning_rate"],
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "max_steps": steps,
        "logging_steps": 1 if "iterations" in work else 10**9,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def load(folder: Path) -> tuple:
    """The folder's model in float32, and its tokenizer."""
    path = folder / "model"
    return AutoModelForCausalLM.from_pretrained(path, dtype="float32"), AutoTokenizer.from_pretrained(path)


def make_trainer(model, tokenizer, config: GRPOConfig, callback: TrainerCallback, prompts: list[str], **more):
    """Create the trainer, and set it in its callback."""
    trainer = FixedRollouts(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=tokenizer,
        callbacks=[callback],
        **more,
    )
    callback.trainer = trainer
    return trainer


def with_fixed_rollouts(model, tokenizer, config: GRPOConfig, work: dict, callback: TrainerCallback) -> FixedRollouts:
    """Create a trainer whose every generation returns the rollouts of `work`."""

    def rollouts(prompts: list, trainer: GRPOTrainer) -> dict:
        return {
            "prompt_ids": work["prompts"],
            "completion_ids": work["responses"],
            "logprobs": work["logprobs"],
            "given": work["rewards"],
        }

    def reward(completions, given, **_) -> list[float]:
        return given

    prompts = ["."] * work["rollouts"]
    return make_trainer(model, tokenizer, config, callback, prompts, reward_funcs=reward, rollout_func=rollouts)


def patch_vllm() -> None:
    """Change TRL 1.16 so that it runs with vLLM on a CPU: float32, no compiler, and another weight sync.

    TRL starts vLLM in bfloat16 and compiled. Its weight sync calls `load_weights` on the model, which fails on a CPU
    because the CPU build repacks linear layers; `reload_weights` is vLLM's own method, which d3s uses too.
    """
    import vllm
    from trl.generation import vllm_generation

    def cpu_engine(**settings) -> vllm.LLM:
        return vllm.LLM(**settings, dtype="float32", enforce_eager=True, kv_cache_memory_bytes=2**29, block_size=32)

    def sync_weights(self) -> None:
        weights = ((n, p.data.clone()) for n, p in self.model.named_parameters(remove_duplicate=False))
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.llm.reset_prefix_cache()

    vllm_generation.LLM = cpu_engine
    vllm_generation.VLLMGeneration.sync_weights = sync_weights


class TimedSteps(TimedUpdates):
    """Time the full step: weight sync, generation, rewards, update."""

    def on_step_end(self, args, state, control, **_) -> None:
        """Report the step's usage."""
        report(self.channel, self.meter.stop() | {"generate": self.trainer.preparing[0]})


def with_vllm(folder: Path, work: dict, channel) -> FixedRollouts:
    """Create a trainer with vLLM in its process, without TRL's importance-sampling correction (a forward pass)."""
    patch_vllm()
    config = GRPOConfig(
        **options(folder, work, 10**6),
        use_vllm=True,
        vllm_mode="colocate",
        vllm_importance_sampling_correction=False,
        vllm_max_model_length=work["longest"],
    )

    def reward(completions, **_) -> list[float]:
        return [coin(completion) for completion in completions]

    return make_trainer(*load(folder), config, TimedSteps(channel), work["texts"], reward_funcs=reward)


def main(kind: str, folder: Path) -> None:
    work = json.loads((folder / "work.json").read_text())
    channel = open_channel()
    if kind == "losses":
        callback = Losses()
        config = GRPOConfig(**options(folder, work, work["iterations"]))
        trainer = with_fixed_rollouts(*load(folder), config, work, callback)
        trainer.train()
        norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
        report(channel, {"loss": callback.values, "grad_norm": norms})
    elif kind == "step":
        with_vllm(folder, work, channel).train()
    else:
        config = GRPOConfig(**options(folder, work, 10**6))
        with_fixed_rollouts(*load(folder), config, work, TimedUpdates(channel)).train()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
