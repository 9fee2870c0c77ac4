# SPDX-License-Identifier: Apache-2.0
"""The reductions that --memory-budget chooses among: their order, their bits, and the message where none is enough."""
import json
import re
import subprocess

import pytest

from test_memory import COMPILER, LAYERS, WIDTH, build, model  # noqa: F401

pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="mpt-opt is not built")
ADAM = "--optimizer=adamw,lr=0.01"
ALL = "all rematerialized that can be"


def rungs(report):
    """The rows of the plans that were tried, by their text, and the text of the one that was taken."""
    rows = {row["rung"]: row for row in report["budget"]["rungs"]}
    taken, = (text for text, row in rows.items() if row["taken"])
    return rows, taken


def refused(model, budget, *flags):
    """Bytes by rung as the message gives them, and the value of --memory-budget that allows each that is not allowed."""
    done = subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--train=w[0-9]", *flags, f"--memory-budget={budget}", "--dry-run"],
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: expected a plan of at most "), done.stderr
    found = re.findall(r"^note: (.*): (\d+) bytes(?:, if you allow it with --memory-budget=(\S+))?$", done.stderr, re.M)
    return {text: int(count) for text, count, _ in found}, {text: value for text, _, value in found if value}, done.stderr


@pytest.fixture(scope="module")
def needs(model):  # noqa: F811
    """Bytes of each rung of the model under AdamW, and the words that allow them."""
    return refused(model, 1, ADAM)


def made(model, folder, *flags):
    folder.mkdir()
    return build(model, folder, ADAM, *flags)


def test_refusal_names_each_rung_and_the_words_that_allow_it(model, needs, tmp_path):  # noqa: F811
    count, words, text = needs
    assert f"got {min(count[rung] for rung in ('as asked', ALL))} of 'step' with {ALL}\n" in text
    codes = f"{ALL}, activations in 8 bits"
    states = {slots: f"{ALL}, optimizer states in {slots}" for slots in ("bf16", "i8", "f8")}
    both = {slots: f"{codes}, optimizer states in {slots}" for slots in ("bf16", "i8", "f8")}
    assert count[codes] < count[ALL] and set(words) == {codes, *states.values(), *both.values()}
    slot = 2 * 4 * WIDTH * WIDTH  # of each moment of four layers
    assert count[ALL] - count[states["bf16"]] == pytest.approx(2 * slot, rel=0.05)
    assert count[states["i8"]] == count[states["f8"]] < count[states["bf16"]]
    for rung, value in words.items():
        # The words and bytes of the message are taken at its word.
        value = value.replace("1,", f"{count[rung]},", 1)
        done = subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--train=w[0-9]", ADAM, f"--memory-budget={value}", "--dry-run"],
                              stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, (rung, value, done.stderr)


def test_codes_come_before_states_and_states_alone_before_both(model, needs, tmp_path):  # noqa: F811
    count = needs[0]
    codes, states = f"{ALL}, activations in 8 bits", f"{ALL}, optimizer states in i8"
    allowed = ",saved=f8,slots=i8"
    cases = {"asked": count["as asked"], "lossless": count[ALL], "codes": count[codes], "states": min(count[codes], count[states] + 1) - 1,
             "both": count[f"{codes}, optimizer states in i8"]}
    wanted = {"asked": ("as asked", False, False), "lossless": (ALL, False, False), "codes": (codes, True, False),
              "states": (states, False, True), "both": (f"{codes}, optimizer states in i8", True, True)}
    assert count[states] < count[codes] and sorted(cases.values(), reverse=True) == list(cases.values())
    for name, budget in cases.items():
        report, _ = made(model, tmp_path / name, f"--memory-budget={budget}{allowed}")
        text, coded, narrow = wanted[name]
        taken = rungs(report)[1]
        # Fewer values may be rematerialized than can be.
        assert re.sub("^(all|more) rematerialized[^,]*(, |$)", "", taken) == re.sub(f"^{ALL}(, |$)", "", text), name
        assert ("coded_activations" in report["rungs"], "narrow_slots" in report["rungs"]) == (coded, narrow), name
        assert max(f["peak"] for f in report["functions"].values()) <= budget or name == "asked"


@pytest.mark.parametrize("flag, rung, words", [
    (None, "as asked", ",lossy"), ("--saved=f8", f"{ALL}, activations in 8 bits", ",saved=f8"),
    ("--slots=i8", f"{ALL}, optimizer states in i8", ",slots=i8")])
