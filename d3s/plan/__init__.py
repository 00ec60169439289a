"""`train.py --dry-run`: batch arithmetic, memory, step time, and what is on the local machine."""
