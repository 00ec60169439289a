"""Tasks of the package reasoning-gym: its code runs in worker processes alone, see worker.py."""
