# SPDX-License-Identifier: Apache-2.0
"""Folders of artifacts as ONNX Runtime writes them: training model, optimizer, checkpoint; the parts used of each, and the refused forms."""
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import mpt

sys.path.insert(0, os.path.dirname(__file__))
import mpt_run  # noqa: E402
from runtime_artifacts import MS, flatbuffer, ms, node  # noqa: E402

RNG = np.random.default_rng(11)


def values(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def artifacts(tmp_path):
    """A folder as generate_artifacts writes it, for y = x p, the mean as loss."""
    rows, columns = 3, 4
    nodes = [node("MatMul", "x,p", "y"), node("ReduceMean", "y", "loss", keepdims=0), node("Size", "y", "count"),
             ms("Scale", "loss_grad,count", "share", scale_down=1), node("Shape", "y", "every"), node("Expand", "share,every", "dy"),
             ms("FusedMatMul", "x,dy", "p_grad", transA=1),
             ms("InPlaceAccumulatorV2", "p_grad.accumulation.buffer,p_grad,lazy_reset_grad", "p_grad.accumulation.out")]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "training", [info("x", 1, [rows, columns]), info("p", 1, [columns, 2]),
                                                  info("p_grad.accumulation.buffer", 1, [columns, 2]), info("lazy_reset_grad", 9, [1])],
                              [info("loss", 1, []), info("p_grad.accumulation.out", 9, [1])],
                              [numpy_helper.from_array(np.float32(1), "loss_grad")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    folder = tmp_path / "artifacts"
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "training_model.onnx")
    optimizer = helper.make_graph([ms("SGDOptimizerV2", "learning_rate,params,gradients", "done")], "optimizer",
                                  [info("learning_rate", 1, [1])], [info("done", 9, [1])])
    onnx.save(helper.make_model(optimizer, opset_imports=opsets, ir_version=9), folder / "optimizer_model.onnx")
    weights = values(columns, 2)
    (folder / "checkpoint").write_bytes(flatbuffer({"p": weights}))
    return folder, weights


def test_folder_of_artifacts_trains(artifacts, tmp_path):
    folder, weights = artifacts
    x = values(3, 4)
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"x": x, "learning_rate": np.float32(1e-3)})
    done = subprocess.run([mpt_run.tool(), folder / "training_model.onnx", f"--checkpoint={folder}/checkpoint",
                           f"--optimizer-model={folder}/optimizer_model.onnx", "--function=step", f"--inputs={tmp_path}/in.safetensors",
                           f"--outputs={tmp_path}/out.safetensors", f"--new-state={tmp_path}/state.safetensors"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loss = mpt_run.read_tensors(tmp_path / "out.safetensors")["loss"]
    np.testing.assert_allclose(loss, np.mean(x @ weights), rtol=1e-5)
    gradient = x.T @ np.full((3, 2), 1 / 6, np.float32)
    np.testing.assert_allclose(mpt_run.read_tensors(tmp_path / "state.safetensors")["p"], weights - 1e-3 * gradient, rtol=1e-6)
    tool = mpt_run.tool().parent / "mpt-opt"
    said = subprocess.run([tool, folder, "--to=training", "-o", os.devnull], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "ONNX Runtime artifacts: loss 'loss'; gradients of 1 tensors from seed 'loss_grad'; optimizer sgd,lr=0.001" in said.stderr


def compiler(folder, *flags):
    return subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, *flags, "-o", os.devnull], capture_output=True, text=True)


@pytest.mark.parametrize("steps,state", [(7, "state of the optimizer in 6 tensors after 7 steps, of 2 running statistics, of 1 frozen parameter; used all"),
                                         (0, "state of 2 running statistics, of 1 frozen parameter; used all")])
def test_the_line_names_all_that_the_checkpoint_holds(steps, state, tmp_path):
    """y = normalized(x p + q), q frozen; the runtime leaves the running statistics among the frozen tensors."""
    shapes = {"p": (4, 2), "q": (2,), "s": (2,), "t": (2,), "mean": (2,), "var": (2,)}
    tensors, trained = {name: np.abs(values(*shape)) for name, shape in shapes.items()}, ("p", "s", "t")
    nodes = [node("MatMul", "x,p", "h"), node("Add", "h,q", "k"), ms("BatchNormInternal", "k,s,t,mean,var", "y,mean2,var2,m,i", training_mode=1),
             node("ReduceMean", "y", "loss", keepdims=0), node("Size", "y", "count"), ms("Scale", "loss_grad,count", "share", scale_down=1),
             node("Shape", "y", "every"), node("Expand", "share,every", "dy"), ms("BatchNormalizationGrad", "dy,k,s,m,i", "dk,s_grad,t_grad"),
             ms("FusedMatMul", "x,dk", "p_grad", transA=1)]
    nodes += [ms("InPlaceAccumulatorV2", f"{p}_grad.accumulation.buffer,{p}_grad,lazy_reset_grad", f"{p}_grad.accumulation.out") for p in trained]
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, [3, 4]), *(info(name, 1, shape) for name, shape in shapes.items()),
              *(info(f"{p}_grad.accumulation.buffer", 1, shapes[p]) for p in trained), info("lazy_reset_grad", 9, [1])]
    graph = helper.make_graph(nodes, "training", inputs, [info("loss", 1, []), *(info(f"{p}_grad.accumulation.out", 9, [1]) for p in trained)],
                              [numpy_helper.from_array(np.float32(1), "loss_grad")])
    folder = tmp_path / "artifacts"
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=9),
              folder / "training_model.onnx")
    write_optimizer(folder, [ms("AdamWOptimizer", "learning_rate,step,params,gradients,m,v", "done", **ADAM)])
    moments = {p: (np.zeros(shapes[p], np.float32),) * 2 for p in trained} if steps else None
    (folder / "checkpoint").write_bytes(flatbuffer({p: tensors[p] for p in trained}, {p: tensors[p] for p in shapes if p not in trained}, moments, steps))
    done = compiler(folder, "--to=training")
    assert done.returncode == 0 and state in done.stderr, done.stderr


