"""The verifier of final answers: extraction, equivalence, and worker processes that can be killed."""
