// SPDX-License-Identifier: Apache-2.0
// ONNX files as translations of a tool in the manner of mlir-translate.
#ifndef MPT_IMPORT_TRANSLATIONS_H
#define MPT_IMPORT_TRANSLATIONS_H

namespace mpt {

/// Registers `--import-onnx` (onnx.node ops) and `--import-core` (the core graph), with their flags --bind, --train and
/// --freeze. Call it once, before the command line is parsed.
void registerImportTranslations();

} // namespace mpt

#endif // MPT_IMPORT_TRANSLATIONS_H
