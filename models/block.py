"""One layer of the transformer: attention and the FFN, each adding to the residual stream, and the norms around them.

pre        resid_mid = resid + attn(ln1(resid))             resid_post = resid_mid + mlp(ln2(resid_mid))
output     resid_mid = resid + ln1_post(attn(resid))        resid_post = resid_mid + ln2_post(mlp(resid_mid))
sandwich   both of these norms
post       resid_mid = ln1(resid + attn(resid))             resid_post = ln2(resid_mid + mlp(resid_mid))
parallel   resid_post = resid + attn(ln1(resid)) + mlp(ln2(resid))
"""

from jaxtyping import Float
from torch import Tensor, nn

from interp.models.attention import Attention, Reading
from interp.models.config import ModelConfig
from interp.models.ffn import FFN
from interp.models.moe import MoE
from interp.models.norm import Norm
from interp.models.point import hook_point
from interp.stopping import check_wanted


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: ModelConfig, prefix: str, layer: int) -> None:
        super().__init__()
        before, self.after_sum = config.norms in ("pre", "sandwich"), config.norms == "post"
        on_output, self.parallel = config.norms in ("output", "sandwich"), config.parallel
        self.ln1 = Norm(config, f"{prefix}.ln1") if before or self.after_sum else None
        self.attn = Attention(config, f"{prefix}.attn", layer)
        self.ln1_post = Norm(config, f"{prefix}.ln1_post") if on_output else None
        self.ln2 = Norm(config, f"{prefix}.ln2") if before or self.after_sum else None
        self.mlp: FFN | MoE = (MoE if config.layer(layer).moe else FFN)(config, f"{prefix}.mlp")
        self.ln2_post = Norm(config, f"{prefix}.ln2_post") if on_output else None
        self.hook_resid_pre = hook_point(f"{prefix}.hook_resid_pre")
        self.hook_attn_out = hook_point(f"{prefix}.hook_attn_out")
        self.hook_resid_mid = hook_point(f"{prefix}.hook_resid_mid")
        self.hook_mlp_in = hook_point(f"{prefix}.hook_mlp_in")
        self.hook_mlp_out = hook_point(f"{prefix}.hook_mlp_out")
        self.hook_resid_post = hook_point(f"{prefix}.hook_resid_post")

    def forward(
        self, resid: Float[Tensor, "batch pos d_model"], reading: Reading
    ) -> Float[Tensor, "batch kept d_model"]:
        """The residual stream after this layer. Raises `Cancelled` where the work is no longer wanted."""
        check_wanted()
        resid_pre = self.hook_resid_pre(resid)
        attn_out = self.attn(resid_pre, None if self.after_sum else self.ln1, reading)
        attn_out = self.hook_attn_out(attn_out if self.ln1_post is None else self.ln1_post(attn_out))
        resid_mid = reading.kept(resid_pre) + attn_out
        if self.parallel:
            return self.hook_resid_post(resid_mid + self.ffn(reading.kept(resid_pre)))
        resid_mid = self.hook_resid_mid(self.ln1(resid_mid) if self.after_sum and self.ln1 else resid_mid)
        resid_post = resid_mid + self.ffn(resid_mid)
        return self.hook_resid_post(self.ln2(resid_post) if self.after_sum and self.ln2 else resid_post)

    def ffn(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the FFN adds, reading the residual stream through its norm where it has one."""
        read = self.hook_mlp_in(resid)
        out = self.mlp(read if self.after_sum or self.ln2 is None else self.ln2(read))
        return self.hook_mlp_out(out if self.ln2_post is None else self.ln2_post(out))

    def weights(self) -> dict[str, Tensor]:
        """This layer's weights by name, input axis first, as views."""
        norms = {"ln1": self.ln1, "ln1_post": self.ln1_post, "ln2": self.ln2, "ln2_post": self.ln2_post}
        found = {f"{name}.{key}": view for name, norm in norms.items() if norm for key, view in norm.weights().items()}
        for part, module in (("attn", self.attn), ("mlp", self.mlp)):
            found |= {f"{part}.{name}": view for name, view in module.weights().items()}
        return found
