# SPDX-License-Identifier: Apache-2.0
"""Policies over small graphs: each built-in one against its golden summary, and rules that users write.

`python test/python/test_policies.py` writes golden/policies.json anew.
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import policy_summary
import small_models
from mpt_run import tool, write_tensors

GOLDEN = pathlib.Path(__file__).with_name("golden") / "policies.json"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    tool()  # skips where nothing is built
    folder = tmp_path_factory.mktemp("models")
    return {name: small_models.write_model(name, folder) for name in small_models.MODELS}


def decide(model, policy, *words):
    return policy_summary.report(model, [*small_models.training_words(model.stem), f"--policy={policy}", "--to=precision", *words])


def golden(models):
    return {name: {policy: policy_summary.summary(decide(path, policy)) for policy in policy_summary.POLICIES}
            for name, path in models.items()}


@pytest.mark.parametrize("name", small_models.MODELS)
def test_every_policy_is_golden(models, name):
    """A policy without a row, as one that was just added, has to be accepted and to keep the rules that hold for all."""
    expected = json.loads(GOLDEN.read_text())[name]
    for policy in policy_summary.POLICIES:
        ours = policy_summary.summary(decide(models[name], policy))
        assert ours == expected.get(policy, ours), f"{name} under {policy}; see --help of this file"


def test_policies_are_those_of_the_folder():
    """The compiler's own list and the folder agree, and no golden row is of a policy that is gone."""
    shown = subprocess.run([policy_summary.compiler(), "--help"], capture_output=True, text=True, check=True).stdout
    listed = set(re.search(r"built-in policy \(fp32\): ([^;]*);", shown)[1].split(", "))
    assert set(policy_summary.POLICIES) == listed
    assert set.union(*(set(rows) for rows in json.loads(GOLDEN.read_text()).values())) <= set(policy_summary.POLICIES)


def types_of(report, node, op, function="step"):
    return [value["type"].rsplit("x", 1)[-1].rstrip(">") for value in report["values"]
            if (value["function"], value["node"], value["op"]) == (function, node, op)]


def test_lists_of_autocast(models):
    """The best-known entries of the lists: softmax and layer norm are FP32 on CUDA and follow on the CPU; GEMMs are narrow in both."""
    cuda, cpu = decide(models["bert"], "autocast-cuda-f16"), decide(models["bert"], "autocast-cpu-bf16")
    assert types_of(cuda, "weights", "mpt.softmax") == ["f32"] and types_of(cpu, "weights", "mpt.softmax") == ["bf16"]
    assert types_of(cuda, "m", "mpt.layer_norm")[0] == "f32" and types_of(cpu, "m", "mpt.layer_norm")[0] == "bf16"
    for report, narrow in ((cuda, "f16"), (cpu, "bf16")):
        assert types_of(report, "mixed", "mpt.matmul")[0] == narrow
    rules = {value["rule"] for value in cuda["values"]}
    assert any(rule.startswith('policy.op "mpt.softmax" -> wide') for rule in rules)


