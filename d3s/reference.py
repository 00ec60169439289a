"""Check the model of loss.reference, such as a teacher of another size: its use, its files and its tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from d3s.common import UserError
from d3s.loss import reads_reference
from d3s.pretrained import load_pretrained
from d3s.rules import rule_name
from d3s.selector import ranks_by_reference

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config


def require_use(config: Config) -> None:
    """Raise UserError for a loss.reference that nothing reads, and for tokens ranked by a model that is not loaded."""
    loss, tokens = config.loss, config.selector.tokens
    if reads_reference(loss.kind, loss.beta):
        return
    needed = f"requires loss.beta above 0, or a loss.kind that takes ref_logprobs, not {rule_name(loss.kind)}"
    if loss.reference:
        raise UserError(f"loss.reference: got {loss.reference}, which nothing reads; {needed}")
    if ranks_by_reference(tokens):
        raise UserError(f"selector.tokens: {rule_name(tokens)} takes ref_logprobs; {needed}")


def require_tokens(config: Config, tokenizer: Any, other: Any) -> None:
    """Require that each token of the policy has the same number in the reference's tokenizer, which may have more.

    Raises: UserError.
    """
    own, theirs = tokenizer.get_vocab(), other.get_vocab()
    different = sorted((token for token, number in own.items() if theirs.get(token) != number), key=own.get)
    if different:
        raise UserError(
            f"loss.reference: got {config.loss.reference}, whose tokenizer does not have {len(different):,} of the "
            f"{len(own):,} tokens of {config.model.name} under the same number, such as {different[0]!r}; use a model "
            "with the same tokenizer"
        )


def open_reference(config: Config, path: str, tokenizer: Any, check: bool = True) -> int:
    """Check the model of loss.reference at `path`, as load_pretrained does, and against the policy's tokenizer.

    Returns: its prompt budget.
    """
    other, budget = load_pretrained(path, config.rollout.max_completion_length, check)
    require_tokens(config, tokenizer, other)
    if other.embedding_rows < tokenizer.embedding_rows:  # the policy may sample from its padding too
        raise UserError(
            f"loss.reference: got {config.loss.reference} with vocab_size {other.embedding_rows}, expected at least "
            f"{tokenizer.embedding_rows}, that of {config.model.name}"
        )
    return budget
