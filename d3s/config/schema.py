"""The options of a run: name, type, limits, default and meaning, one class per section.

The docstrings under the fields become docs/configuration.md (`python -m dev.reference`); d3s/config/load.py
merges files and overrides into a Config, and d3s/config/checks.py validates combinations of values.
"""
# ruff: noqa: RUF012 (pydantic copies the defaults that are lists)

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from d3s.config.fields import (
    LOWEST_TEMPERATURE,
    MOST,
    Arguments,
    AtLeastTwo,
    Count,
    Directory,
    Fraction,
    Integer,
    Number,
    Positive,
    RuleOption,
    RuleValue,
    Section,
    Source,
    Sources,
    Switch,
    TaskOptions,
    WeightedRule,
)

VERIFIER = "verify"  # of reward.functions
LENGTH = "length"  # the name of the length term among the parts of a reward


class ModelConfig(Section):
    name: Source = "tiny:precedence"
    """Policy to train: a hub name, a local directory, or tiny:precedence, tiny:mixed, tiny:chains, tiny:countdown,
    tiny:code or tiny:words."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the engine and of the forward and backward passes; the optimizer always keeps float32 weights."""
    head_dtype: Literal["auto", "float32"] = "auto"
    """Precision of the logits in the actor and the engine. auto: same as dtype. float32: logits are not rounded to
    bfloat16, which reduces the difference between actor and engine."""
    gradient_checkpointing: Switch | Count | Literal["auto"] = False
    """Recompute activations in the backward pass: much less memory for one additional forward pass. true: all layers. A
    number: as many, the first ones. auto: the fewest with which the planned update fits in 90 % of the free memory of
    the GPU; on a CPU none. See docs/running.md#memory."""
    compile: Switch = False
    """Compile the layers of the actor and of its reference when they first run, which takes seconds to minutes: see
    docs/gpu.md#measured-on-cpus. One process or DDP."""


