"""Every option there is, with its default, its meaning and what is allowed.

YAML files are merged in order, `section.key=value` overrides come last, and what comes out is validated as a whole
before anything is loaded: an unknown key or an impossible value is one UserError naming the key, the value, what is
allowed, and the nearest valid name.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError


def _refuse_bool(value: Any) -> Any:
    """Refuse true and false, which Python would take as the numbers 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "must be a number")
    return value


LOWEST_TEMPERATURE = 0.01  # vLLM silently samples at this one where it is asked for less
MOST = 10**9  # upper limit of every count: far above what any machine holds, low enough to compute with
Number = Annotated[float, BeforeValidator(_refuse_bool)]  # text such as 1e-6, which YAML leaves as text, is a number
Integer = Annotated[int, Field(strict=True)]  # neither true, 3.0 nor "3"
Switch = Annotated[bool, Field(strict=True)]
Fraction = Annotated[Number, Field(gt=0, le=1)]
Count = Annotated[Integer, Field(ge=0, le=MOST)]
Positive = Annotated[Integer, Field(ge=1, le=MOST)]
AtLeastTwo = Annotated[Integer, Field(ge=2, le=MOST)]
ScheduleShape = Literal["linear", "constant", "cosine", "exponential", "step"]


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, defaults are checked, docstrings document the fields."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True)


class ModelConfig(Section):
    name: str = "tiny:precedence"
    """Hub name or local directory of the policy to train; tiny:precedence and tiny:countdown are made on the spot."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward and backward passes and of the engine; the optimizer always keeps float32 weights."""
    head_dtype: Literal["auto", "float32"] = "auto"
    """Precision of the logits, in the actor and in the engine. auto: that of dtype. float32: in half precision they are
    not rounded, which brings the two closer together; vLLM has the option under the same name."""
    gradient_checkpointing: Switch = False
    """Recompute activations in the backward pass: one more forward pass, for far less memory."""


class DataConfig(Section):
    path: str = "synthetic:precedence"
    """Training problems: a .jsonl, .json, .csv or .parquet file, a benchmark, a hub data set, or synthetic:TASK."""
    split: str = "train"
    """Split of a hub data set or synthetic task."""
    problem_field: str = "problem"
    """Field that holds the problem's text."""
    answer_field: str = "answer"
    """Field that holds the final answer."""
    limit: Positive | None = None
    """Use only the first N problems; of a synthetic task, how many to make (by default a few thousand)."""
    template: str = "plain"
    """How a problem becomes a prompt: plain, base, chat, qwen-math, r1, or a text file that contains {problem}."""
    max_prompt_length: Positive = 1024
    """Longest prompt in tokens."""
    overlong_prompts: Literal["error", "drop"] = "error"
    """What to do with a longer one."""
    decontaminate: list[str] = []
    """Benchmarks (names or files) whose problems, and those overlapping with them, are not trained on."""


class RolloutConfig(Section):
    engine: Literal["vllm", "transformers"] = "vllm"
    """What samples the responses."""
    servers: list[str] = []
    """Addresses of vLLM servers that sample instead of an engine beside each rank, http://HOST:PORT; docs/scaling.md
    has what they are started with."""
    num_generations: AtLeastTwo = 32
    """G, the responses sampled per problem."""
    temperature: Annotated[Number, Field(ge=LOWEST_TEMPERATURE, le=2)] = 1.0
    """Sampling temperature; the loss uses the probabilities at this temperature."""
    top_p: Fraction = 1.0
    """Nucleus sampling; below 1 the engine's probabilities differ from the policy's."""
    top_k: Annotated[Integer, Field(ge=-1, le=MOST)] = -1
    """Sample among the top k tokens; -1 or 0 for all."""
    max_completion_length: Positive = 1024
    """Longest response in tokens."""
    max_num_seqs: Positive = 256
    """Responses that the engine generates at once; of a server, those that each rank asks it for at once."""
    tensor_parallel_size: Positive = 1
    """Ranks that one engine is spread over, neighbours; must divide their number."""
    gpu_memory_utilization: Fraction = 0.4
    """Share of the GPU's memory that the engine takes while it generates."""
    kv_cache_gb: Annotated[Number, Field(gt=0, le=10**6)] | None = None
    """Size of the KV cache; by default from gpu_memory_utilization, and 0.5 GB on the CPU."""
    enforce_eager: Switch = False
    """No CUDA graphs: slower, a quicker start. Always so on the CPU."""
    sleep: Switch = True
    """Give the engine's GPU memory to the actor while that works (no effect on the CPU)."""
    dynamic_sampling: Switch = False
    """DAPO: replace groups that are all right or all wrong, whatever format and length add, by groups of further
    problems; with a reward function of your own, groups whose values are all equal."""
    max_resamples: Positive = 3
    """Rounds of dynamic sampling before the step goes on with what it has."""
    max_logprob_gap: Annotated[Number, Field(gt=0)] | None = None
    """Largest mean |log-probability difference| of engine and actor after a weight sync; beyond it the sync is repeated
    once, then the run stops. If not given, 0.001 in float32 and 0.1 in half precision."""
    seeds: Literal["request", "engine"] = "request"
    """request: every response has a seed of its own. engine: one seed per batch, meant to be faster on GPUs; a response
    then depends on the batch that it is sampled in, and what decides on batches may not change on resume."""


