"""TreeFlash's correction (arXiv 2606.03819): a SwiGLU of the token before and the slot's hidden
state, read out by the target's vocabulary head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import SwiGLUHeadConfig
from dartree_exp.drafters.heads.head import AdditiveHead, Codes, Places, Slots, State, Tokens
from dartree_exp.drafters.heads.output_rows import OutputRows, for_rows
from dartree_exp.interfaces import Block

if TYPE_CHECKING:
    from dartree_exp.drafters.heads.confidence import ConfidenceHead


@dataclass(frozen=True)
class SwiGLUTables:
    """Per-round tables: the hidden part of gate and up by depth, [*R, 2 I] each."""

    slots: tuple[Float[Tensor, "*R gates"], ...]
    output: OutputRows


class SwiGLUHead(AdditiveHead):
    """correction = W_lm down(silu(gate [e ; h]) * up [e ; h]), e the embedding of the token before
    (the root at depth 1), h the slot's final-normed hidden state.

    Every depth is corrected. State: the token's part of gate and up, [N, 2 I]. The published head
    adds the SwiGLU to the hidden state and norms the sum; here the hidden state is normed already
    and the sum is not, so an untrained head corrects nothing. W_lm is the target's: call `bind`.
    """

    key_prefix = "transition."
    output_key = None
    last_token = True
    pure_draft_prefix_len = 0

    def __init__(self, hidden_size: int, inner: int) -> None:
        super().__init__()
        self.hidden_size, self.inner = hidden_size, inner
        self.gate_up_proj = nn.Linear(2 * hidden_size, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden_size, bias=False)
        # Plain attributes: the target's tensors are neither parameters nor in the state dict.
        self._embed: tuple[Tensor, ...] = ()
        self._lm_head: tuple[Tensor, ...] = ()
        self._table: tuple[Tensor, Tensor] | None = None  # [Vd, 2 I] of drafted ids; [V] places
        self._drafted: Tensor | None = None  # [Vd, H], rows of W_lm for the drafted ids

    @classmethod
    def from_config(
        cls,
        config: SwiGLUHeadConfig,
        hidden_size: int,
        vocab_size: int,
        output_size: int | None = None,
    ) -> Self:
        return cls(hidden_size, config.inner_dim)

    @torch.no_grad()
    def bind(
        self,
        embed_weight: Float[Tensor, "V H"],
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        lm_head: Float[Tensor, "rows H"] | None = None,
    ) -> Self:
        """As `GRUHead.bind`; the products with the embeddings of `vocab_ids` are computed once."""
        self._embed = (embed_weight,)
        self._lm_head = (embed_weight if lm_head is None else lm_head,)
        self._table = self._drafted = None
        if vocab_ids is not None:
            place = torch.full_like(embed_weight[:, 0], vocab_ids.numel(), dtype=torch.int64)
            place[vocab_ids] = torch.arange(vocab_ids.numel(), device=place.device)
            self._table = self._read(embed_weight[vocab_ids]), place
            self._drafted = self._lm_head[0][vocab_ids]
        return self

    def start(self, roots: int | tuple[int, ...]) -> State:
        ids = torch.tensor([roots] if isinstance(roots, int) else list(roots))
        return self._read(self._embedded(ids.to(self.down_proj.weight.device)))

    def prepare(self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]) -> SwiGLUTables:
        slots = F.linear(block.hidden.to(self._for_hidden.dtype), self._for_hidden)
        output = OutputRows.of(self.output, candidate_ids, self._drafted)
        return SwiGLUTables(slots.unbind(-2), output)

    def correction(self, prepared: SwiGLUTables, state: State, depth: int) -> Float[Tensor, "N K"]:
        slot = for_rows(prepared.slots[depth - 1], state.shape[0])
        return prepared.output.product(self._code(state + slot).to(self.output.dtype), depth)

    def advance(
        self,
        prepared: object,
        state: State,
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        if self._table is None:
            return self._read(self._embedded(token))
        rows, place = self._table
        return rows.index_select(0, place.index_select(0, token))

    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        read = self._read(self._embedded(tokens if slots is None else tokens.gather(1, slots)))
        return self._code(read + F.linear(hidden.to(read.dtype), self._for_hidden))

    @torch.no_grad()
    def init_training(self) -> None:
        """`down` is zero, so corrections start at zero."""
        nn.init.normal_(self.gate_up_proj.weight, std=self.gate_up_proj.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.down_proj.weight)

    def config(self, confidence: ConfidenceHead | None = None) -> SwiGLUHeadConfig:
        return SwiGLUHeadConfig(self.inner)

    @property
    def output(self) -> Tensor:
        if not self._lm_head:
            raise RuntimeError("SwiGLUHead: call bind(embed_weight) with the target's tables first")
        return self._lm_head[0]

    @property
    def _for_hidden(self) -> Tensor:
        return self.gate_up_proj.weight[:, self.hidden_size :]

    def _read(self, embedded: Float[Tensor, "*tokens H"]) -> Float[Tensor, "*tokens gates"]:
        weight = self.gate_up_proj.weight[:, : self.hidden_size]
        return F.linear(embedded.to(weight.dtype), weight)

    def _code(self, read: Float[Tensor, "*rows gates"]) -> Float[Tensor, "*rows H"]:
        gate, up = read.chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)

    def _embedded(self, token: Int64[Tensor, "*tokens"]) -> Float[Tensor, "*tokens H"]:
        if not self._embed:
            raise RuntimeError("SwiGLUHead: call bind(embed_weight) with the target's tables first")
        return self._embed[0][token]