class LoraConfig(Section):
    rank: Count | None = None
    """Train adapters of this rank on a frozen model, see docs/running.md#lora; null or 0 trains all weights."""
    alpha: Annotated[Number, Field(gt=0)] = 32
    """Scale of the adapters: a weight W becomes W + alpha / rank B A."""
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Adapted layers: all linear layers except the head, or those with one of these names, such as q_proj."""


class DataConfig(Section):
    path: Sources = "synthetic:precedence"
    """Training problems: a file, a benchmark, a hub data set, synthetic:TASK or reasoning-gym:TASK, or a list of these
    with weights: see docs/evaluation.md#training-data, of programs docs/rewards.md#code. Of train_sft.py: one source of
    demonstrations, see docs/beyond.md."""
    options: TaskOptions = {}
    """Options of tasks of reasoning-gym: {TASK: {option: value}}."""
    split: str = "train"
    """Split of the hub data set or task; of a benchmark by name test or, where there is one, train."""
    problem_field: str = "problem"
    """Field with the text of the problem, such as prompt.0.content, or with a conversation, see
    docs/evaluation.md#conversations."""
    answer_field: str = "answer"
    """Field with the final answer; of train_sft.py with the response, to which an end-of-sequence token is appended."""
    limit: Positive | None = None
    """Use at most this many problems of each source, the first ones; of a task, generate this many."""
    template: Source = "auto"
    """Prompt template: plain, base, chat, qwen-math, r1, or a text file that contains {problem}; see
    docs/evaluation.md#prompt-templates."""
    system_prompt: str | None = None
    """With template chat, the system turn before the problem."""
    chat_template_kwargs: Arguments = {}
    """With template chat, values for its variables, such as {enable_thinking: false}."""
    max_prompt_length: Positive = 1024
    """Maximum length of a prompt in tokens; of train_sft.py, with rollout.max_completion_length, of a demonstration."""
    bad_rows: Literal["stop", "skip"] = "stop"
    """Action for a training row that is no problem with an answer: end the run, or leave it out with a warning."""
    overlong_prompts: Literal["error", "drop"] = "error"
    """Action for problems whose prompt exceeds max_prompt_length, and for demonstrations that are too long."""
    order: Annotated[RuleValue, RuleOption("d3s.data.order:ORDER_RULES", "shuffle")] = "shuffle"
    """Choice of the problems of a step. shuffle: all in random order, reshuffled every epoch. d3s.methods.vade:Vade and
    d3s.methods.mopps:Mopps follow earlier outcomes."""
    decontaminate: list[Source] = []
    """Benchmarks (names or files); training problems that equal or overlap one of their problems are removed."""

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each source of `path`, in order."""
        return {self.path: 1} if isinstance(self.path, str) else {e["path"]: e["weight"] for e in self.path}

    @property
    def label(self) -> str:
        """The sources of `path` for messages."""
        return ", ".join(self.weights)


class RolloutConfig(Section):
    engine: Annotated[RuleValue, RuleOption("d3s.rollout.named:ENGINE_RULES", "vllm", "transformers")] = "vllm"
    """What samples the responses."""
    servers: list[str] = []
    """Addresses (http://HOST:PORT) of vLLM servers that replace the engines, see docs/running.md#ranks."""
    num_generations: AtLeastTwo = 32
    """G, responses sampled per problem."""
    temperature: Annotated[Number, Field(ge=LOWEST_TEMPERATURE, le=2)] = 1.0
    """Sampling temperature over the full vocabulary; the loss uses probabilities at this temperature too."""
    max_completion_length: Positive = 1024
    """Maximum length of a response in tokens."""
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)] = []
    """At most four texts that end a response, such as "</answer>". The token that completes one is the last of the
    response and is trained like the others."""
    max_num_seqs: Positive = 256
    """Responses generated at the same time by an engine, or in flight from each rank to each server."""
    tensor_parallel_size: Positive = 1
    """Consecutive ranks that share one engine; must divide the number of ranks."""
    gpu_memory_utilization: Fraction = 0.4
    """Fraction of GPU memory that the engine uses while it generates."""
    kv_cache_gb: Annotated[Number, Field(gt=0, le=10**6)] | None = None
    """Size of the KV cache in GB. null: what gpu_memory_utilization leaves; on a CPU room for all responses of a step,
    as far as memory is free, at least 0.5."""
    enforce_eager: Switch = False
    """Disable CUDA graphs: faster start, slower generation. Always true on a CPU."""
    sleep: Switch = True
    """Release the engine's GPU memory while the actor runs (no effect on a CPU)."""
    dynamic_sampling: Switch = False
    """DAPO: replace groups whose responses all get the same value of the first reward function by groups of further
    problems, in at most three more rounds."""
    max_logprob_gap: Annotated[Number, Field(gt=0)] | None = None
    """Maximum mean |log-probability difference| between engine and actor after a weight sync, see
    docs/running.md#ranks. null: 0.001 in float32, 0.1 in bfloat16."""
    seeds: Literal["request", "engine"] = "request"
    """request: one seed per response. engine: one seed per batch, intended to be faster on GPUs; a response then
    depends on its batch."""
    strategy: Annotated[RuleValue, RuleOption("d3s.rollout.strategy:STRATEGY_RULES", "plain")] = "plain"
    """How the responses of a training step are sampled. plain: independently. Evaluation is always plain."""


