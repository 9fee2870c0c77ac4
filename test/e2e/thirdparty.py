# SPDX-License-Identifier: Apache-2.0
"""Model definitions of torchvision, timm and transformers for the corpus' make_forward.py, small and with random weights.

  PYTHONPATH=test/e2e python ../shared/corpus/make_forward.py --out DIR --source third --variants loss

in an environment with the corpus' packages and torchvision==0.28.0, timm, transformers. The losses are the corpus'; the
largest models have 90 million parameters. Models with drop path or other random ops have no gradient to compare: they are
here to be compiled.
"""
import torch

from models import Case


def import_torchvision():
    """Without its compiled operators (nms and the like), which want the exact torch that they were built with."""
    register = torch.library.register_fake

    def attempt(op, function):
        try:
            return register(op)(function)
        except RuntimeError:
            return function
    torch.library.register_fake = lambda op: lambda function: attempt(op, function)
    import torchvision.models
    torch.library.register_fake = register
    return torchvision.models


def image_case(module, size, batch=2, classes=10):
    return Case(module, {"x": torch.randn(batch, 3, size, size)}, {"y": torch.randint(0, classes, (batch,))}, "ce")


# Name: extent of the images.
TORCHVISION = dict(squeezenet1_1=64, densenet121=64, googlenet=64, shufflenet_v2_x0_5=64, mobilenet_v2=64, mobilenet_v3_small=64,
                   mnasnet0_5=64, efficientnet_b0=64, regnet_y_400mf=64, resnext50_32x4d=64, convnext_tiny=64, swin_t=64, vit_b_32=64,
                   vgg11=64, efficientnet_v2_s=64, maxvit_t=224, wide_resnet50_2=64)
TIMM = dict(resnet26d=64, seresnet18=64, ecaresnet26t=64, mixer_s32_224=224, gmlp_ti16_224=224, poolformer_s12=64,
            edgenext_xx_small=64, mobilevit_xxs=64, ghostnet_050=64, res2net50_14w_8s=64, cspresnet50=64, repvgg_a0=64,
            deit_tiny_patch16_224=224, cait_xxs24_224=224, xcit_nano_12_p16_224=224, coat_lite_tiny=224, pvt_v2_b0=64, nf_resnet26=64,
            hrnet_w18_small=64, dla34=64, tf_efficientnet_lite0=64, skresnet18=64, fastvit_t8=64, crossvit_tiny_240=240,
            tinynet_e=64, lcnet_050=64, selecsls42=64, dpn48b=64, inception_v4=96)


class Logits(torch.nn.Module):
    """A transformers model from its positional inputs to its logits."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        options = {} if self.names == ["pixel_values"] else {"use_cache": False}
        return self.model(**dict(zip(self.names, inputs)), **options).logits


SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
WORDS = dict(SIZES, vocab_size=100)
PATCHES = dict(num_labels=10, image_size=32)
# Configuration class without its "Config": (suffix of the model class, kind, settings).
TRANSFORMERS = {
    "Bert": ("ForMaskedLM", "words", dict(WORDS, max_position_embeddings=32)),
    "DistilBert": ("ForMaskedLM", "words", dict(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32)),
    "Roberta": ("ForMaskedLM", "words", dict(WORDS, max_position_embeddings=40)),
    "Albert": ("ForMaskedLM", "words", dict(WORDS, embedding_size=16)),
    "Electra": ("ForMaskedLM", "words", dict(WORDS, embedding_size=32)),
    "DebertaV2": ("ForMaskedLM", "words", dict(WORDS, relative_attention=True, position_buckets=8, pos_att_type=["c2p", "p2c"])),
    "MPNet": ("ForMaskedLM", "words", WORDS),
    "OPT": ("ForCausalLM", "words", dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
                                         max_position_embeddings=32, word_embed_proj_dim=32)),
    "Bloom": ("ForCausalLM", "words", dict(vocab_size=100, hidden_size=32, n_layer=2, n_head=4)),
    "Llama": ("ForCausalLM", "words", dict(WORDS, num_key_value_heads=2)),
    "Mistral": ("ForCausalLM", "words", dict(WORDS, num_key_value_heads=2, sliding_window=8)),
    "Qwen2": ("ForCausalLM", "words", dict(WORDS, num_key_value_heads=2)),
    "Gemma2": ("ForCausalLM", "words", dict(WORDS, num_key_value_heads=2, head_dim=8, sliding_window=8)),
    "Falcon": ("ForCausalLM", "words", dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    "Mamba": ("ForCausalLM", "words", dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, state_size=8)),
    "T5": ("ForConditionalGeneration", "pairs", dict(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)),
    "Bart": ("ForConditionalGeneration", "pairs", dict(
        vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32)),
    "ViT": ("ForImageClassification", "image", dict(SIZES, patch_size=8, **PATCHES)),
    "DeiT": ("ForImageClassification", "image", dict(SIZES, patch_size=8, **PATCHES)),
    "Swin": ("ForImageClassification", "image", dict(patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, **PATCHES)),
    "ConvNext": ("ForImageClassification", "image", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, **PATCHES)),
}
INPUTS = {"words": ["input_ids"], "pairs": ["input_ids", "decoder_input_ids"], "image": ["pixel_values"]}


def transformer_case(name):
    import transformers
    head, kind, settings = TRANSFORMERS[name]
    config = getattr(transformers, name + "Config")(attn_implementation="eager", **settings)
    module = Logits(getattr(transformers, name + head)(config), INPUTS[kind])
    if kind == "image":
        return image_case(module, PATCHES["image_size"])
    ids = {key: torch.randint(2, 100, (2, 16)) for key in INPUTS[kind]}
    return Case(module, ids, {"y": torch.randint(2, 100, (2, 16))}, "lm", "transformer")


def seeded(build):
    torch.manual_seed(0)
    return build()


def entries(which, big):
    """(name, function that builds the case) for make_forward.py; of one library where `which` names it."""
    if which in ("third", "torchvision"):
        vision = import_torchvision()
        for name, size in TORCHVISION.items():
            settings = {"googlenet": dict(aux_logits=False, init_weights=False), "vit_b_32": dict(image_size=64)}.get(name, {})
            yield "tv_" + name, lambda name=name, size=size, settings=settings: seeded(
                lambda: image_case(getattr(vision, name)(weights=None, num_classes=10, **settings), size))
    if which in ("third", "timm"):
        import_torchvision()
        import timm
        for name, size in TIMM.items():
            yield "timm_" + name, lambda name=name, size=size: seeded(
                lambda: image_case(timm.create_model(name, pretrained=False, num_classes=10), size))
    if which in ("third", "transformers"):
        for name in TRANSFORMERS:
            yield "hf_" + name.lower(), lambda name=name: seeded(lambda: transformer_case(name))
