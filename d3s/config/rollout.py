"""The options of section rollout: the engine and how it samples responses."""
# ruff: noqa: RUF012 (pydantic copies the defaults that are lists)

from typing import Annotated, Literal

from pydantic import Field

from d3s.config.fields import (
    LOWEST_TEMPERATURE,
    MOST,
    AtLeastTwo,
    Count,
    Fraction,
    Integer,
    Number,
    Positive,
    RuleValue,
    Section,
    Switch,
)


class RolloutConfig(Section):
    engine: Literal["vllm", "transformers"] = "vllm"
    """Inference engine that samples the responses."""
    servers: list[str] = []
    """Addresses (http://HOST:PORT) of vLLM servers that replace the engine in each rank; docs/running.md#ranks shows
    how to start them."""
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
    length_limits: list[tuple[Count, Positive]] = []
    """Lower limits while training proceeds, as pairs [step, tokens] from step 0 on, such as [[0, 512], [100, 1024]];
    empty: max_completion_length in every step. Evaluation always has max_completion_length."""
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)] = []
    """At most four texts that end a response, such as "</answer>", in training and evaluation. The token that completes
    one is the last of the response and is trained like the others."""
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
    seeds: Literal["request", "engine"] = "request"
    """request: one seed per response. engine: one seed per batch, intended to be faster on GPUs; a response then
    depends on its batch, and options that determine batches must not change on resume."""
    batch_invariant: Switch = False
    """Generate with vLLM's batch-invariant kernels, so that on a GPU a response does not depend on its batch; slower.
    Needs GPUs of compute capability 9.0 or higher (on servers and in eval.py 8.0), see docs/running.md#determinism."""
    strategy: RuleValue = "plain"
    """How the responses of a training step are sampled, a rule: see d3s/rollout/strategy.py. plain: independently.
    Evaluation is always plain."""
