"""The options of a run: name, type, limits, default and meaning, one class per section.

The docstrings under the fields become docs/configuration.md (`python -m d3s.config.reference`); d3s/config/load.py
merges files and overrides into a Config, and d3s/config/checks.py validates combinations of values.
"""
# ruff: noqa: RUF012 (pydantic copies the defaults that are lists)

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from d3s.config.fields import (
    LOWEST_TEMPERATURE,
    MOST,
    AtLeastTwo,
    Count,
    Fraction,
    Integer,
    Number,
    Positive,
    ScheduleShape,
    Section,
    Share,
    Switch,
    WeightedName,
)
from d3s.config.sft import SftConfig

VERIFIER = "d3s.reward:verify"  # of reward.functions
ORDER_DECAYS = {"vade": (0.2, 0.999), "mopps": (0.5, 1.0), "veto": (0.5, 0.999)}  # data.decay: null, by data.order


class ModelConfig(Section):
    name: str = "tiny:precedence"
    """Policy to train: a hub name, a local directory, or tiny:precedence, tiny:countdown or tiny:code, which are
    built on first use."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the engine and of the forward and backward passes; the optimizer always keeps float32 weights."""
    head_dtype: Literal["auto", "float32"] = "auto"
    """Precision of the logits in the actor and the engine. auto: same as dtype. float32: logits are not rounded to
    bfloat16, which reduces the difference between actor and engine. vLLM has the same option."""
    gradient_checkpointing: Switch = False
    """Recompute activations in the backward pass: much less memory for one additional forward pass."""


class DataConfig(Section):
    path: str = "synthetic:precedence"
    """Training problems: a .jsonl, .json, .csv or .parquet file, a benchmark, a hub data set, or synthetic:TASK. Rows
    with the columns of HumanEval or MBPP are programs, see docs/rewards.md."""
    split: str = "train"
    """Split of the hub data set or synthetic task."""
    problem_field: str = "problem"
    """Field with the text of the problem."""
    answer_field: str = "answer"
    """Field with the final answer."""
    limit: Positive | None = None
    """Use at most this many problems, the first ones. Of a synthetic task, generate this many (null: a few
    thousand)."""
    template: str = "plain"
    """Prompt template: plain, base, chat, qwen-math, r1, or a text file that contains {problem}."""
    max_prompt_length: Positive = 1024
    """Maximum length of a prompt in tokens."""
    overlong_prompts: Literal["error", "drop"] = "error"
    """Action for problems whose prompt exceeds max_prompt_length."""
    order: Literal["shuffle", "vade", "mopps", "veto"] = "shuffle"
    """Choice of the problems of a step. shuffle: all in random order, reshuffled every epoch. vade (arXiv 2511.18902),
    mopps (arXiv 2507.04632): those of the best score, for success rates drawn from the posteriors of earlier outcomes.
    veto: shuffle without problems whose responses are probably all right or all wrong. See docs/beyond.md."""
    uniform_share: Annotated[Number, Field(ge=0, lt=1)] = 0.125
    """Share of the problems that vade, mopps and veto take from the shuffled order, whatever their outcomes."""
    decay: tuple[Annotated[Number, Field(ge=0, le=1)], Annotated[Number, Field(ge=0, le=1)]] | None = None
    """Share of its earlier outcomes that a problem keeps when it is asked, and in each step that does not ask it. null:
    0.2 and 0.999 (vade), 0.5 and 1 (mopps), 0.5 and 0.999 (veto)."""
    veto_above: Fraction = 0.6
    """veto leaves out problems whose responses are all equal with a probability above this. With the default decay, a
    new problem is left out after two groups of equal verdicts. See docs/beyond.md for other values."""
    decontaminate: list[str] = []
    """Benchmarks (names or files); training problems that equal or overlap one of their problems are removed."""