class RewardConfig(Section):
    functions: Annotated[
        list[WeightedRule], Field(min_length=1), RuleOption("d3s.reward:REWARD_RULES", "verify", "boxed")
    ] = [VERIFIER]
    """Reward functions, see docs/rewards.md. verify: 1 if the verifier finds the answer right, else 0; of a task of
    reasoning-gym its own score. boxed: 1 for one answer in a box."""
    errors: Literal["stop", "zero"] = "stop"
    """A function that fails ends the run after a checkpoint (stop), or the response counts as 0 (zero)."""
    extraction: Literal["strict", "lenient"] = "strict"
    """strict: the answer must be boxed. lenient: "the answer is …", "#### …" and similar forms count too."""
    timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 5.0
    """Time limit for verifying one answer, in seconds; a reward function of your own has twelve times as long."""
    workers: Annotated[Integer, Field(ge=1, le=1024)] = 2
    """Verifier processes per rank."""
    memory_mb: Annotated[Integer, Field(ge=256, le=MOST)] = 1024
    """Memory limit of a verifier process in MB."""
    length: Annotated[RuleValue, RuleOption("d3s.reward:LENGTH_RULES", "none", "overlong", "shorter")] = "none"
    """Term for the length of a response. {rule: overlong, buffer: 0.2, penalty: 0.5}: DAPO's soft overlong penalty.
    {rule: shorter, alpha: 0.1}: a right response loses by its length among the right ones."""
    advantages: Annotated[RuleValue, RuleOption("d3s.advantage:ADVANTAGE_RULES", "group", "batch", "none")] = "group"
    """Centered rewards are divided by the standard deviation of the group or of the batch, or not divided (none, Dr.
    GRPO)."""
    shaper: Annotated[RuleValue | None, RuleOption("d3s.rewards.token_advantages:SHAPER_RULES")] = None
    """Advantages of parts of a response. null: every token has the advantage of its response."""

    def rules(self) -> list[str | dict[str, Any]]:
        """The functions without their weights."""
        return [entry if isinstance(entry, str | dict) else entry[0] for entry in self.functions]

    def function_names(self) -> dict[str, str | dict[str, Any]]:
        """The functions in order, by the name of each in metrics: what follows the colon, if no other has the same."""
        paths = [rule if isinstance(rule, str) else rule["rule"] for rule in self.rules()]
        short = [path.rpartition(":")[2] for path in paths]
        names = (name if short.count(name) == 1 else path.replace(":", ".") for name, path in zip(short, paths))
        return dict(zip(names, self.rules(), strict=True))

    def weights(self) -> list[float]:
        """The weight of each function."""
        return [1.0 if isinstance(entry, str | dict) else entry[1] for entry in self.functions]

    def part_weights(self) -> dict[str, float]:
        """The weights by the names of function_names, and that of the length term."""
        return dict(zip(self.function_names(), self.weights(), strict=True)) | {LENGTH: 1.0}


class SelectorConfig(Section):
    rollouts: Annotated[RuleValue, RuleOption("d3s.selector:ROLLOUT_RULES", "max_variance", "random")] = "max_variance"
    """The N rollouts kept per problem: those of largest variance of the advantage (D3S), or random ones (the
    control)."""
    cross_share: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Fraction of N selected across the batch. 1: N x B rollouts of the pooled batch. 0: N rollouts of every group
    (D3S-I). In between, the rest is selected within each group first."""
    normalize: Literal["before", "after"] = "before"
    """before: compute advantages over all G, then select (D3S). after: select by reward, then normalize over the kept
    rollouts (PODS)."""
    tokens: Annotated[RuleValue, RuleOption("d3s.selector:TOKEN_RULES", "advantage_entropy", "entropy", "random")] = (
        "advantage_entropy"
    )
    """The trained tokens: those of largest |advantage| x entropy (D3S) or entropy (arXiv 2506.01939), or random ones
    (the control)."""
    token_scope: Literal["batch", "sample"] = "batch"
    """batch: select a fraction K of all tokens of the kept rollouts. sample: a fraction K of each rollout's tokens."""
    entropy_source: Literal["engine", "actor"] = "engine"
    """engine: entropies of the logits that the engine samples from. actor: an additional forward pass over the kept
    rollouts."""


