# SPDX-License-Identifier: Apache-2.0
"""Torch modules that say something of their own gradients: losses whose values do not show it."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class Mixed(torch.autograd.Function):
    """Two operands, one of them broadcast, two results, and a gradient that is not the derivative."""
    @staticmethod
    def forward(x, w):
        return x * w, (x + w).exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, one, other):
        x, w = ctx.saved_tensors
        return 0.5 * one * w + other, (one * x).expand_as(one) + other.sigmoid()


reverse = Reversal.apply  # bound before anything is exported


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.head = nn.Linear(6, 6)


class SimSiam(Base):
    def forward(self, a, b):
        za, zb = self.net(a), self.net(b)
        return -(F.cosine_similarity(self.head(za), zb.detach()) + F.cosine_similarity(self.head(zb), za.detach())).mean() / 2


class BYOL(Base):
    def __init__(self):
        super().__init__()
        self.target = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, a, b):
        with torch.no_grad():
            wanted = F.normalize(self.target(b), dim=1)
        return 2 - 2 * (F.normalize(self.head(self.net(a)), dim=1) * wanted).sum(1).mean()


class Teacher(Base):
    """The teacher's parameters are trainable, and no gradient reaches them."""
    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(6, 6)

    def forward(self, a, b):
        with torch.no_grad():
            wanted = (self.teacher(a) / 0.1).softmax(1)
            weight = wanted.amax(1)
        return -((wanted * self.head(self.net(b)).log_softmax(1)).sum(1) * weight).mean()


class DANN(Base):
    def forward(self, a, b):
        features = self.net(a)
        return self.head(features).square().mean() + self.head(reverse(features, 0.3)).sub(b).square().mean()


class StraightThrough(Base):
    def forward(self, a, b):
        return self.head(Rounded.apply(self.net(a))).sub(b).square().mean()


class Quantized(Base):
    def forward(self, a, b):
        x = self.net(a)
        return self.head(x + (torch.round(x * 4) / 4 - x).detach()).sub(b).square().mean()


class VQVAE(Base):
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(5, 6)

    def forward(self, a, b):
        z = self.net(a)
        nearest = (z.unsqueeze(1) - self.codebook.weight).square().sum(2).argmin(1)
        code = self.codebook(nearest)
        passed = z + (code - z).detach()
        return F.mse_loss(self.head(passed), b) + F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())


class GAN(Base):
    def forward(self, a, b):
        fake = self.net(a)
        return F.softplus(self.head(fake.detach())).mean() + F.softplus(-self.head(b)).mean()


class QLearning(Base):
    def __init__(self):
        super().__init__()
        self.target = nn.Linear(6, 6)

    @torch.no_grad()
    def future(self, state):
        return self.target(state).amax(1)

    def forward(self, a, b):
        return F.smooth_l1_loss(self.head(self.net(a)).amax(1), a[:, 0] + 0.9 * self.future(b))


class Checkpointed(Base):
    def forward(self, a, b):
        x = checkpoint(self.net, a, use_reentrant=False)
        x = checkpoint(lambda y: self.head(y).relu() + y, x, use_reentrant=True)
        return x.sub(b).square().mean()


class Scaled(Base):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, a, b):
        one, other = Mixed.apply(self.net(a) * 0.3, self.weight)
        return self.head(one).sub(b).square().mean() + other.mean()


class Extractor(Base):
    def __init__(self):
        super().__init__()
        self.net.requires_grad_(False)

    def forward(self, a, b):
        return self.head(self.net(a)).sub(b).square().mean()


class Contrast(Base):
    """Negatives without gradients, and a gradient that is enabled again inside."""
    def forward(self, a, b):
        q = self.head(self.net(a))
        with torch.no_grad():
            k = self.net(b).add(1)
            with torch.enable_grad():
                scale = self.head(b).mean()
        return F.cross_entropy(q @ k.T / 0.5, torch.arange(len(a))) + k.detach_().mean() * scale


class Actor(Base):
    def forward(self, a, b):
        logits, value = self.net(a), self.head(b).mean(1)
        advantage = (a.sum(1) - value).detach()
        return -(logits.log_softmax(1)[:, 0] * advantage).mean() + (a.sum(1) - value).square().mean()


class Padded(Base):
    """A table whose padding row is read beside others, and tied to the head."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 6, padding_idx=1)
        nn.init.normal_(self.table.weight)

    def forward(self, a, b):
        tokens = (a > 0).long() + (a > 1).long()
        return (self.net(self.table(tokens).mean(1)) @ self.table.weight.t()).sub(b[:, :3]).square().mean()


MODULES = [SimSiam, BYOL, Teacher, DANN, StraightThrough, Quantized, VQVAE, GAN, QLearning, Checkpointed, Scaled, Extractor, Contrast,
           Actor, Padded]


class Hooked(Base):
    def forward(self, a, b):
        x = self.net(a)
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * 2)
        return self.head(x).sub(b).square().mean()


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Dirty(Base):
    def forward(self, a, b):
        return self.head(InPlace.apply(self.net(a) + 0)).sub(b).square().mean()


class ByFrequency(Base):
    settings = {"scale_grad_by_freq": True}

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2, 6, **self.settings)

    def forward(self, a, b):
        return self.head(self.net(a) + self.table((a[:, 0] > 0).long())).sub(b).square().mean()


class Renormed(ByFrequency):
    settings = {"max_norm": 1.0}


class Median(Base):
    def forward(self, a, b):
        return (self.net(a).median(1).values - b[:, 0]).square().mean()


class Asking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient if gradient.sum() > 0 else -gradient


class Undecided(Base):
    def forward(self, a, b):
        return self.head(Asking.apply(self.net(a))).sub(b).square().mean()


class Namesake(Base):
    """A parameter called like an input; a file has one value of a name."""
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.ones(4, 6))

    def forward(self, a, b):
        return self.head(self.net(a) * self.b).sub(b).square().mean()


REFUSED = [(Namesake, "got 'b', which is a parameter or buffer of Namesake"), (Hooked, "hook"), (Dirty, "InPlace, which marks one as dirty"), (Undecided, "cannot keep the gradient of Asking"),
           (ByFrequency, "scale_grad_by_freq=True"), (Renormed, "max_norm"),
           (Median, "cannot export Median: No ONNX function found")]