class RolloutConfig(Section):
    engine: Literal["vllm", "transformers"] = "vllm"
    """Inference engine that samples the responses."""
    servers: list[str] = []
    """Addresses (http://HOST:PORT) of vLLM servers that replace the engine in each rank; docs/distributed.md shows how
    to start them."""
    num_generations: AtLeastTwo = 32
    """G, responses sampled per problem."""
    temperature: Annotated[Number, Field(ge=LOWEST_TEMPERATURE, le=2)] = 1.0
    """Sampling temperature; the loss uses probabilities at this temperature too."""
    top_p: Fraction = 1.0
    """Nucleus sampling; below 1 the engine's probabilities differ from the policy's."""
    top_k: Annotated[Integer, Field(ge=-1, le=MOST)] = -1
    """Sample from the k most probable tokens; -1 or 0: from all."""
    max_completion_length: Positive = 1024
    """Maximum length of a response in tokens."""
    max_num_seqs: Positive = 256
    """Responses generated at the same time by an engine; with servers, requests in flight from each rank to each
    server."""
    tensor_parallel_size: Positive = 1
    """Consecutive ranks that share one engine; must divide the number of ranks."""
    gpu_memory_utilization: Fraction = 0.4
    """Fraction of GPU memory that the engine uses while it generates."""
    kv_cache_gb: Annotated[Number, Field(gt=0, le=10**6)] | None = None
    """Size of the KV cache in GB; null: what gpu_memory_utilization leaves, or 0.5 on a CPU."""
    enforce_eager: Switch = False
    """Disable CUDA graphs: faster start, slower generation. Always true on a CPU."""
    sleep: Switch = True
    """Release the engine's GPU memory while the actor runs (no effect on a CPU)."""
    dynamic_sampling: Switch = False
    """DAPO: replace groups whose responses are all right or all wrong, regardless of format and length rewards, by
    groups of further problems. With a custom reward function: groups whose values are all equal."""
    max_resamples: Positive = 3
    """Maximum additional rounds of dynamic sampling; after them the step trains on the groups that it has."""
    max_logprob_gap: Annotated[Number, Field(gt=0)] | None = None
    """Maximum mean |log-probability difference| between engine and actor after a weight sync. Above it the sync is
    repeated once, then the run stops. null: 0.001 in float32, 0.1 in bfloat16."""
    hopeless: str | None = None
    """End responses that cannot become right while they are generated: module:function(problem, text so far) -> bool.
    True ends the response there; the reward function scores the text so far. null: none are ended."""
    hopeless_at: Annotated[str, Field(min_length=1)] = "\n"
    """Characters; the function is asked when a new token contains one of them."""
    seeds: Literal["request", "engine"] = "request"
    """request: one seed per response. engine: one seed per batch, intended to be faster on GPUs; a response then
    depends on its batch, and options that determine batches must not change on resume."""
    strategy: Literal["plain", "tree"] = "plain"
    """plain: independent responses. tree: a share of every group branches off other responses where the next token is
    uncertain (LATR, arXiv 2510.24302). Evaluation is always plain."""
    tree_share: Annotated[list[tuple[Count, Share]], Field(min_length=1)] = [(0, 0.5), (200, 0.0)]
    """Share of a group that its tree provides, as pairs [step, share] from step 0 on."""
    tree_absolute: Share = 0.15
    """A response branches where the second most probable token has at least this probability at the temperature."""
    tree_relative: Share = 0.25
    """Maximum difference between the probabilities of the two most probable tokens where a response branches."""
    tree_lookahead: Count = 20
    """Tokens after which a branch is compared with the response that it left; 0: never."""
    tree_similarity: Share = 0.4
    """A branch is dropped if these tokens differ by less than this edit distance, as a fraction of their number."""


