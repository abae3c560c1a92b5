"""A stack of transformer blocks as GPT-2's, of plain torch.nn: token ids in, logits out."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50257
BATCH, LENGTH = (8, 1024) if torch.cuda.is_available() else (1, 256)
if os.environ.get("KERNELLAB_TINY"):
    LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 2, 64, 4, 211, 2, 32


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.fc(x)
        # GPT-2's own activation, written out
        x = 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
        return self.proj(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = (batch, length, HEADS, WIDTH // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        # the last position's logits, as in generation
        return F.linear(self.ln_f(x)[:, -1], self.wte.weight)


# half precision where there are matrix units for it
model = Model().to(torch.bfloat16 if torch.cuda.is_available() else torch.float32)


def inputs():
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH))