class ScheduleConfig(Section):
    follow: Annotated[RuleValue, RuleOption("d3s.schedule:FOLLOW_RULES", "none")] = "none"
    """What the training moves. none: nothing, N and K follow the steps. Of d3s.methods, coverage:Coverage and
    plateau:Plateau move N and K, auto_share:AutoShare moves selector.cross_share."""
    n_shape: Annotated[
        RuleValue, RuleOption("d3s.schedule:N_SHAPE_RULES", "linear", "constant", "cosine", "exponential", "step")
    ] = "linear"
    """Curve of N from its initial to its final value over training."""
    k_shape: Annotated[
        RuleValue, RuleOption("d3s.schedule:K_SHAPE_RULES", "linear", "constant", "cosine", "exponential", "step")
    ] = "linear"
    """Curve of K, likewise."""
    n_init: AtLeastTwo | None = 8
    """N, rollouts kept per problem, in the first step; null: all G."""
    n_final: AtLeastTwo | None = 32
    """N in the last step, larger or smaller; null: all G."""
    k_init: Fraction = 0.05
    """K, the fraction of response tokens that is trained, in the first step."""
    k_final: Fraction = 0.20
    """K in the last step."""


class LossConfig(Section):
    kind: Annotated[RuleValue, RuleOption("d3s.loss:LOSS_RULES", "grpo", "gspo", "cispo")] = "grpo"
    """Objective: one function each in d3s/loss.py."""
    epsilon: Annotated[Number, Field(ge=0, le=1)] = 0.2
    """Lower clip: the ratio is at least 1 - epsilon."""
    epsilon_high: Annotated[Number, Field(ge=0)] | None = None
    """Upper clip: the ratio is at most 1 + epsilon_high; with cispo, as in TRL and ScaleRL, at most epsilon_high. null:
    at most 1 + epsilon."""
    normalizer: Literal["selected", "all", "sequence", "constant"] = "selected"
    """Denominator of the loss. selected: number of selected tokens. all: of all tokens in the kept rollouts. sequence:
    mean over each rollout's selected tokens, then over rollouts. constant: rollouts x rollout.max_completion_length."""
    beta: Annotated[Number, Field(ge=0)] = 0.0
    """Weight of the KL penalty to the reference model on the selected tokens; 0 loads none, unless a rule reads it."""
    reference: Source | None = None
    """The reference model, such as a teacher: of any size, with the tokenizer of model.name, loaded in model.dtype.
    null: the initial policy."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """With x = log(pi / pi_ref): k2 = x^2 / 2, k3 = exp(-x) + x - 1. As a loss, only k2 has the correct
    gradient in expectation."""
    overlong_filtering: Switch = False
    """DAPO: do not train on responses that are truncated at the length limit."""
    old_logprobs: Literal["actor", "engine"] = "actor"
    """pi_old of the ratio. actor: an additional forward pass if there are several updates per step. engine: the
    engine's log-probabilities, without engine_correction."""
    engine_correction: Annotated[
        RuleValue, RuleOption("d3s.loss:CORRECTION_RULES", "none", "truncate", "token_mask", "sequence_mask")
    ] = "none"
    """Correction for pi_old / pi_engine, see docs/method.md#other-objectives: {rule: truncate, cap: 2}, {rule:
    token_mask, floor: 0.5, cap: 5} (IcePop), or {rule: sequence_mask, cap: 1.01}, with 1.001 for thousands of tokens in
    bfloat16."""


class OptimConfig(Section):
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-6
    """Peak learning rate of AdamW."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up; linear and cosine decay to 0."""
    warmup_steps: Count = 0
    """Training steps over which the learning rate rises linearly from 0."""
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    """Decoupled weight decay of AdamW."""
    max_grad_norm: Annotated[Number, Field(gt=0)] = 1.0
    """Maximum gradient norm; larger gradients are scaled down."""
    num_minibatches: Positive = 1
    """Optimizer steps per pass over the kept rollouts of a training step."""
    num_iterations: Positive = 1
    """Passes over the kept rollouts of a training step."""


