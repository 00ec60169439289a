"""The shelf: other people's methods as rules, one file each, as examples of one's own. Nothing in d3s imports it."""
