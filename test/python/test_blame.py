# SPDX-License-Identifier: Apache-2.0
"""The node that made the first infinity: `mpt-run --blame`, and libraries compiled with --debug-nonfinite, on planted models."""
import json
import os
import re
import shlex
import subprocess

import numpy as np
import pytest

from mpt_run import tool
from planted import PLANTED, write_case


def mpt_run(*words):
    return subprocess.run([tool(), *map(str, words)], capture_output=True, text=True, timeout=120)


def override_in(text: str) -> str:
    """The ready line of a message, as a shell would read it."""
    found = re.search(r"--keep-f32='(?:[^'])*'|--loss-scale=\S+", text)
    assert found, text
    return shlex.split(found.group(0))[0]


@pytest.mark.parametrize("name", PLANTED)
def test_blame_names_the_node(tmp_path, name):
    planted, words = PLANTED[name], write_case(tmp_path, name)
    batch = f"--batch={tmp_path / 'b.st'}"
    result = mpt_run(*words, "--blame", batch, "-o", tmp_path / "blame.json")
    assert result.returncode == 1, result.stderr
    first, *_ = json.loads((tmp_path / "blame.json").read_text())
    assert first["step"] == 0 and first["infinities"] + first["nans"] > 0
    if planted["node"] is not None:
        assert first["node"] == planted["node"], result.stderr
    if planted["fixed_by"] is None:
        assert planted["says"] in result.stderr and "--keep-f32" not in result.stderr, result.stderr
        return
    assert planted["fixed_by"] in result.stderr
    # The lines work: applied as they are printed, one after the other, no node gives infinities or NaN any more.
    for _ in range(4):
        line = override_in(result.stderr)
        words = [word for word in words if not str(word).startswith("--loss-scale") or not line.startswith("--loss-scale")] + [line]
        result = mpt_run(*words, "--blame", batch)
        if result.returncode == 0:
            break
    # A dynamic scale may still come down from its start.
    if planted["fixed_by"] == "--loss-scale" and result.returncode == 1:
        assert json.loads(mpt_run(*words, "--blame", batch, "--steps=40").stdout)[-1]["step"] < 30
        return
    assert result.returncode == 0, result.stderr


def compile_case(tmp_path, name, *flags):
    words = write_case(tmp_path, name)
    opt = tool().with_name("mpt-opt")
    if not opt.exists():
        pytest.skip("mpt-opt is not built")
    subprocess.run([opt, *words, *flags, "--quiet", "-o", tmp_path / "out"], check=True)
    return tmp_path / "out"


def train(folder, name, steps=1, scale=1.0):
    import mpt
    os.environ.setdefault("MPT_BUILD", str(tool().parents[1]))
    trainer = mpt.Trainer(folder, threads=1)
    planted = PLANTED[name]
    target = np.zeros(planted["result"], np.float32)
    return [trainer.step({**{k: v * np.asarray(scale, v.dtype) for k, v in planted["inputs"].items()}, "target": target})
            for _ in range(steps)][-1]


@pytest.mark.parametrize("name", ["product", "convolution", "softmax without maximum", "gradient of a root at zero", "behind a mask", "logarithm",
                                  "loss scale"])
def test_debug_build_names_the_node(tmp_path, name):
    import mpt
    folder = compile_case(tmp_path, name, "--debug-nonfinite")
    with pytest.raises(mpt.Error) as caught:
        train(folder, name)
    text = str(caught.value)
    assert caught.value.status == 9 and text.startswith("run 0 of 'step': node '"), text
    if PLANTED[name]["node"]:
        assert f"node '{PLANTED[name]['node']}'" in text, text
    assert re.search(r"gave \d+ infinities and \d+ NaN in \d+ values of \w+", text) and "the type holds" in text
    if PLANTED[name]["fixed_by"] == "--keep-f32":
        assert f"--keep-f32='{PLANTED[name]['node']}'" in text, text


def test_debug_build_is_silent_on_good_steps_and_knows_bad_data(tmp_path):
    import mpt
    folder = compile_case(tmp_path, "product", "--debug-nonfinite")
    plain = compile_case(tmp_path / "plain" if (tmp_path / "plain").mkdir() is None else tmp_path, "product")
    ours, theirs = (train(f, "product", steps=3, scale=1e-6) for f in (folder, plain))
    assert not ours.skipped and ours.loss == pytest.approx(theirs.loss, rel=1e-3)
    with pytest.raises(mpt.Error, match="input 'x' of 'step' holds 24 infinities and 0 NaN in 24 values: mend the data"):
        train(folder, "product", scale=np.inf)


def test_debug_build_refuses_bad_parameters(tmp_path):
    import mpt
    folder = compile_case(tmp_path, "product", "--debug-nonfinite")
    os.environ.setdefault("MPT_BUILD", str(tool().parents[1]))
    trainer = mpt.Trainer(folder, threads=1)
    trainer.set_parameter("w", np.full((6, 6), np.nan, np.float32))
    with pytest.raises(mpt.Error, match="holds 0 infinities and 36 NaN in 36 values before this run of 'step'"):
        trainer.step({"x": np.zeros((4, 6), np.float32), "target": np.zeros((4, 6), np.float32)})