class TrainConfig(Section):
    output_dir: Directory = Path("runs/d3s")
    """Run directory; an error if it contains a run, unless --resume is given."""
    steps: Annotated[Integer, Field(ge=1, le=10**6)] = 100
    """Training steps; each samples new rollouts."""
    prompts_per_step: Positive = 16
    """B, problems (of train_sft.py demonstrations) per step over all ranks; a step repeats some if there are fewer."""
    max_tokens_per_microbatch: Positive | None = None
    """Maximum tokens per forward and backward pass; a prompt counts for each of its rollouts. null: 16,384, on a CPU
    fewer if they do not fit. If memory runs out, it is halved for the rest of the run; under ZeRO-3 the run ends."""
    collective_timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 1800
    """Time limit in seconds for ranks to wait for each other in a phase; then the run ends."""
    seed: Annotated[Integer, Field(ge=0, lt=2**31)] = 0
    """Seed of all random numbers."""
    profile_steps: list[Positive] = []
    """Steps to record with torch's profiler, counted from 1; see docs/gpu.md#profile-a-step."""
    deterministic: Switch = False
    """Update with kernels that add in the same order every time; on GPUs slower, on a CPU not needed. See
    docs/running.md#determinism."""


class EvalConfig(Section):
    data: list[Source] = []
    """Benchmarks to evaluate on during training: names, files, NAME=FILE, synthetic:TASK or reasoning-gym:TASK."""
    split: str = "test"
    """Split of the benchmarks, as data.split."""
    every: Count = 0
    """Steps between evaluations; 0: only before and after training."""
    n: Positive = 8
    """Samples per problem, at temperature 1; eval.py has others."""
    k: Annotated[list[Positive], Field(min_length=1)] = [1, 8]
    """Values of k for Pass@k; at most n."""
    reward: Annotated[RuleValue | None, RuleOption("d3s.reward:REWARD_RULES", "verify", "boxed")] = None
    """Function that scores the responses to all benchmarks. null: the reward of the data set (synthetic tasks,
    programs), else the verifier; never the rewards of the training."""
    stop_at: Annotated[Number, Field(gt=0)] | None = None
    """End training after an evaluation in which avg@n of the first benchmark is at least this, such as 0.5. Of right
    and wrong answers avg@n is Pass@1."""
    keep_best: Switch = False
    """Keep the model of the evaluation with the best avg@n of the first benchmark in best/ of the run."""
    limit: Positive | None = None
    """Use at most this many problems per benchmark, a random sample that is the same in every run. Of a task,
    generate this many."""


class CheckpointConfig(Section):
    every: Count = 50
    """Steps between checkpoints; the last step has one; 0: only the final model."""
    keep: Positive = 2
    """Checkpoints to keep, the newest ones."""


class TrackerConfig(Section):
    mirrors: list[Literal["tensorboard", "wandb"]] = []
    """Copies of metrics and evaluations: TensorBoard events in tensorboard/ of the run, Weights & Biases
    (WANDB_MODE=offline sends nothing)."""
    samples_every: Count = 10
    """Steps between files of sample responses; 0: write none."""
    samples: Positive = 8
    """Responses per sample file."""


class SftConfig(Section):
    held_out: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Share of the demonstrations that is not trained: held_out/loss is their mean cross-entropy per token, before and
    after training, and every eval.every steps."""
    prune: Annotated[RuleValue, RuleOption("d3s.sft.pruning:PRUNE_RULES", "none")] = "none"
    """Samples and tokens of a batch that are not trained, such as d3s.methods.q_tuning:q_tuning chooses. none: train
    all."""


class Config(Section):
    """All options of a run."""

    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    selector: SelectorConfig = SelectorConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tracker: TrackerConfig = TrackerConfig()
    sft: SftConfig = SftConfig()

    def updated(self, **sections: dict[str, Any]) -> Self:
        """A copy with other values of options, such as train={"steps": 3}, which are not checked."""
        changed = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=changed)


SECTIONS = {name: field.annotation.model_fields for name, field in Config.model_fields.items()}  # options by name
