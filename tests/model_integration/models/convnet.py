"""A small convolutional network: depthwise and pointwise convolutions, batch norms, hard swish, squeeze and excite."""

import os

import torch
import torch.nn as nn

BATCH, SIZE, WIDTH = (64, 128, 64) if torch.cuda.is_available() else (8, 64, 32)
if os.environ.get("KERNELLAB_TINY"):
    BATCH, SIZE, WIDTH = 2, 16, 8


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc_1 = nn.Conv2d(channels, channels // 4, 1)
        self.fc_2 = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc_2(torch.relu(self.fc_1(self.pool(x)))))


class Inverted(nn.Module):
    def __init__(self, channels, stride=1, outer=None):
        super().__init__()
        outer, wide = outer or channels, 2 * channels
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish())
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()
        )
        self.squeeze = Squeeze(wide)
        self.project = nn.Sequential(nn.Conv2d(wide, outer, 1, bias=False), nn.BatchNorm2d(outer))
        self.adds = stride == 1 and outer == channels

    def forward(self, x):
        y = self.project(self.squeeze(self.depth(self.expand(x))))
        return x + y if self.adds else y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3, 2, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)
        )
        self.blocks = nn.Sequential(
            Inverted(WIDTH), Inverted(WIDTH), Inverted(WIDTH, 2, 2 * WIDTH), Inverted(2 * WIDTH), Inverted(2 * WIDTH)
        )
        self.head = nn.Linear(2 * WIDTH, 100)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def inputs():
    return torch.randn(BATCH, 3, SIZE, SIZE)