class RewardConfig(Section):
    functions: Annotated[list[WeightedName], Field(min_length=1)] = [VERIFIER]
    """Reward functions, module:function(response, answer, row) -> float, each alone or as [module:function, weight].
    `row` holds the columns of the problem; a function without it is called without. Evaluations count the first. The
    default is the verifier: 1 if the answer is right, else 0. See docs/rewards.md."""
    aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """Advantages of several functions. sum_then_normalize: of their weighted sum. normalize_then_sum: normalize each
    within its group, sum, and divide by the deviation of the batch (GDPO, arXiv 2601.05242)."""
    errors: Literal["stop", "zero"] = "stop"
    """A function that raises, hangs or returns no number ends the run after a checkpoint (stop), or the response counts
    as 0 (zero)."""
    call_timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 60.0
    """Time limit for a result of a reward function of your own, in seconds; of a class at least twice timeout_s."""
    extraction: Literal["strict", "lenient"] = "strict"
    """strict: the answer must be boxed. lenient: "the answer is …", "#### …" and similar forms count too."""
    timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 5.0
    """Time limit for verifying one answer, in seconds."""
    workers: Annotated[Integer, Field(ge=1, le=1024)] = 2
    """Verifier processes per rank."""
    memory_mb: Annotated[Integer, Field(ge=256, le=MOST)] = 1024
    """Memory limit of a verifier process in MB."""
    format_weight: Annotated[Number, Field(ge=0, le=10**6)] = 0.0
    """Reward added to a response with exactly one final answer in a nonempty box."""
    overlong_buffer: Annotated[Number, Field(ge=0)] = 0
    """DAPO's soft overlong penalty: over the last fraction (0 to 1) of rollout.max_completion_length the reward falls
    linearly by overlong_penalty; 0: no penalty."""
    overlong_penalty: Annotated[Number, Field(gt=0, le=10**6)] = 1.0
    """Reward lost by a response at the length limit. DAPO uses 1 with rewards 1 and -1; the equivalent for rewards 1
    and 0 is 0.5."""
    scale_rewards: Literal["group", "batch", "mean", "none"] = "group"
    """Divide centered rewards by the standard deviation of the group or the batch, by the group's mean (MaxRL, for
    nonnegative rewards), or do not divide (Dr. GRPO)."""
    std_floor: Annotated[Number, Field(ge=0, le=10**6)] = 0.0
    """Lower limit of the standard deviation that centered rewards are divided by, so that small differences between
    graded rewards do not weigh as much as right against wrong."""
    code_score: Literal["all", "rate", "calibrated"] = "all"
    """Score of a program by d3s.sandbox.code_reward:CodeReward. all: 1 if all tests pass, else 0. rate: share of the
    tests passed. calibrated: half of each, where tests that more of the group pass weigh less."""
    shaper: str | None = None
    """Advantages of parts of a response, as module:function(problem, response, answer, advantage) -> list of (start,
    end, advantage) in characters. null: every token has the advantage of its response."""
    pass_at_k: Positive | None = None
    """k: advantages for the probability that one of k responses is right (arXiv 2508.10751), for rewards of 0 and 1.
    null: advantages of single responses."""

    def function_names(self) -> dict[str, str]:
        """The functions in order, by the name of each in metrics: what follows the colon, if no other has the same."""
        paths = [entry if isinstance(entry, str) else entry[0] for entry in self.functions]
        short = [path.rpartition(":")[2] for path in paths]
        return {
            name if short.count(name) == 1 else path.replace(":", "."): path
            for name, path in zip(short, paths, strict=True)
        }

    def weights(self) -> list[float]:
        """The weight of each function."""
        return [1.0 if isinstance(entry, str) else entry[1] for entry in self.functions]


