"""Seeds of sampled responses: one 32-bit number for each, from the run's seed, the stream and the response's number."""

from hashlib import sha256

MASK = 2**32 - 1  # torch's CPU generator (a Mersenne Twister) reads the low 32 bits of a seed and no others


def rollout_seed(seed: int, stream: str, index: int) -> int:
    """The seed of response `index` of a stream ("train", "eval/NAME" or "probe"), from 0 to 2**32 - 1.

    For a given seed and stream this is a bijection of the low 32 bits of `index` (MurmurHash3's finalizer between two
    keyed xors), so no two responses of a stream share a seed.
    """
    keys = sha256(f"{stream}/{seed}".encode()).digest()
    x = (index & MASK) ^ int.from_bytes(keys[:4], "big")
    x = (x ^ x >> 16) * 0x85EBCA6B & MASK
    x = (x ^ x >> 13) * 0xC2B2AE35 & MASK
    return x ^ x >> 16 ^ int.from_bytes(keys[4:8], "big")


def rollout_seeds(seed: int, stream: str, groups: list[int], n: int) -> list[int]:
    """Seeds of n responses to each of the groups, in order; response j of group i is number i * n + j."""
    return [rollout_seed(seed, stream, group * n + j) for group in groups for j in range(n)]
