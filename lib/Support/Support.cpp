// SPDX-License-Identifier: Apache-2.0
// Anchor of the support library.