class SelectorConfig(Section):
    rollouts: Literal["max_variance", "abs_advantage", "random"] = "max_variance"
    """Criterion for the N rollouts kept per problem: largest variance of the advantage (D3S), largest |advantage|
    (CPPO), or random (the control)."""
    variance_mass: Fraction | None = None
    """Before rollouts are selected, drop all problems but the fewest that hold this share of the summed variance of
    the rewards (RAGEN-2). null: drop none."""
    cross_group: Switch = True
    """true: select N x B rollouts from the pooled batch. false: select N rollouts from every group."""
    cross_share: Annotated[Number, Field(ge=0, le=1)] | Literal["auto"] = 1.0
    """With cross_group: fraction of N selected across the batch, after the rest is selected within each group. auto:
    starts at 0 and follows the gradient norm, see docs/beyond.md."""
    max_advantage: Annotated[Number, Field(gt=0)] | None = None
    """Limit of |advantage|, applied before rollouts are compared and trained; null: no limit."""
    normalize: Literal["before", "after"] = "before"
    """before: compute advantages over all G, then select (D3S). after: select by reward, then normalize over the kept
    rollouts (PODS)."""
    drop_zero_advantage: Switch = False
    """Drop selected rollouts with advantage 0, whose policy loss is 0; they occur when N is close to G."""
    tokens: Literal["advantage_entropy", "entropy", "random", "nat", "nat_prefix"] = "advantage_entropy"
    """Priority of a token: |advantage| x entropy (D3S), entropy (arXiv 2506.01939), or random (the control). nat: keep
    each token with probability K and weight it by 1 / K; nat_prefix: keep a random prefix of each response, weighted
    likewise (NAT, arXiv 2603.06619). Under both every loss.normalizer counts all tokens of the kept rollouts."""
    token_scope: Literal["batch", "sample"] = "batch"
    """batch: select a fraction K of all tokens of the kept rollouts. sample: a fraction K of each rollout's tokens."""
    entropy_source: Literal["engine", "actor"] = "engine"
    """engine: entropies of the logits that the engine samples from. actor: an additional forward pass over the kept
    rollouts."""


class ScheduleConfig(Section):
    follow: Literal["none", "coverage", "plateau", "gap"] = "none"
    """What moves N and K between the schedule's ends. none: the steps. coverage: every step keeps the smallest even N
    and the smallest K that hold coverage_n and coverage_k. plateau: evaluations without progress advance the schedule
    by a quarter. gap: as plateau, when training accuracy exceeds the held-out one and grows away from it."""
    coverage_n: Fraction = 0.8
    """With coverage: share of the sum of squared advantages that the kept rollouts hold."""
    coverage_k: Fraction = 0.95
    """With coverage: share of the sum of |advantage| x entropy over the kept rollouts that the selected tokens hold."""
    patience: Positive = 2
    """With plateau: evaluations in a row that do not exceed the best one by a standard error."""
    n_shape: ScheduleShape = "linear"
    """Curve of N from its initial to its final value over training."""
    k_shape: ScheduleShape = "linear"
    """Curve of K from its initial to its final value over training."""
    n_init: AtLeastTwo | None = 8
    """N, rollouts kept per problem, in the first step; null: all G."""
    n_final: AtLeastTwo | None = 32
    """N in the last step, larger or smaller; null: all G."""
    k_init: Fraction = 0.05
    """K, the fraction of response tokens that is trained, in the first step."""
    k_final: Fraction = 0.20
    """K in the last step."""


class LossConfig(Section):
    kind: Literal["grpo", "gspo", "cispo"] = "grpo"
    """Objective; the names are those of LOSSES in d3s/loss.py, one function each."""
    epsilon: Annotated[Number, Field(ge=0, le=1)] = 0.2
    """Lower clip: the ratio is at least 1 - epsilon."""
    epsilon_high: Annotated[Number, Field(ge=0)] | None = None
    """Upper clip: the ratio is at most 1 + epsilon_high; with cispo, as in TRL and ScaleRL, at most epsilon_high. null:
    at most 1 + epsilon."""
    normalizer: Literal["selected", "all", "sequence", "constant"] = "selected"
    """Denominator of the loss. selected: number of selected tokens. all: number of tokens in the kept rollouts.
    sequence: mean over each rollout's selected tokens, then over rollouts. constant: rollouts x
    rollout.max_completion_length."""
    beta: Annotated[Number, Field(ge=0)] = 0.0
    """Weight of the KL penalty to the initial policy on the selected tokens; 0 loads no reference model."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """With x = log(pi / pi_ref): k2 = x^2 / 2, k3 = exp(-x) + x - 1. As a loss, only k2 has the correct
    gradient in expectation."""
    overlong_filtering: Switch = False
    """DAPO: do not train on responses that are truncated at the length limit."""
    old_logprobs: Literal["actor", "engine"] = "actor"
    """pi_old of the ratio. actor: an additional forward pass if there are several updates per step. engine: the
    engine's log-probabilities, no additional pass."""
    engine_correction: Literal["none", "truncate", "sequence_mask"] = "none"
    """Correction for pi_old / pi_engine. truncate: weight each token by the ratio, limited by the cap. sequence_mask:
    drop rollouts whose mean ratio is above the cap or below its inverse; needs a forward pass over all rollouts."""
    engine_correction_cap: Annotated[Number, Field(gt=1)] | None = None
    """truncate: maximum weight of a token (null: 2). sequence_mask: maximum geometric mean of a rollout's ratios or of
    their inverses (null: 1.01); use 1.001 for thousands of tokens in bfloat16."""


