# SPDX-License-Identifier: Apache-2.0
"""Modules for trained_table.py: of torch alone, of libraries where they are installed, and of a folder of definitions."""
import importlib.util
import sys

import torch
from torch import nn


class Mixed(nn.Module):
    """A transformer's layer, a recurrence and a head, which exporters write with names of their own."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.lstm, self.head = nn.LSTM(16, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.lstm(self.encoder(x))[0])


class Recurrent(nn.Module):
    """Two layers in both directions, of each kind."""

    def __init__(self, kind):
        super().__init__()
        self.cells, self.head = kind(8, 6, num_layers=2, bidirectional=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.cells(x)[0])


class Tied(nn.Module):
    """An embedding that is also the head."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.inner = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.norm(torch.relu(self.inner(self.embedding(ids)))))


class Output(nn.Module):
    """One tensor of a library's result."""

    def __init__(self, module, name):
        super().__init__()
        self.model, self.name = module, name

    def forward(self, *args):
        return getattr(self.model(*args), self.name)


def of_torch() -> dict:
    x = lambda *shape: {"x": torch.randn(shape)}
    return {"encoder_lstm": lambda: (Mixed(), x(2, 7, 16)),
            "bilstm": lambda: (Recurrent(nn.LSTM), x(5, 2, 8)), "bigru": lambda: (Recurrent(nn.GRU), x(5, 2, 8)),
            "birnn": lambda: (Recurrent(nn.RNN), x(5, 2, 8)),
            "tied": lambda: (Tied(), {"ids": torch.randint(0, 50, (2, 9))}),
            "norms": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.PReLU(8), nn.GroupNorm(2, 8),
                                            nn.ConvTranspose2d(8, 4, 2), nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True),
                                            nn.Flatten(), nn.LayerNorm(256), nn.Linear(256, 4)), x(2, 3, 9, 9)),
            "bilinear": lambda: (nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 6)), x(4, 6))}


def of_torchvision() -> dict:
    from torchvision import models
    names = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf", "mnasnet0_5")
    small = {"vit": lambda: models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=10),
             "swin": lambda: models.SwinTransformer(patch_size=[2, 2], embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10),
             "convnext": lambda: models.ConvNeXt([models.convnext.CNBlockConfig(8, 16, 2), models.convnext.CNBlockConfig(16, None, 2)], num_classes=10)}
    build = {name: lambda name=name: getattr(models, name)(weights=None) for name in names} | small
    return {f"torchvision {name}": lambda make=make: (make(), {"x": torch.randn(2, 3, 32, 32)}) for name, make in build.items()}


def of_timm() -> dict:
    import timm
    token = {"img_size": 32, "num_classes": 10}
    models = {"resnet10t": {}, "mobilenetv3_small_050": {}, "convnext_atto": {"depths": (1, 1, 2, 1)}, "regnetx_002": {}, "ghostnet_050": {}, "repvgg_a0": {},
              "mixer_s32_224": token | {"num_blocks": 2, "embed_dim": 16}, "poolformer_s12": {}, "efficientvit_b0": {},
              "vit_tiny_patch16_224": token | {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 8},
              "deit_tiny_distilled_patch16_224": token | {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 8},
              "beit_base_patch16_224": token | {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 8},
              "swin_tiny_patch4_window7_224": token | {"depths": (2, 2), "embed_dim": 16, "num_heads": (2, 4), "window_size": 4}}
    return {f"timm {name}": lambda name=name, how=how: (timm.create_model(name, **how), {"x": torch.randn(2, 3, 32, 32)}) for name, how in models.items()}


def of_transformers() -> dict:
    import transformers as t
    ids = lambda *shape: torch.randint(3, 60, shape)
    small = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}

    def language(kind, config, **settings):
        def build():
            settings.setdefault("use_cache", False)
            model = getattr(t, kind)(getattr(t, config)(**settings, attn_implementation="eager"))
            return Output(model, "logits"), {"ids": ids(2, 8)}
        return build
    decoder = small | {"num_key_value_heads": 1, "max_position_embeddings": 32}
    return {
        "transformers bert": language("BertForSequenceClassification", "BertConfig", **small, max_position_embeddings=32),
        "transformers gpt2": language("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2),
        "transformers llama": language("LlamaForCausalLM", "LlamaConfig", **decoder),
        "transformers mistral": language("MistralForCausalLM", "MistralConfig", **decoder),
        "transformers distilbert": language("DistilBertForSequenceClassification", "DistilBertConfig", vocab_size=64, dim=16, hidden_dim=32, n_layers=2,
                                            n_heads=2, max_position_embeddings=32),
        "transformers electra": language("ElectraForSequenceClassification", "ElectraConfig", **small, embedding_size=8, max_position_embeddings=32),
        "transformers t5": t5,
        "transformers vit": lambda: (Output(t.ViTForImageClassification(t.ViTConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                     num_attention_heads=2, image_size=16, patch_size=4)), "logits"), {"x": torch.randn(2, 3, 16, 16)})}


class Seq2Seq(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, start):
        return self.model(input_ids=ids, decoder_input_ids=start, use_cache=False).logits


def t5():
    import transformers as t
    config = t.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, attn_implementation="eager")
    return Seq2Seq(t.T5ForConditionalGeneration(config)), {"ids": torch.randint(3, 60, (2, 8)), "start": torch.randint(3, 60, (2, 5))}


def defined_in(folder) -> dict:
    spec = importlib.util.spec_from_file_location("models", f"{folder}/models.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["models"] = module
    spec.loader.exec_module(module)

    def build(name):
        case = module.build(name)
        inputs = case.inputs if case.loss != "internal" else case.inputs | case.targets
        return case.module, inputs
    return {name: lambda name=name: build(name) for name in module.REGISTRY}


def all_of(definitions=None) -> dict:
    """{name: function that returns (module, {name: input})}."""
    found = defined_in(definitions) if definitions else {}
    found |= of_torch()
    for library, entries in (("torchvision", of_torchvision), ("timm", of_timm), ("transformers", of_transformers)):
        if importlib.util.find_spec(library):
            found |= entries()
    return found
