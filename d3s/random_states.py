"""The states of the random generators of a process, which a checkpoint keeps for each rank."""

import random

import numpy as np
import torch


def random_states() -> dict:
    """Return the states of all random generators of this process, as torch.load reads them with weights_only."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,  # of this rank's device
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }


def restore_random_states(states: dict) -> None:
    """Set all random generators of this process to `states`."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
