// SPDX-License-Identifier: Apache-2.0
/* The compiler as a C library (libmpt_compiler): mpt-opt's work on an ONNX model, callable in process.
 *
 * The arguments are mpt-opt's own words, so that this interface does not change when a flag is added. Thread-safe:
 * calls share nothing. Nothing throws or exits across it. */
#ifndef MPT_C_COMPILER_H
#define MPT_C_COMPILER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compiles as `mpt-opt arguments[0] arguments[1] ...` would. Returns 0 on success, otherwise non-zero. Where
 * `diagnostics` is not NULL it receives the errors and warnings as text (empty when there are none), owned by the
 * caller and freed with mpt_compiler_free_text. */
int32_t mpt_compiler_run(int32_t count, const char *const *arguments, char **diagnostics);

void mpt_compiler_free_text(char *text);

/* "major.minor.patch"; static storage. */
const char *mpt_compiler_version(void);

#ifdef __cplusplus
}
#endif
#endif