def test_folders_without_a_training_model_say_what_is_missing(tmp_path):
    """Also where the artifacts are in the runtime's own format, which is named."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for flags in ([], ["--policy=amp-f16"], ["--to=import"], ["--emit=onnx"]):
        done = compiler(folder, *flags)
        assert done.returncode == 1 and f"expected training_model.onnx in folder '{folder}', got none; name a folder" in done.stderr, done.stderr
    (folder / "training_model.ort").write_bytes(b"")
    done = compiler(folder)
    assert done.returncode == 1 and "got training_model.ort: ONNX Runtime's own format is not read; write the artifacts without ort_format=True" in done.stderr
    for flags in ([], ["--emit=onnx"]):
        done = compiler(folder / "training_model.ort", *flags)
        assert done.returncode == 1 and "expected a model as .onnx, got" in done.stderr and "own format is not read" in done.stderr, done.stderr
    done = subprocess.run([mpt_run.tool(), folder, "--function=step"], capture_output=True, text=True)
    assert done.returncode != 0 and "got training_model.ort" in done.stderr, done.stderr


def test_damaged_checkpoints_are_refused(artifacts, tmp_path):
    """Every cut, and random bytes anywhere: an error or other values, never a crash."""
    folder, _ = artifacts
    tool = mpt_run.tool().parent / "mpt-opt"
    whole = (folder / "checkpoint").read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 13)]
    for seed in range(40):
        noise = bytearray(whole)
        for place in np.random.default_rng(seed).integers(8, len(whole), 3):
            noise[place] = np.random.default_rng(seed + 1000).integers(256)
        damaged.append(bytes(noise))
    for bytes_ in damaged:
        (tmp_path / "bad").write_bytes(bytes_)
        done = subprocess.run([tool, folder / "training_model.onnx", f"--checkpoint={tmp_path}/bad", "--to=import", "-o", os.devnull],
                              capture_output=True, text=True)
        assert done.returncode in (0, 1) and (done.returncode == 0 or "error:" in done.stderr), done.stderr


ADAM = {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-3, "weight_decay": 0.1}


def write_optimizer(folder, nodes):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "optimizer", [info("learning_rate", 1, [1])], [info("done", 9, [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=9),
              folder / "optimizer_model.onnx")


def adamw(p, g, m, v, t, mode, corrects):
    """AdamWOptimizer in float64."""
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    c1, c2 = (1 - 0.9**t, 1 - 0.99**t) if corrects else (1, 1)
    if mode == 0:
        return p * (1 - 1e-4) - 1e-3 / c1 * m / (np.sqrt(v / c2) + 1e-3)
    return (p - 1e-3 * np.sqrt(c2) / c1 * m / (np.sqrt(v) + 1e-3)) * (1 - 1e-4)


def step_of(folder, tmp_path, x, *flags):
    """Parameters and all other state after a step, and the tool's messages."""
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"x": x, "learning_rate": np.float32(1e-3)})
    done = subprocess.run([mpt_run.tool(), folder, *flags, "--function=step", f"--inputs={tmp_path}/in.safetensors",
                           f"--new-state={tmp_path}/state.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return mpt_run.read_tensors(tmp_path / "state.safetensors"), done.stderr


@pytest.mark.parametrize("mode,corrects", [(0, 1), (1, 1), (1, 0)])
@pytest.mark.parametrize("goes_on", [False, True])
def test_adamw_of_the_file_steps(artifacts, tmp_path, mode, corrects, goes_on):
    """Both modes with the file's own numbers, from zero and from the moments of a checkpoint."""
    folder, weights = artifacts
    write_optimizer(folder, [ms("AdamWOptimizer", "learning_rate,step,params,gradients,m,v", "done", adam_mode=mode, correct_bias=corrects, **ADAM)])
    m, v, step = np.zeros_like(weights), np.zeros_like(weights), 0
    if goes_on:
        m, v, step = values(*weights.shape) * 0.1, np.abs(values(*weights.shape)) * 0.01, 7
        (folder / "checkpoint").write_bytes(flatbuffer({"p": weights}, moments={"p": (m, v)}, step=step))
    x = values(3, 4)
    state, _ = step_of(folder, tmp_path, x)
    gradient = (x.T @ np.full((3, 2), 1 / 6, np.float32)).astype(np.float64)
    np.testing.assert_allclose(state["p"], adamw(weights.astype(np.float64), gradient, m, v, step + 1, mode, corrects), rtol=2e-6)
    assert state["mpt.step"] == step + 1
    # Another optimizer leaves the state of the file's aside.
    state, _ = step_of(folder, tmp_path, x, "--optimizer=sgd,lr=0.001")
    assert not any("moment" in name for name in state) and state["p"] == pytest.approx(weights - 1e-3 * gradient, rel=1e-5)


def test_clipping_of_the_file_is_used(artifacts, tmp_path):
    folder, weights = artifacts
    write_optimizer(folder, [ms("InplaceClipGradNorm", "gradients", "clipped", max_norm=0.125),
                             ms("SGDOptimizerV2", "learning_rate,params,clipped", "done")])
    x = values(3, 4)
    gradient = (x.T @ np.full((3, 2), 1 / 6, np.float32)).astype(np.float64)
    norm = np.sqrt(np.sum(gradient**2))
    assert norm > 0.125
    np.testing.assert_allclose(step_of(folder, tmp_path, x)[0]["p"], weights - 1e-3 * gradient * 0.125 / (norm + 1e-6), rtol=1e-6)
    np.testing.assert_allclose(step_of(folder, tmp_path, x, "--clip-norm=0.5")[0]["p"],
                               weights - 1e-3 * gradient * min(1, 0.5 / (norm + 1e-6)), rtol=1e-6)
    said = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--to=training", "-o", os.devnull], capture_output=True, text=True)
    assert "gradients clipped to norm 0.125" in said.stderr


def test_parameters_without_a_checkpoint_start_at_zero(artifacts, tmp_path):
    folder, _ = artifacts
    (folder / "checkpoint").unlink()
    x = values(3, 4)
    state, said = step_of(folder, tmp_path, x)
    assert "--checkpoint=FILE" in said and "start" in said
    np.testing.assert_allclose(state["p"], -1e-3 * (x.T @ np.full((3, 2), 1 / 6, np.float32)), rtol=1e-5)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_files_say_so(artifacts, content):
    folder, _ = artifacts
    for name in ("training_model.onnx", "optimizer_model.onnx"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        done = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--to=import", "-o", os.devnull], capture_output=True, text=True)
        assert done.returncode == 1 and "got an empty file" in done.stderr, done.stderr
        (folder / name).write_bytes(kept)


def test_numbers_of_the_backward_pass_are_no_parameters(artifacts, tmp_path):
    """ONNX Runtime's gradient builders bring numbers with names like a module's own tensors. As frozen parameters, a zero of theirs beside
    a gradient had no loss scale."""
    folder, weights = artifacts
    model = onnx.load(folder / "training_model.onnx")
    model.producer_name = "pytorch"
    nodes = list(model.graph.node)
    at = next(i for i, entry in enumerate(nodes) if entry.op_type == "Expand")
    nodes[at].output[0] = "dy_all"
    nodes[at + 1:at + 1] = [node("Greater", "y,ZeroConstant_Type1", "above"), node("Where", "above,ZeroConstant_Type1,dy_all", "dy_below"),
                            node("Mul", "dy_below,HalfConstant_Type1", "dy")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([numpy_helper.from_array(np.zeros(1, np.float32), "ZeroConstant_Type1"),
                                    numpy_helper.from_array(np.full(1, 0.5, np.float32), "HalfConstant_Type1")])
    onnx.save(model, folder / "training_model.onnx")
    x = values(3, 4)
    said = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--policy=amp-f16", "-o", tmp_path / "out"], capture_output=True, text=True)
    assert said.returncode == 0 and "no seed" not in said.stderr, said.stderr
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    assert set(trainer.parameters()) == {"p"}
    gradient = trainer.gradients({"x": x})[1]["p"]
    np.testing.assert_allclose(gradient, x.T @ np.where(x @ weights > 0, 0, 1 / 12).astype(np.float32), rtol=2e-3, atol=1e-4)


def test_gradients_that_are_no_multiples_of_their_seed_have_no_scale(artifacts, tmp_path):
    """Weight decay within the backward pass: a policy without a loss scale trains as the file says, and one with is refused by one error."""
    folder, weights = artifacts
    model = onnx.load(folder / "training_model.onnx")
    nodes = list(model.graph.node)
    nodes[-2].output[0] = "p_loss_grad"
    nodes[-1:-1] = [node("Add", "p_loss_grad,p", "p_grad")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, folder / "training_model.onnx")
    said = {policy: subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, f"--policy={policy}", "-o", tmp_path / policy],
                                   capture_output=True, text=True) for policy in ("amp-bf16", "amp-f16")}
    assert all("at node 'p_grad': no seed found" in run.stderr for run in said.values()), said
    assert said["amp-bf16"].returncode == 0 and said["amp-f16"].returncode == 1
    assert said["amp-f16"].stderr.count("error:") == 1, said["amp-f16"].stderr
    x = values(3, 4)
    gradient = mpt.Trainer(tmp_path / "amp-bf16", threads=1).gradients({"x": x})[1]["p"]
    np.testing.assert_allclose(gradient, x.T @ np.full((3, 2), 1 / 6, np.float32) + weights, rtol=4e-2, atol=2e-2)
