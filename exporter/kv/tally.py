"""Parameters counted by how they are stored."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """Parameters of one kind of module.

    `matrices` and `experts` are linear layers, which quantisation may shrink; `plain` is in the model's dtype and
    `float32` always in float32.
    """

    matrices: int = 0
    plain: int = 0
    float32: int = 0
    experts: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.matrices + other.matrices,
            self.plain + other.plain,
            self.float32 + other.float32,
            self.experts + other.experts,
        )

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.matrices + self.plain + self.float32 + self.experts
