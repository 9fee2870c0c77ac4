# SPDX-License-Identifier: Apache-2.0
"""Writes scikit-learn's digits as raw files, in the order of the README's example."""
import numpy as np
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))[:1792]
(images[order] / 16).astype("float32").tofile("images.bin")
labels[order].astype("int64").tofile("labels.bin")
