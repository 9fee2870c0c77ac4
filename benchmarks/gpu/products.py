# SPDX-License-Identifier: Apache-2.0
"""Times a model's products in 16 and 8 bits: products.py FOLDER. A JSON line with the table that --policy=...,measure=FILE takes,
and how many products are faster in 8 bits with their conversions; run.py writes the table to its results."""
from __future__ import annotations

import argparse
import json
import pathlib

import standin
import trainers


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("folder", type=pathlib.Path)
    parse.add_argument("--tiny", action="store_true", help="one short sample each")
    trainers.add_argument(parse)
    a = parse.parse_args()
    trainers.take(a.option)
    from mpt import measure
    table = measure.measure(a.folder, options=trainers.options, **({"rounds": 1, "seconds": 1e-6} if a.tiny else {}))
    faster = sum(row["us_8"] < row["us_16"] for row in table["products"])
    row = {"case": f"{a.folder.parent.name} {a.folder.name}", "ok": True, "products": len(table["products"]), "faster": faster,
           "device": table["device"], "table": table}
    if text := standin.violations():
        row.update(ok=False, problem=text)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