class OptimConfig(Section):
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-6
    """Peak learning rate of AdamW."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up; linear and cosine decay to 0."""
    warmup_steps: Count = 0
    """Training steps over which the learning rate rises linearly from 0."""
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    """Decoupled weight decay of AdamW."""
    betas: tuple[Annotated[Number, Field(ge=0, lt=1)], Annotated[Number, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay rates of AdamW's moving averages."""
    max_grad_norm: Annotated[Number, Field(gt=0)] = 1.0
    """Maximum gradient norm; larger gradients are scaled down."""
    num_minibatches: Positive = 1
    """Optimizer steps per pass over the kept rollouts of a training step."""
    num_iterations: Positive = 1
    """Passes over the kept rollouts of a training step."""


class TrainConfig(Section):
    output_dir: Path = Path("runs/d3s")
    """Run directory; an error if it contains a run, unless --resume is given."""
    steps: Annotated[Integer, Field(ge=1, le=10**6)] = 100
    """Training steps; each samples new rollouts."""
    prompts_per_step: Positive = 16
    """B, problems per step over all ranks."""
    max_tokens_per_microbatch: Positive = 16384
    """Maximum tokens per forward and backward pass; decrease it if memory runs out."""
    collective_timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 1800
    """Time limit in seconds for ranks to wait for each other in a phase; the run then ends and names the missing
    ranks."""
    seed: Annotated[Integer, Field(ge=0, lt=2**31)] = 0
    """Seed of all random numbers."""


class EvalConfig(Section):
    data: list[str] = []
    """Benchmarks to evaluate on during training: names, files, NAME=FILE or synthetic:TASK; empty: no evaluation."""
    split: str = "test"
    """Split of hub data sets and synthetic tasks."""
    every: Count = 0
    """Steps between evaluations; 0: only before and after training."""
    n: Positive = 8
    """Samples per problem."""
    k: Annotated[list[Positive], Field(min_length=1)] = [1, 8]
    """Values of k for Pass@k; at most n."""
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    """Sampling temperature: 0 (greedy) or at least 0.01."""
    limit: Positive | None = None
    """Use at most this many problems per benchmark, a random sample that is the same in every run. Of a synthetic
    task, generate this many."""


class CheckpointConfig(Section):
    every: Count = 50
    """Steps between checkpoints; 0: save only the final model."""
    keep: Positive = 2
    """Checkpoints to keep, the newest ones."""


class TrackerConfig(Section):
    wandb: Literal["off", "offline", "online"] = "off"
    """Mirror the metrics to Weights & Biases."""
    project: str = "d3s"
    """Weights & Biases project."""
    samples_every: Count = 10
    """Steps between files of sample responses; 0: write none."""
    samples: Positive = 8
    """Responses per sample file."""

    @field_validator("wandb", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML 1.1 reads a bare off as false


class Config(Section):
    """All options of a run."""

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
    sft: SftConfig = SftConfig()
