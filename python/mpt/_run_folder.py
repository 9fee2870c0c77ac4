# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: settings, a log of JSON lines, checkpoints of which the newest and the best stay."""
import json
import os
import pathlib
import tempfile

from ._errors import logger
from ._native import Error


def write_text(path: pathlib.Path, text: str) -> None:
    """Replaces a file at once or not at all."""
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def read_log(path: pathlib.Path) -> list:
    """The records of a log; a line that a killed process left unfinished is none."""
    records = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break
    except FileNotFoundError:
        pass
    return records


class RunFolder:
    """`path` holds run.json, log.jsonl, checkpoints/step-N.safetensors with step-N.json beside each, best.safetensors."""

    def __init__(self, path, keep: int):
        self.path, self.keep = pathlib.Path(path), keep
        self.checkpoints = self.path / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.log = self.events = None

    def describe(self, settings: dict) -> None:
        write_text(self.path / "run.json", json.dumps(settings, indent=1))

    def found(self) -> list:
        """Complete checkpoints, the newest first: the text beside a state is written after it."""
        notes = self.checkpoints.glob("step-*.json")
        return sorted((note for note in notes if note.with_suffix(".safetensors").exists()), reverse=True)

    def resume(self, trainer) -> dict | None:
        """Loads the newest checkpoint that can be read, and returns the progress noted beside it."""
        for note in self.found():
            try:
                place = json.loads(note.read_text())
                trainer.load(note.with_suffix(".safetensors"))
                return place
            except (Error, OSError, ValueError) as problem:
                logger.warning("checkpoint %s is left out: %s", note.with_suffix(".safetensors"), problem)
        if self.found():
            raise ValueError(f"expected a checkpoint of this model in '{self.checkpoints}', got none that loads: give another run folder, "
                             "or resume=False to begin anew")
        return None

    def clear(self) -> None:
        for file in [*self.checkpoints.glob("step-*"), self.path / "best.safetensors", self.path / "log.jsonl"]:
            file.unlink(missing_ok=True)

    def save(self, trainer, place: dict) -> pathlib.Path:
        state = self.checkpoints / f"step-{place['step']:09d}.safetensors"
        self.flush()
        trainer.save(state)
        write_text(state.with_suffix(".json"), json.dumps(place))
        for note in self.found()[self.keep:]:
            note.unlink()
            note.with_suffix(".safetensors").unlink()
        return state

    # ---- the log ----

    def open_log(self, step: int) -> None:
        """Continues the log behind `step`: steps of a killed run after its last checkpoint are done again."""
        path = self.path / "log.jsonl"
        kept = [record for record in read_log(path) if record.get("step", 0) <= step]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        self.log = open(path, "a", encoding="utf-8")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:  # TensorBoard is not installed
            return
        self.events = SummaryWriter(str(self.path), purge_step=step + 1)

    def write(self, record: dict) -> None:
        self.log.write(json.dumps(record) + "\n")
        if self.events:
            for name, value in record.items():
                if isinstance(value, (int, float)) and name not in ("step", "epoch"):
                    self.events.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def flush(self) -> None:
        self.log.flush()
        os.fsync(self.log.fileno())

    def close(self) -> None:
        if self.log:
            self.log.close()
        if self.events:
            self.events.close()
