"""Parameters counted by how they are stored."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """Parameters of one kind of module: in quantisable matrices, in the model's dtype, and always in float32."""

    matrices: int = 0
    plain: int = 0
    float32: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.matrices + other.matrices, self.plain + other.plain, self.float32 + other.float32)

    def times(self, count: int) -> "Tally":
        """`count` of these."""
        return Tally(self.matrices * count, self.plain * count, self.float32 * count)

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.matrices + self.plain + self.float32
