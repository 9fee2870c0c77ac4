# SPDX-License-Identifier: Apache-2.0
"""The state of SGD, Adam and AdamW in the layout of torch.optim, both ways."""
import math

import numpy as np

from ._blocks import decode, dynamic_map, encode
from ._weights import as_numpy, torch_or_none

# Our names of optimizer state and torch's, and the settings that both have.
LAYOUTS = {"sgd": ("SGD", {"momentum": "momentum_buffer"}, ("momentum", "dampening", "weight_decay", "nesterov")),
           "adam": ("Adam", {"moment1": "exp_avg", "moment2": "exp_avg_sq"}, ("betas", "eps", "weight_decay")),
           "adamw": ("AdamW", {"moment1": "exp_avg", "moment2": "exp_avg_sq"}, ("betas", "eps", "weight_decay"))}


class OptimizerState:
    def __init__(self, weights):
        self.weights, self.trainer = weights, weights.trainer
        self.groups = self.trainer.manifest.get("optimizer", {}).get("groups")
        kinds = {group["kind"] for group in self.groups or ()}
        if len(kinds) != 1 or not kinds <= LAYOUTS.keys() or "mpt.step" not in weights.states:
            raise ValueError("expected a step with sgd, adam or adamw alone, whose state torch.optim has too, got "
                             f"{', '.join(sorted(kinds)) or 'another update'}; save(path) has any optimizer's state")
        if any(group.get("eps_hat") or not group.get("bias_correction", True) for group in self.groups):
            raise ValueError("expected an optimizer with eps and bias correction, as torch.optim has them, got eps-hat or "
                             "bias-correction=false")
        self.kind, = kinds
        self.called, self.slots, self.names = LAYOUTS[self.kind]
        self.trained = {name for group in self.groups for name in group["parameters"]}

    def state_of(self, parameter: str) -> str | None:
        """The state that trains in place of a parameter."""
        state = self.weights.state_of[self.weights.keys[parameter]["first"]]
        return state if state in self.trained else None

    def group_of(self, parameter: str) -> dict:
        return next((group for group in self.groups if self.state_of(parameter) in group["parameters"]), self.groups[0])

    def layout(self, all_of_one: bool = True) -> list:
        """The parameters of each group: of one group all that the module has, as module.parameters() does, of several the
        trained ones."""
        if len(self.groups) == 1 and all_of_one:
            return [list(self.weights.parameters)]
        return [[name for name in self.weights.parameters if self.state_of(name) in group["parameters"]]
                for group in self.groups]

    def settings(self, group: dict) -> dict:
        made = {name: tuple(group[name]) if name == "betas" else group[name] for name in self.names}
        first = self.groups[0]["lr"]
        return {"lr": self.rate() * (group["lr"] / first if group["lr"] != first else 1.0), **made}

    def rate(self) -> float:
        rate = self.trainer._learning_rate()
        return self.groups[0]["lr"] if rate is None else rate

    def save(self) -> dict:
        torch, state, groups = torch_or_none(), {}, []
        wrap = torch.from_numpy if torch else lambda array: array
        number = 0
        for group, names in zip(self.groups, self.layout()):
            settings = self.settings(group)
            if torch:
                made = getattr(torch.optim, self.called)([torch.zeros(1, requires_grad=True)], **settings)
                settings = made.state_dict()["param_groups"][0]
            settings |= {"params": list(range(number, number + len(names))), "param_names": names}
            groups.append(settings)
            for name in names:
                found = self.state_of(name)
                slots = {theirs: wrap(self.read(f"{found}.{ours}")) for ours, theirs in self.slots.items()
                         if found and f"{found}.{ours}" in self.weights.states}
                if slots and (steps := self.steps_of(found)):
                    state[number] = ({"step": wrap(np.array(steps, np.float32))} if self.kind != "sgd" else {}) | slots
                number += 1
        return {"state": state, "param_groups": groups}

    def extra(self, parameter: str) -> str | None:
        """The state that counts a parameter's updates in skipped steps, under a finite check by parameter."""
        name = f"{parameter}.extra_updates"
        return name if name in self.weights.states else None

    def steps_of(self, parameter: str) -> int:
        extra = self.extra(parameter)
        return int(self.weights.read("mpt.step")) + (int(self.weights.read(extra)) if extra else 0)

    def table(self, name: str) -> np.ndarray | None:
        """The numbers of an optimizer state's codes, where codes are no numbers themselves."""
        return dynamic_map(signed=not name.endswith(".moment2")) if self.weights.states[name][1] == "uint8" else None

    def read(self, name: str) -> np.ndarray:
        stored = self.trainer.parameter(name)
        if f"{name}.scale" not in self.weights.states:
            return stored
        return decode(stored, self.trainer.parameter(f"{name}.scale"), self.table(name))

    # ---- the other way ----

    def write(self, name: str, value: np.ndarray) -> None:
        if scales := self.weights.states.get(f"{name}.scale"):
            value, factors = encode(value.astype(np.float32), scales[2][0], self.table(name), name.endswith(".moment2"))
            self.trainer.set_parameter(f"{name}.scale", factors)
        self.trainer.set_parameter(name, value)

    def load(self, given: dict) -> None:
        """Looks at everything before it writes anything."""
        rates, entries = [], {}
        for theirs, names in zip(given["param_groups"], self.named(given["param_groups"])):
            for name, number in zip(names, theirs["params"]):
                if self.state_of(name):
                    rates.append(self.checked(name, theirs, self.group_of(name)))
                    entries[self.state_of(name)] = given["state"].get(number, {})
        if lost := self.trained - entries.keys():
            raise ValueError(f"expected the state of all trained parameters, got none of {', '.join(sorted(lost)[:8])}")
        if any(not math.isclose(rate, rates[0], rel_tol=1e-6) for rate in rates):
            raise ValueError("expected learning rates in the ratio that the groups were compiled with, got "
                             f"{', '.join(str(group['lr']) for group in given['param_groups'])}")
        values, steps = {}, {}
        for state, entry in entries.items():
            for ours, theirs in self.slots.items():
                if f"{state}.{ours}" in self.weights.states:
                    values[f"{state}.{ours}"] = self.slot(state, entry.get(theirs), f"{state}.{ours}")
            if "max_exp_avg_sq" in entry:
                raise ValueError(f"'{state}': expected the state of {self.called} without amsgrad, got one with it")
            steps[state] = int(entry.get("step", 0)) if self.kind != "sgd" else 0
        if len(set(steps.values())) > 1 and not all(map(self.extra, steps)):
            raise ValueError(f"expected one number of steps for all parameters, got {', '.join(map(str, sorted(set(steps.values()))))}: "
                             "some had no gradient in some steps")
        least = min(steps.values())
        if self.kind == "sgd":  # torch counts no steps; only whether there were any matters
            least = max(int(self.weights.read("mpt.step")), int(any(np.any(value) for value in values.values())))
        for name, value in values.items():
            self.write(name, value)
        self.weights.set_steps(least)
        for state in filter(self.extra, steps):
            self.weights.put(self.extra(state), np.array(max(0, steps[state] - least), np.int64))
        if rates:
            self.trainer._runtime.call("mpt_trainer_set_learning_rate", self.trainer._trainer, float(rates[0]))

    def named(self, groups: list) -> list:
        """The parameters of each of torch's groups: by their names where it has them, else in the order of module.parameters()."""
        if all("param_names" in group for group in groups):
            if unknown := [name for group in groups for name in group["param_names"] if name not in self.weights.keys]:
                raise ValueError(f"expected names of the model's parameters, got {', '.join(unknown[:8])}")
            return [group["param_names"] for group in groups]
        for layout in (self.layout(), self.layout(all_of_one=False)):
            if [len(names) for names in layout] == [len(group["params"]) for group in groups]:
                return layout
        raise ValueError(f"expected groups of {', '.join(str(len(names)) for names in self.layout())} parameters, got "
                         f"{', '.join(str(len(group['params'])) for group in groups)}; "
                         "an optimizer of module.named_parameters() has names")

    def checked(self, name: str, theirs: dict, ours: dict) -> float:
        """The rate that the trainer is given for a parameter's group; its other settings are part of the library."""
        def same(a, b):
            return all(map(same, a, b)) if isinstance(b, (tuple, list)) else math.isclose(float(a), float(b), rel_tol=1e-7)

        for setting in self.names:
            if setting in theirs and not same(theirs[setting], ours[setting]):
                raise ValueError(f"'{name}': expected {setting} {ours[setting]}, which the library was compiled with, got "
                                 f"{theirs[setting]}; compile with an optimizer of these settings")
        decoupled = theirs.get("decoupled_weight_decay", self.kind == "adamw")
        if theirs.get("amsgrad") or theirs.get("maximize") or (ours["weight_decay"] and decoupled != (self.kind == "adamw")):
            raise ValueError(f"'{name}': expected the state of {self.called} without amsgrad and maximize, got another optimizer's")
        rate = theirs["initial_lr"] if ours["scheduled"] and "initial_lr" in theirs else theirs["lr"]
        share = ours["lr"] / self.groups[0]["lr"] if ours["lr"] != self.groups[0]["lr"] else 1.0
        return float(rate) / share

    def slot(self, state: str, value, name: str) -> np.ndarray:
        shape = self.weights.states[name][2]
        if value is None:
            return np.zeros(shape, np.float32)
        array = as_numpy(name, value)
        if array.shape != shape:
            raise ValueError(f"'{name}': expected shape {shape}, got {array.shape}: the optimizer's parameters have another order; "
                             "an optimizer of module.named_parameters() has names")
        return array
