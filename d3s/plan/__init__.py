"""The dry run: batch arithmetic, memory, step time, and what is on this machine."""
