# SPDX-License-Identifier: Apache-2.0
"""Models whose values mean something (positions, counts, angles, tables, exact constants), held in every policy against float64."""
