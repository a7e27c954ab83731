"""One layer of the transformer: attention, then the FFN, each read through a norm and added to the residual stream."""

from jaxtyping import Float
from torch import Tensor, nn

from interp.models.attention import Attention, Reading
from interp.models.config import ModelConfig
from interp.models.ffn import GatedFFN
from interp.models.norm import RMSNorm
from interp.models.point import hook_point


class Block(nn.Module):
    """One layer: attention, then the FFN, each added to the residual stream."""

    def __init__(self, config: ModelConfig, prefix: str) -> None:
        super().__init__()
        self.ln1 = RMSNorm(config.d_model, config.norm_eps, f"{prefix}.ln1")
        self.attn = Attention(config, f"{prefix}.attn")
        self.ln2 = RMSNorm(config.d_model, config.norm_eps, f"{prefix}.ln2")
        self.mlp = GatedFFN(config, f"{prefix}.mlp")
        self.hook_resid_pre = hook_point(f"{prefix}.hook_resid_pre")
        self.hook_attn_out = hook_point(f"{prefix}.hook_attn_out")
        self.hook_resid_mid = hook_point(f"{prefix}.hook_resid_mid")
        self.hook_mlp_in = hook_point(f"{prefix}.hook_mlp_in")
        self.hook_mlp_out = hook_point(f"{prefix}.hook_mlp_out")
        self.hook_resid_post = hook_point(f"{prefix}.hook_resid_post")

    def forward(
        self, resid: Float[Tensor, "batch pos d_model"], reading: Reading
    ) -> Float[Tensor, "batch kept d_model"]:
        """The residual stream after this layer."""
        resid_pre = self.hook_resid_pre(resid)
        attn_out = self.hook_attn_out(self.attn(resid_pre, self.ln1, reading))
        resid_mid = self.hook_resid_mid(reading.kept(resid_pre) + attn_out)
        mlp_out = self.hook_mlp_out(self.mlp(self.ln2(self.hook_mlp_in(resid_mid))))
        return self.hook_resid_post(resid_mid + mlp_out)

    def weights(self) -> dict[str, Tensor]:
        """This layer's weights by name, input axis first, as views."""
        parts = {"attn": self.attn.weights(), "mlp": self.mlp.weights()}
        named = {f"{part}.{name}": view for part, views in parts.items() for name, view in views.items()}
        return {"ln1.w": self.ln1.w, "ln2.w": self.ln2.w, **named}
