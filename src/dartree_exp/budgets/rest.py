"""When a request stops drafting for a while."""

from __future__ import annotations

from dataclasses import dataclass

ALLOWANCE = 2.0  # plain steps that drafting may lose before it rests
CREDIT = 4.0  # most plain steps of earlier gains that count against losses
PROBE = 0.5  # plain steps that drafting may lose after a rest before it rests again
FIRST, LONGEST = 16, 128  # rounds of a rest


@dataclass
class Rest:
    """One request. Drafting is measured in plain steps of the target, by the cost curve: a round
    gains the tokens that it advances and loses what it costs.

    When losses exceed gains by `ALLOWANCE` the request rests for `FIRST` rounds, and after each
    probe that fails twice as long as before, up to `LONGEST`. So the loss against plain decoding
    grows with the logarithm of the answer's length.
    """

    balance: float = 0.0
    left: int = 0  # rounds of this rest
    length: int = FIRST  # of the next rest

    @property
    def resting(self) -> bool:
        return self.left > 0

    def rested(self) -> None:
        self.left -= 1

    def drafted(self, gained: float, lost: float) -> None:
        self.balance = min(self.balance + gained - lost, CREDIT)
        if self.balance < -ALLOWANCE:
            self.left, self.length = self.length, min(2 * self.length, LONGEST)
            self.balance = PROBE - ALLOWANCE
        elif self.balance >= 0:
            self.length = FIRST