class RewardConfig(Section):
    function: str = "d3s.reward:verify"
    """module:function(response, answer) -> float; the default is the verifier: 1 if the answer is right, else 0."""
    extraction: Literal["strict", "lenient"] = "strict"
    """strict: the answer must be boxed; lenient: also "the answer is …", "#### …" and the like."""
    timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 5.0
    """Seconds that one answer may take to verify."""
    workers: Annotated[Integer, Field(ge=1, le=1024)] = 2
    """Verifier processes of each rank."""
    memory_mb: Annotated[Integer, Field(ge=256, le=MOST)] = 1024
    """Memory limit of each verifier process."""
    format_weight: Annotated[Number, Field(ge=0, le=10**6)] = 0.0
    """Added to the reward of a response that has a boxed answer."""
    overlong_buffer: Annotated[Number, Field(ge=0)] = 0
    """DAPO's soft overlong penalty: over the last overlong_buffer tokens before the length limit the reward falls
    linearly by overlong_penalty. A value below 1 is a share of rollout.max_completion_length."""
    overlong_penalty: Annotated[Number, Field(gt=0, le=10**6)] = 1.0
    """What a response at the length limit loses. DAPO's 1 goes with rewards of 1 and -1; for 1 and 0 it is 0.5."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """What centred rewards are divided by: the group's or the batch's standard deviation, or nothing (Dr. GRPO)."""


class SelectorConfig(Section):
    rollouts: Literal["max_variance", "random"] = "max_variance"
    """How the N rollouts per prompt are chosen."""
    cross_group: Switch = True
    """True: N x B of the pooled batch. False: N of every group."""
    cross_share: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """With cross_group: the share of N chosen across the batch; the rest is chosen within each group first."""
    normalize: Literal["before", "after"] = "before"
    """before: advantages over all G, then select (D3S). after: select on rewards, normalise what is kept (PODS)."""
    drop_zero_advantage: Switch = False
    """Leave out kept rollouts with advantage 0 (their loss is 0), as when N has grown to G."""
    tokens: Literal["advantage_entropy", "entropy", "random"] = "advantage_entropy"
    """What ranks the tokens: |advantage| x entropy (D3S), entropy alone (arXiv 2506.01939), or chance (the control)."""
    token_scope: Literal["batch", "sample"] = "batch"
    """K % of all tokens of the kept rollouts, or K % of each of them."""
    entropy_source: Literal["engine", "actor"] = "engine"
    """engine: computed from the logits that the engine samples from. actor: computed by a forward pass over the kept
    rollouts."""


class ScheduleConfig(Section):
    shape: ScheduleShape = "linear"
    """How N and K go from their initial to their final value over training."""
    n_shape: ScheduleShape | None = None
    """For N alone; shape if not given."""
    k_shape: ScheduleShape | None = None
    """For K alone; shape if not given."""
    n_init: AtLeastTwo | None = 8
    """N, rollouts kept per prompt, at the start; null keeps all G."""
    n_final: AtLeastTwo | None = 32
    """N at the end; null keeps all G."""
    k_init: Fraction = 0.05
    """K, the fraction of tokens that is trained, at the start."""
    k_final: Fraction = 0.20
    """K at the end."""


class LossConfig(Section):
    kind: Literal["grpo", "gspo", "cispo"] = "grpo"
    """The objective, one function in d3s/loss.py; the names here are those of LOSSES there."""
    epsilon: Annotated[Number, Field(ge=0, le=1)] = 0.2
    """Lower clip: the ratio is at least 1 - epsilon."""
    epsilon_high: Annotated[Number, Field(ge=0)] | None = None
    """Upper clip: the ratio is at most 1 + epsilon_high; epsilon if not given."""
    epsilon_high_is_bound: Switch = False
    """epsilon_high is the upper bound itself (TRL's and ScaleRL's convention for CISPO)."""
    normalizer: Literal["selected", "all", "sequence", "constant"] = "selected"
    """What the loss is divided by. selected: the selected tokens. all: all tokens of the kept rollouts. sequence: each
    rollout's own selected tokens, then the rollouts. constant: rollouts x rollout.max_completion_length."""
    beta: Annotated[Number, Field(ge=0)] = 0.0
    """Weight of the KL penalty to the initial policy, on the selected tokens; 0 loads no reference model."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """With x = log(pi / pi_ref): k1 = x, k2 = x^2 / 2, k3 = exp(-x) + x - 1; as a loss only k2's gradient is right."""
    overlong_filtering: Switch = False
    """DAPO: responses cut at the length limit are not trained."""
    old_logprobs: Literal["actor", "engine"] = "actor"
    """pi_old of the ratio. actor: computed if several updates per step need it. engine: as sampled, without that
    pass."""
    engine_correction: Literal["none", "truncate", "sequence_mask"] = "none"
    """Correct for pi_old / pi_engine. truncate: weight each token by it, at most the cap. sequence_mask: leave out
    rollouts whose mean is beyond the cap, at the price of a forward pass over all rollouts."""
    engine_correction_cap: Annotated[Number, Field(gt=1)] | None = None
    """truncate: the largest weight of a token, 2 if not given. sequence_mask: the largest geometric mean of a rollout's
    ratios (or of their inverses), 1.01 if not given; with thousands of tokens in bfloat16, 1.001."""