RULES = {
    # by op type, by op type and attribute, by node name, by operand, by layer, by class
    'op "mpt.gelu" -> wide': ("active", "mpt.gelu", "f32"),
    'op "mpt.gelu" with {form = #mpt<gelu_form erf>} -> wide': ("active", "mpt.gelu", "f32"),
    'op "mpt.gelu" with {form = #mpt<gelu_form tanh>} -> wide': ("active", "mpt.gelu", "f16"),
    'node "ac.*" -> wide': ("active", "mpt.gelu", "f32"),
    'node "down" operand 1 -> wide': ("down", "mpt.matmul", "f32"),
    'node "up" operand 7 -> wide': ("up", "mpt.matmul", "f16"),
    'where last -> wide': ("down", "mpt.matmul", "f32"),
    'class "contraction" -> wide': ("mixed", "mpt.matmul", "f32"),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_override_the_policy(models, rule):
    node, op, expected = RULES[rule]
    plain = decide(models["bert"], "amp-f16")
    report = decide(models["bert"], "amp-f16", "--rule=" + rule)
    got = types_of(report, node, op)[0]
    # The result of a GEMM may be rounded by the GEMM: a rule on a GEMM is about its operands.
    reasons = [value["rule"] for value in report["values"] if value["node"] == node and value["op"] == op and value["function"] == "step"]
    if expected == "f16" or op != "mpt.matmul":
        assert types_of(plain, node, op)[0] == "f16" and got == expected, reasons
    else:
        assert any("-> wide" in reason for reason in reasons), reasons
        assert report["totals"] != plain["totals"]


def write_policy(tmp_path, *rules):
    path = tmp_path / "mine.mlir"
    path.write_text("policy.policy @mine storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {\n"
                    '  policy.class "contraction" -> narrow\n  policy.class "reduction" -> wide\n  policy.class "range-expanding" -> wide\n'
                    + "".join(f"  policy.{rule}\n" for rule in rules) + "}\n")
    return path


@pytest.mark.parametrize("rules, words, reason", [
    # An include beats an exclude, wherever it stands; else the later rule; nodes beat ops; the command line beats the file.
    (['node "active" -> narrow', 'node ".*" -> wide'], [], 'policy.node "active" -> narrow'),
    (['op "mpt.gelu" -> narrow', 'op "mpt.gelu" -> wide'], [], 'policy.op "mpt.gelu" -> narrow'),
    (['node "ac.*" -> wide', 'node "active" -> wide'], [], 'policy.node "active" -> wide'),
    (['op "mpt.gelu" -> narrow', 'node "active" -> wide'], [], 'policy.node "active" -> wide'),
    (['node "active" -> narrow'], ["--keep-f32=active"], 'keep-f32 "active" -> wide'),
    (['node "active" -> narrow'], ['--rule=op "mpt.gelu" -> wide'], 'rule op "mpt.gelu" -> wide'),
    ([], ["--keep-f32=.*", "--keep-narrow=active"], 'keep-narrow "active" -> narrow'),
    (['node "active" operand 0 -> wide'], [], 'policy.node "active" operand 0 -> wide'),
])
def test_which_rule_wins(models, tmp_path, rules, words, reason):
    report = decide(models["bert"], write_policy(tmp_path, *rules), *words)
    found = [value["rule"] for value in report["values"] if (value["function"], value["op"]) == ("step", "mpt.gelu")]
    assert found and all(rule.startswith(reason) for rule in found), found


@pytest.mark.parametrize("rule, line, said", [
    ('op "mpt.tahn" -> wide', 5, 'got "mpt.tahn": did you mean "mpt.tanh"?'),
    ('op "onnx.Sofmax" -> wide', 5, 'did you mean "onnx.Softmax"?'),
    ('op "Softmax" -> wide', 5, "expected the name of a core op"),
    ('op "mpt.reduce" with {kidn = 1} -> wide', 5, "expected attributes that mpt.reduce has, got 'kidn'"),
    ('op "mpt.tanh" operand -1 -> wide', 5, "expected the position of an operand"),
    ('node "a(" -> wide', 5, 'expected a regular expression, got "a("'),
    ('class "contractoin" -> wide', 5, "expected contraction, reduction, range-expanding, neutral or movement"),
    ('loss_scaling dynamic {hysteresys = 2 : i64}', 5, "got unknown key 'hysteresys'"),
    ('node "a" -> half', 5, "[narrow, wide, follow, storage]"),
    ('oops "a" -> wide', 5, "oops"),
])
def test_errors_point_into_the_file(models, tmp_path, rule, line, said):
    path = write_policy(tmp_path, rule)
    done = subprocess.run([policy_summary.compiler(), models["mlp"], *small_models.training_words("mlp"), f"--policy={path}", "--dry-run"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and f"mine.mlir:{line}:" in done.stderr and said in done.stderr, done.stderr


@pytest.mark.parametrize("rule, said", [("tanh", "expected a rule such as"), ('op "mpt.tahn" -> wide', "mpt.tanh"),
                                        ("loss_scaling none", "expected a rule of kind class, where, op, node or saved")])
def test_errors_in_rules_of_the_command_line(models, rule, said):
    done = subprocess.run([policy_summary.compiler(), models["mlp"], *small_models.training_words("mlp"), "--rule=" + rule, "--dry-run"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr, done.stderr


def test_rules_on_slots_of_nodes(models, tmp_path):
    """In a file rewritten node by node a rule on an operand moves the operands and results that share its type."""
    base = policy_summary.report(models["unet"], ["--policy=amp-f16", "--emit=onnx"])
    kept = policy_summary.report(models["unet"], ["--policy=amp-f16", "--emit=onnx", '--rule=op "onnx.Concat" operand 1 -> wide'])
    assert types_of(base, "g", "onnx.Concat", "main") == ["f16"] and types_of(kept, "g", "onnx.Concat", "main") == ["f32"]
    assert not (tmp_path / "out.onnx").exists()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        policy_summary.write_golden(GOLDEN, golden({name: small_models.write_model(name, temporary) for name in small_models.MODELS}))
    sys.exit(0)
