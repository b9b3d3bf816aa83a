"""Cards by name: memory, arithmetic, bandwidths, from their makers' data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from ragen_verl.errors import RecipeError, nearest

__all__ = ["CARDS", "Card", "card_of"]


@dataclass(frozen=True)
class Card:
    """A GPU. Bytes and operations are those of the data sheet, without sparsity.

    Attributes:
        mib: memory as `nvidia-smi` lists it, MiB.
        tflops: bf16 tensor-core arithmetic, 10^12 operations a second.
        bandwidth: of its memory, 10^9 bytes a second.
        link: to the other cards of a node, 10^9 bytes a second in one direction (NVLink, else PCIe).
        host: to main memory, 10^9 bytes a second in one direction (PCIe).
    """

    mib: int
    tflops: float
    bandwidth: float
    link: float
    host: float

    @property
    def gb(self) -> float:
        """Memory in 10^9 bytes."""
        return self.mib * 2**20 / 1e9


#: Name -> card. Sources: NVIDIA's data sheets of H100 (SXM5), H200 (SXM), B200 (DGX B200, an eighth), A100 (SXM4), L40S
#: and RTX 6000 Ada; the Ada and Ampere (GA10x) white papers for 4090, 3090 and A10. GeForce: bf16 with float32 sums.
CARDS = {
    "h100": Card(81559, 989, 3350, 450, 64),
    "h200": Card(143771, 989, 4800, 450, 64),
    "b200": Card(183359, 2250, 8000, 900, 64),
    "a100-80": Card(81920, 312, 2039, 300, 32),
    "a100-40": Card(40960, 312, 1555, 300, 32),
    "l40s": Card(46068, 362, 864, 32, 32),
    "rtx6000-ada": Card(49140, 364, 960, 32, 32),
    "4090": Card(24564, 165, 1008, 32, 32),
    "3090": Card(24576, 71, 936, 32, 32),
    "a10": Card(23028, 125, 600, 32, 32),
}


def card_of(name: str) -> Card:
    """The card of a name.

    Raises:
        RecipeError: no card has this name.
    """
    if name not in CARDS:
        raise RecipeError(f"--card is {name!r}, which is no known card: {nearest(name, CARDS)}")
    return CARDS[name]