class OptimConfig(Section):
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-6
    """Peak learning rate of AdamW."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up; linear and cosine end at 0."""
    warmup_steps: Count = 0
    """Training steps over which the learning rate rises from 0."""
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    """AdamW's decoupled weight decay."""
    betas: tuple[Annotated[Number, Field(ge=0, lt=1)], Annotated[Number, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's moving averages."""
    max_grad_norm: Annotated[Number, Field(gt=0)] = 1.0
    """Gradients are clipped to this norm."""
    num_minibatches: Positive = 1
    """Optimizer steps per pass over a step's kept rollouts."""
    num_iterations: Positive = 1
    """Passes over a step's kept rollouts."""


class TrainConfig(Section):
    output_dir: Path = Path("runs/d3s")
    """The run directory; refused if it holds another run, unless --resume says to go on."""
    steps: Annotated[Integer, Field(ge=1, le=10**6)] = 100
    """Training steps, each with fresh rollouts."""
    prompts_per_step: Positive = 16
    """B, problems per step over all ranks."""
    max_tokens_per_microbatch: Positive = 16384
    """Tokens of one forward and backward pass; lower it when memory runs out."""
    collective_timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 1800
    """Seconds that a rank waits for the others in one phase before the run ends and names the missing ones."""
    seed: Annotated[Integer, Field(ge=0, lt=2**31)] = 0
    """Everything random follows from it."""


class EvalConfig(Section):
    data: list[str] = []
    """Benchmarks to evaluate on during training: names, NAME=FILE, files, or synthetic:TASK; empty for none."""
    split: str = "test"
    """Split of hub data sets and synthetic tasks."""
    every: Count = 0
    """Steps between evaluations; 0 evaluates before and after training only."""
    n: Positive = 8
    """Samples per problem."""
    k: Annotated[list[Positive], Field(min_length=1)] = [1, 8]
    """The k of Pass@k."""
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    """Sampling temperature, at least 0.01; 0 is greedy."""
    top_p: Fraction = 1.0
    """Nucleus sampling."""
    limit: Positive | None = None
    """Problems of each benchmark: a random sample, the same in every run (of a synthetic task, how many to make)."""


class CheckpointConfig(Section):
    every: Count = 50
    """Steps between checkpoints; 0 saves none but the final model."""
    keep: Positive = 2
    """How many of the newest stay."""


class TrackerConfig(Section):
    wandb: Literal["off", "offline", "online"] = "off"
    """Mirror the metrics to Weights & Biases."""
    project: str = "d3s"
    """Its project."""
    samples_every: Count = 10
    """Steps between files of sample responses; 0 writes none."""
    samples: Positive = 8
    """Responses per file."""

    @field_validator("wandb", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # what YAML makes of the bare word


class Config(Section):
    """A whole run."""

    model: ModelConfig = ModelConfig()
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
