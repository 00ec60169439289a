"""Rollouts from plain transformers: works without vLLM, and is faster for tiny models.

Each distinct prompt is read once for all of its responses, responses with equal tokens so far are decoded as one row,
and each response draws its tokens from uniform numbers that its own seed fixes in advance.
"""

from collections.abc import Iterator
from inspect import signature
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import RolloutConfig
from d3s.groups import Rollout
from d3s.policy import product
from d3s.pretrained import attention_only, load_model, not_sharded, read_tokenizer
from d3s.rollout.engine import Engine, Key, Report, SamplingParams, token_entropies, weight_checksums

if TYPE_CHECKING:
    from transformers import DynamicCache

CACHES = "cache", "past_key_values"  # the argument's name in newer versions of transformers, and in older ones


class TransformersEngine(Engine):
    """Slower than vLLM on long responses."""

    def __init__(
        self, model_path: str, config: RolloutConfig, *, dtype: str, max_model_len: int, head_dtype: str = "auto"
    ) -> None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        with not_sharded():
            model = load_model(model_path, dtype=getattr(torch, dtype))
        takes = signature(model.forward).parameters
        self._cache = next((name for name in CACHES if name in takes), None)
        recurrent = model._is_stateful and "position_ids" not in takes  # without attention
        if recurrent or not self._cache:
            name = model.config.model_type
            raise UserError(f"model.name: {name} has no cache of keys and values, expected one; use another model")
        if getattr(model.config, "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")  # the default kernel leaves the cap out
        super().__init__(model_path, config, dtype=dtype, max_model_len=max_model_len)
        self._model = model.to(device).eval()
        if head_dtype == "float32":
            head = model.get_output_embeddings()
            head.forward = lambda hidden: product(hidden.flatten(0, -2), head.weight.T).unflatten(0, hidden.shape[:-1])
        self._tokenizer = read_tokenizer(model_path) if config.stop else None
        self._paddable = attention_only(model)

    @torch.no_grad()
    def sample(
        self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int], entropies: bool, on_finished: Report
    ) -> None:
        """See Engine.sample."""
        groups: dict[int, list[int]] = {}
        for i, rollout in enumerate(rollouts):
            # padding on the left is masked in attention, and changes the state of most recurrent layers
            groups.setdefault(0 if self._paddable else len(rollout.prompt_ids), []).append(i)
        size = self.max_num_seqs
        for part in (group[i : i + size] for group in groups.values() for i in range(0, len(group), size)):
            batch = [rollouts[i] for i in part]
            self._sample_batch(batch, params, [seeds[i] for i in part])
            for rollout in batch:
                if not entropies:
                    rollout.entropies = []
                on_finished(rollout)

    def _sample_batch(self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int]) -> None:
        """Fill in the responses, decoded as one batch with a row per distinct history, a prompt and what was drawn.

        Responses of a prompt that have drawn the same tokens so far have the same next-token distribution, so they
        share a row until they draw different tokens; each draws by its own uniform numbers.
        """
        device = self._model.device
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        uniforms = torch.stack([torch.rand(params.max_tokens, dtype=torch.float64, generator=g) for g in generators])
        uniforms = uniforms.to(device)
        limits = torch.tensor([self.max_model_len - len(r.prompt_ids) for r in rollouts], device=device)
        stop = torch.tensor(self.stop_token_ids, device=device)
        cache, mask, logits, rows = self._read_prompts(rollouts)
        active = torch.arange(len(rollouts), device=device)  # the responses that have not ended; `rows` are theirs
        for step in range(params.max_tokens):
            logits = logits.float()
            if params.temperature not in (0, 1):
                logits = logits / params.temperature
            kept = logits if params.top_p == 1 else _truncate(logits, params.top_p)
            logprobs = kept.log_softmax(-1)
            if params.temperature == 0:
                tokens = logprobs.argmax(-1)[rows]
            else:
                tokens = _draw(logprobs, rows, uniforms[active, step])
            going = [rollouts[i] for i in active.tolist()]
            drawn = tokens, logprobs[rows, tokens], token_entropies(logits)[rows]
            for rollout, token, logprob, entropy in zip(going, *(values.tolist() for values in drawn)):
                rollout.response_ids.append(token)
                rollout.logprobs.append(logprob)
                rollout.entropies.append(entropy)
            ongoing = ~torch.isin(tokens, stop) & (step + 1 < limits[active].clamp(max=params.max_tokens))
            if self.stop:
                stopped = torch.tensor([self._has_stop(rollout.response_ids) for rollout in going], device=device)
                ongoing &= ~stopped
            active, rows, tokens = active[ongoing], rows[ongoing], tokens[ongoing]
            if len(active) == 0:
                break
            histories, rows = torch.unique(rows * logits.shape[1] + tokens, return_inverse=True)
            parents = histories // logits.shape[1]
            if not torch.equal(parents, torch.arange(len(mask), device=device)):
                cache.reorder_cache(parents)  # selects rows by index_select, twice as fast as batch_select_indices
                mask = mask[parents]
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            logits = self._model(
                input_ids=(histories % logits.shape[1])[:, None],
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                **{self._cache: cache},
            ).logits[:, -1]
        for rollout in rollouts:
            ends_by_text = bool(self.stop) and self._has_stop(rollout.response_ids)
            rollout.finished = ends_by_text or rollout.response_ids[-1] in self.stop_token_ids

    def _has_stop(self, ids: list[int]) -> bool:
        """Whether the last tokens contain one of the texts that end a response. A token has at least one byte."""
        longest = max(len(text.encode()) for text in self.stop)
        end = self._tokenizer.decode(ids[-longest - 4 :], skip_special_tokens=False)
        return any(text in end for text in self.stop)

    def _read_prompts(self, rollouts: list[Rollout]) -> tuple["DynamicCache", Tensor, Tensor, Tensor]:
        """Read each distinct prompt once.

        Returns: the cache, the mask [D, P] of the D distinct prompts (they are padded on the left), the logits [D, V]
            of the first response token, and the row of each rollout's prompt.
        """
        places: dict[tuple[int, ...], int] = {}
        rows = [places.setdefault(tuple(r.prompt_ids), len(places)) for r in rollouts]
        width = max(map(len, places))
        device = self._model.device
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in places], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in places], device=device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = self._model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        return read[self._cache], mask, read.logits[:, -1], torch.tensor(rows, device=device)

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """See Engine.load_weights."""
        own = self._model.state_dict()
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)

    def checksums(self) -> dict[Key, int]:
        """See Engine.checksums."""
        return weight_checksums(self._model.named_parameters(), self.dtype)


def _draw(logprobs: Tensor, rows: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the cumulative distributions of these rows [R] of `logprobs` [D, V] at `uniforms` [R]; tokens [R].

    The responses of a row are searched together, so that its distribution, which may be long, is not copied for each.
    """
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    counts = torch.bincount(rows, minlength=len(cumulative))
    order = rows.argsort(stable=True)
    places = torch.empty_like(rows)  # of each response among those of its row
    places[order] = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows[order]]
    sought = cumulative.new_zeros(len(cumulative), int(counts.max()))
    sought[rows, places] = uniforms * cumulative[rows, -1]
    return torch.searchsorted(cumulative, sought, right=True)[rows, places]


def _truncate(logits: Tensor, top_p: float) -> Tensor:
    """Set the logits [B, V] outside the top p of the probability mass to -inf."""
    ordered, order = logits.softmax(-1).sort(-1, descending=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    return logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), float("-inf"))
