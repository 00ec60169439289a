"""The options of a run: schema, cross-field checks, loading and the generated reference page."""
