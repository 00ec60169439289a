"""The options of train_sft.py that train.py does not have: demonstrations and their pruning."""

from typing import Annotated, Literal

from pydantic import Field

from d3s.config.fields import AtLeastTwo, Count, Fraction, Number, Positive, Section


class SftConfig(Section):
    path: str = "synthetic:precedence"
    """Demonstrations of train_sft.py: a .jsonl, .json, .csv or .parquet file, a hub data set, or synthetic:TASK."""
    split: str = "train"
    """Split of the hub data set."""
    prompt_field: str = "prompt"
    """Field with the text that the template receives as {problem}. A row without it may be a conversation: a list of
    turns {role, content} in field messages, of which every assistant turn is a demonstration; sft.template: chat."""
    response_field: str = "response"
    """Field with the response; an end-of-sequence token is appended to it."""
    limit: Positive | None = None
    """Use at most this many demonstrations, the first ones. Of a synthetic task, generate this many (null: 32768)."""
    template: str = "plain"
    """Prompt template: plain (the prompt as it is), base, chat, qwen-math, r1, or a text file that contains
    {problem}."""
    batch_size: Positive = 32
    """S, demonstrations per step over all ranks, before pruning."""
    max_length: AtLeastTwo = 4096
    """Maximum length of a prompt with its response in tokens."""
    overlong: Literal["error", "drop"] = "error"
    """Action for demonstrations that exceed max_length."""
    held_out: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Share of the demonstrations, drawn by train.seed, that is not trained: held_out/loss is their mean cross-entropy
    per token, before and after training."""
    held_out_every: Count = 0
    """Steps between further measurements of held_out/loss; 0: none."""
    sample_share: Fraction = 1.0
    """Fraction of the demonstrations of a batch that is trained; below 1 others are pruned."""
    token_share: Fraction = 1.0
    """Fraction of the tokens of the kept demonstrations that is trained; below 1 others are pruned."""
    samples: Literal["quadrants", "random"] = "quadrants"
    """Criterion for the kept demonstrations: quadrants of perplexity and entropy (Q-Tuning), or random (the control).
    """
    tokens: Literal["perplexity", "random"] = "perplexity"
    """Criterion for the kept tokens: perplexity of a token and its neighbors (Q-Tuning), or random (the control)."""
    keep: Literal["small", "large"] = "small"
    """Tokens kept by perplexity: small, as in the code of Q-Tuning, or large, as on its project page."""
