"""When a request stops drafting for a while."""

from __future__ import annotations

from dataclasses import dataclass

ALLOWANCE = 1.5  # plain steps that drafting may lose before it rests
CREDIT = 2.0  # most plain steps of earlier gains that count against losses
PROBE = 0.3  # plain steps that drafting may lose after a rest before it rests again
FIRST, LONGEST = 16, 128  # rounds of a rest
PRIOR = 4.0  # expected tokens that are taken to have come true in advance
KEPT = 0.95  # weight of earlier rounds in the share of expected tokens that came true


@dataclass
class Rest:
    """One request. Drafting is measured in plain steps of the target, by the cost curve: a round
    gains the tokens expected of its tree, times the share of recently expected tokens that came
    true, and loses what it costs. Tokens themselves vary so much from round to round that an answer
    on which drafting pays would often rest; a prediction that is too high on average is caught by
    the share.

    When losses exceed gains by `ALLOWANCE` the request rests for `FIRST` rounds, and after each
    probe that fails twice as long as before, up to `LONGEST`. So the loss against plain decoding
    grows with the logarithm of the answer's length.
    """

    balance: float = 0.0
    left: int = 0  # rounds of this rest
    length: int = FIRST  # of the next rest
    expected: float = PRIOR  # tokens of recent drafted rounds
    advanced: float = PRIOR

    @property
    def resting(self) -> bool:
        return self.left > 0

    def rested(self) -> None:
        self.left -= 1

    def drafted(self, expected: float, advanced: float, lost: float) -> None:
        self.expected = KEPT * self.expected + expected
        self.advanced = KEPT * self.advanced + advanced
        gained = expected * self.advanced / self.expected
        self.balance = min(self.balance + gained - lost, CREDIT)
        if self.balance < -ALLOWANCE:
            self.left, self.length = self.length, min(2 * self.length, LONGEST)
            self.balance = PROBE - ALLOWANCE
        elif self.balance >= 0:
            self.length = FIRST
