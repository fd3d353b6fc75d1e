"""DBLast's head (arXiv 2608.05448): a mixture over one latent category of the whole block, so that
the drafts of different slots depend on each other without reading each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import LatentHeadConfig
from dartree_exp.drafters.heads.head import Head, Slots, Tokens
from dartree_exp.interfaces import Block

if TYPE_CHECKING:
    from dartree_exp.drafters.heads.confidence import ConfidenceHead


class LatentHead(Head):
    """q(y | z) = prod_d softmax(U_d + W_lm g_z(h_d)) with g_z(h) = U (a_z * D h), and p(z) =
    softmax(P x).

    h_d: the slot's final-normed hidden state. D and U are shared by the Z categories, a_z [r] is a
    category's own. x: the hidden state of the slot of depth 1, which has read the root and the
    context (`prior` slot), or the root's embedding (root). W_lm and the embedding are the target's:
    call `bind`.
    """

    key_prefix = "mixture."

    def __init__(self, hidden_size: int, latents: int, rank: int, prior: str) -> None:
        super().__init__()
        self.hidden_size, self.prior = hidden_size, prior
        self.down_proj = nn.Linear(hidden_size, rank, bias=False)
        self.factors = nn.Parameter(torch.empty(latents, rank))
        self.up_proj = nn.Linear(rank, hidden_size, bias=False)
        self.prior_proj = nn.Linear(hidden_size, latents, bias=False)
        # Plain attributes: the target's tensors are neither parameters nor in the state dict.
        self._tables: tuple[Tensor, Tensor] | None = None  # embedding [V, H], W_lm [Vd, H]
        self._readout: Tensor | None = None  # [Vd, r], of the weights at the time of `bind`

    @classmethod
    def from_config(
        cls,
        config: LatentHeadConfig,
        hidden_size: int,
        vocab_size: int,
        output_size: int | None = None,
    ) -> Self:
        return cls(hidden_size, config.num_latents, config.latent_rank, config.latent_prior)

    @torch.no_grad()
    def bind(
        self,
        embed_weight: Float[Tensor, "V H"],
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        lm_head: Float[Tensor, "rows H"] | None = None,
    ) -> Self:
        """Bind again after a change of the weights, unless only `taught` and `readout` are used."""
        rows = embed_weight if lm_head is None else lm_head
        self._tables = embed_weight, rows if vocab_ids is None else rows[vocab_ids]
        self._readout = self.readout()
        return self

    @property
    def num_latents(self) -> int:
        """Z."""
        return self.factors.shape[0]

    def readout(self) -> Float[Tensor, "Vd r"]:
        """W_lm U, at least float32: a category's logits are products of rank r with it."""
        wide = torch.promote_types(self.up_proj.weight.dtype, torch.float32)
        return self._bound[1].to(wide) @ self.up_proj.weight.to(wide)

    def log_prior(
        self, hidden: Float[Tensor, "*R D H"], roots: Int64[Tensor, "*R"]
    ) -> Float[Tensor, "*R Z"]:
        """log p(z) of blocks; hidden: drafting slots."""
        read = hidden[..., 0, :] if self.prior == "slot" else self._bound[0][roots]
        logits = self.prior_proj(read.to(self.prior_proj.weight.dtype))
        return self._wide(logits).log_softmax(-1)

    def codes(
        self, hidden: Float[Tensor, "*slots H"], latent: Int64[Tensor, "*slots"] | None = None
    ) -> Float[Tensor, "*slots Z r"]:
        """a_z * D h for all Z categories, or for the one of each slot."""
        down = self.down_proj(hidden.to(self.factors.dtype)).unsqueeze(-2)
        return down * (self.factors if latent is None else self.factors[latent].unsqueeze(-2))

    def log_probs(
        self, block: Block, latent: Int64[Tensor, "*R"] | None = None
    ) -> Float[Tensor, "*R D Z Vd"]:
        """log q(y | z) of every slot over the drafting vocabulary; latent: of this category alone,
        Z = 1.
        """
        assert self._readout is not None
        if latent is not None:
            latent = latent.unsqueeze(-1).expand(block.hidden.shape[:-1])
        offsets = F.linear(self._wide(self.codes(block.hidden, latent)), self._readout)
        return (block.logits.unsqueeze(-2) + offsets).log_softmax(-1)

    def taught(
        self,
        base: Float[Tensor, "n D Vd"],
        hidden: Slots,
        previous: Tokens,
        labels: Int64[Tensor, "n D"],
    ) -> Float[Tensor, "n D Vd"]:
        """log q(y_d | y_1 .. y_{d-1}), the category summed out given the tokens before. A label
        outside the drafting vocabulary says nothing about the category.
        """
        readout, codes = self.readout(), self._wide(self.codes(hidden))
        posterior, rows = self.log_prior(hidden, previous[:, 0]), []
        for slot in range(base.shape[1]):
            offsets = F.linear(codes[:, slot], readout)
            each = (base[:, slot, None] + offsets).log_softmax(-1)  # [n, Z, Vd]
            rows.append((posterior.unsqueeze(-1) + each).logsumexp(1))
            label = labels[:, slot, None, None].clamp_min(0).expand(-1, each.shape[1], 1)
            joint = (posterior + each.gather(2, label).squeeze(2)).log_softmax(-1)
            posterior = torch.where(labels[:, slot, None] >= 0, joint, posterior)
        return torch.stack(rows, dim=1)

    @torch.no_grad()
    def init_training(self) -> None:
        """U is zero: all categories start as the backbone, equally likely. Their factors differ, so
        the first step of U separates them.
        """
        nn.init.normal_(self.down_proj.weight, std=self.hidden_size**-0.5)
        nn.init.normal_(self.factors)
        nn.init.zeros_(self.up_proj.weight)
        nn.init.zeros_(self.prior_proj.weight)

    def config(self, confidence: ConfidenceHead | None = None) -> LatentHeadConfig:
        return LatentHeadConfig(self.num_latents, self.factors.shape[1], self.prior)

    @property
    def _bound(self) -> tuple[Tensor, Tensor]:
        if self._tables is None:
            raise RuntimeError("LatentHead: call bind(embed_weight) with the target's tables first")
        return self._tables

    def _wide(self, values: Tensor) -> Tensor:
        return values.to(torch.promote_types(values.dtype, torch.float32))
