"""Seeds of sampled responses, derived from the run's seed, the stream and the response's index."""

from hashlib import sha256

MASK = 2**32 - 1  # torch's CPU generator (a Mersenne Twister) reads only the low 32 bits of a seed


# A bijection of the low 32 bits of `index` for a given seed and stream, so no two responses of a stream share a seed:
# MurmurHash3's finalizer (Appleby, 2011) between two keyed xors.
def rollout_seed(seed: int, stream: str, index: int) -> int:
    """Return the 32-bit seed of response `index` of a stream: "train", "eval/NAME" or "probe"."""
    keys = sha256(f"{stream}/{seed}".encode()).digest()
    x = (index & MASK) ^ int.from_bytes(keys[:4], "big")
    x = (x ^ x >> 16) * 0x85EBCA6B & MASK
    x = (x ^ x >> 13) * 0xC2B2AE35 & MASK
    return x ^ x >> 16 ^ int.from_bytes(keys[4:8], "big")


def rollout_seeds(seed: int, stream: str, groups: list[int], n: int) -> list[int]:
    """Return the seeds of n responses to each group, in order. Response j of group i has the index i * n + j."""
    return [rollout_seed(seed, stream, group * n + j) for group in groups for j in range(n)]