def test_bits_are_those_of_the_flags(model, needs, tmp_path, flag, rung, words):  # noqa: F811
    """A budget that takes a rung makes the library that the rung's own flag makes; one that takes none changes no bit."""
    budget = f"--memory-budget={needs[0][rung]}"
    plain, parameters = made(model, tmp_path / "flags", *([flag, budget] if flag else []))
    chosen, same = made(model, tmp_path / "budget", budget + words)
    assert chosen["state"] == plain["state"] and chosen["rungs"] == plain["rungs"] and bool(chosen["rungs"]) == bool(flag)
    for name, value in parameters.items():
        assert value.tobytes() == same[name].tobytes(), name


def test_masters_without_copies_come_before_loss(model, tmp_path):  # noqa: F811
    """Small weights have narrow copies, whose memory a budget takes away by itself, with the bits of copies."""
    (tmp_path / "copied").mkdir(), (tmp_path / "tight").mkdir()
    copied, expected = build(model, tmp_path / "copied", "--policy=amp-f16", "--memory-budget=1G,lossy")
    peak = max(entry["peak"] for name, entry in copied["functions"].items() if name != "gradients")
    assert copied["rungs"]["packed_masters"]["parameters"] == 0
    tight, parameters = build(model, tmp_path / "tight", "--policy=amp-f16", f"--memory-budget={peak - WIDTH * WIDTH},lossy")
    rows, taken = rungs(tight)
    assert tight["rungs"]["packed_masters"]["parameters"] == LAYERS and taken == "no narrow copies of parameters"
    assert rows[taken]["time"] <= rows["more rematerialized"]["time"]
    for name, value in expected.items():
        assert parameters[name].tobytes() == value.tobytes(), name


def test_least_time_is_taken_among_states_that_fit(model, needs, tmp_path):  # noqa: F811
    count = needs[0]
    budget = count[f"{ALL}, optimizer states in bf16"]
    report, _ = made(model, tmp_path / "out", f"--memory-budget={budget},slots=bf16,slots=i8,slots=f8")
    rows, taken = rungs(report)
    fitting = {text: row["time"] for text, row in rows.items() if row.get("peak", budget + 1) <= budget}
    assert {re.search("in (.*)", text)[1] for text in fitting} == {"bf16", "i8", "f8"} and fitting[taken] == min(fitting.values())
    first = next(iter(rows.values()))
    for row in (row for row in rows.values() if "peak" in row):
        assert row["saves"] == first["peak"] - row["peak"]
    # A code is found by a search, which costs more than its bytes save.
    assert rows["optimizer states in i8"]["moves_more"] > 0


def test_rungs_that_do_not_apply_say_why(model):  # noqa: F811
    """SGD without momentum has no states; FP32 has no narrow copies."""
    text = refused(model, 1, "--optimizer=sgd,lr=0.1")[2]
    assert "optimizer states in i8: no plan: expected optimizer slots that may be i8 for --slots=i8, got none" in text
    assert "no narrow copies of parameters: no plan: expected a parameter whose readers all round it" in text
    assert text.count("error: ") == 1 and text.count("for --slots=i8") == 1


def test_states_asked_for_are_not_chosen(model):  # noqa: F811
    done = subprocess.run([COMPILER, model, "--loss=mse", "--slots=i8", "--memory-budget=1M,slots=bf16"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "expected one of --slots=i8 and slots= of --memory-budget, got both" in done.stderr
    text = refused(model, 1, ADAM, "--slots=bf16")[2]
    assert "optimizer states" not in text


@pytest.mark.parametrize("value", ["1G,", "1G,slots=i4", "1G,saved=f16", "1G,slots=f32", ",lossy"])
def test_wrong_values(model, value):  # noqa: F811
    done = subprocess.run([COMPILER, model, "--loss=mse", f"--memory-budget={value}"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and re.search(r"BYTES, with ,check=parameter, ,saved=f8|a number of bytes", done.stderr), done.stderr


def test_bars(model, needs):  # noqa: F811
    count = needs[0]
    command = [COMPILER, model, "--quiet", "--loss=mse", "--train=w[0-9]", ADAM, "--dry-run", "--report=memory"]
    budget = count[f"{ALL}, optimizer states in i8"]
    text = subprocess.run([*command, f"--memory-budget={budget},slots=i8"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert f"budget of {budget:,} bytes" in text
    rows = {name: (int(peak.replace(",", "")), len(bar)) for name, peak, bar in re.findall(r"^[> ] (\w.*)\n    +([\d,]+) (#+) +saves", text, re.M)}
    most = max(peak for peak, _ in rows.values())
    assert len(rows) >= 3 and all(bar == round(30 * peak / most) for peak, bar in rows.values())
    assert re.search(r"^> .*optimizer states in i8\n", text, re.M) and len(re.findall("^> ", text, re.M)) == 1
    assert re.search(r"narrow_slots.*\n.*saves.*\n  of the peak without it: #+\n", text)
    plan = json.dumps(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert "budget" not in plan and "#" not in plan
