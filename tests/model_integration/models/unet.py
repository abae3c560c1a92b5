"""A level of a diffusion U-Net: residual blocks with a time embedding, group norms, SiLU, attention, down and up."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, SIZE, GROUPS = 128, 32, 32
BATCH = 32 if torch.cuda.is_available() else 2
if os.environ.get("KERNELLAB_TINY"):
    CHANNELS, SIZE, GROUPS, BATCH = 16, 8, 4, 1
EMBEDDING = 4 * CHANNELS


class Residual(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.norm_1 = nn.GroupNorm(GROUPS, inner)
        self.conv_1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(EMBEDDING, outer)
        self.norm_2 = nn.GroupNorm(GROUPS, outer)
        self.conv_2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x, t):
        y = self.conv_1(F.silu(self.norm_1(x)))
        y = y + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv_2(F.silu(self.norm_2(y)))


class Spatial(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, c, h * w).transpose(2, 3).unbind(1)
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(c), dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, c, h, w))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(CHANNELS, EMBEDDING), nn.SiLU(), nn.Linear(EMBEDDING, EMBEDDING))
        self.first = nn.Conv2d(4, CHANNELS, 3, padding=1)
        self.down_1 = Residual(CHANNELS, CHANNELS)
        self.down = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.middle_1 = Residual(CHANNELS, 2 * CHANNELS)
        self.attention = Spatial(2 * CHANNELS)
        self.middle_2 = Residual(2 * CHANNELS, CHANNELS)
        self.up_1 = Residual(2 * CHANNELS, CHANNELS)
        self.norm = nn.GroupNorm(GROUPS, CHANNELS)
        self.last = nn.Conv2d(CHANNELS, 4, 3, padding=1)

    def forward(self, x, step):
        half = CHANNELS // 2
        rates = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000.0) / half))
        angles = step[:, None] * rates
        t = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1))
        x = self.down_1(self.first(x), t)
        y = self.middle_2(self.attention(self.middle_1(self.down(x), t)), t)
        y = self.up_1(torch.cat([x, F.interpolate(y, scale_factor=2.0, mode="nearest")], dim=1), t)
        return self.last(F.silu(self.norm(y)))


def inputs():
    return torch.randn(BATCH, 4, SIZE, SIZE), torch.rand(BATCH) * 999
