"""Programs in responses: extracting them, the reward of their tests, and the check of a data set's own solutions."""
