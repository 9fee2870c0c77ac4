// SPDX-License-Identifier: Apache-2.0
// Head and end of the report's page: styles, and the search in its tables.
#ifndef MPT_LIB_PRECISION_REPORT_HTMLPAGE_H
#define MPT_LIB_PRECISION_REPORT_HTMLPAGE_H

#include "llvm/ADT/StringRef.h"

namespace mpt {

inline constexpr llvm::StringLiteral kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>precision report</title>
<style>
:root { --ink: #1c2430; --dim: #667085; --line: #d9dee6; --paper: #fff; --band: #f5f7fa;
  --f16: #1f77b4; --bf16: #2a9d5c; --f8: #c2571a; --wide: #8a94a6; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --line: #344054; --paper: #14181f;
  --band: #1d232d; --f16: #63a9e0; --bf16: #5fca8f; --f8: #ef8e57; --wide: #98a2b3; --bad: #f97066; } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 24px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; }
p { margin: 0 0 8px; max-width: 75ch; color: var(--dim); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 3px 10px 3px 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } th { color: var(--dim); font-weight: 600;
  position: sticky; top: 0; background: var(--paper); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 12.5px ui-monospace, monospace; word-break: break-word; } .dim { color: var(--dim); }
.t { font: 600 12px ui-monospace, monospace; border-radius: 4px; padding: 1px 6px; color: var(--paper); white-space: nowrap; }
.f16 { background: var(--f16); } .bf16 { background: var(--bf16); } .f8 { background: var(--f8); } .wide { background: var(--wide); }
.bad { color: var(--bad); font-weight: 600; } input { font: inherit; padding: 4px 8px; width: min(60ch, 90%);
  color: inherit; background: var(--band); border: 1px solid var(--line); border-radius: 4px; margin: 0 0 8px; }
svg { display: block; } details > summary { cursor: pointer; font-size: 16px; font-weight: 600; margin: 28px 0 8px; }
</style></head><body>
)html";

inline constexpr llvm::StringLiteral kTail = R"html(<script>
document.querySelectorAll("input[data-table]").forEach(box => box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(word => word);
  document.querySelectorAll("#" + box.dataset.table + " tbody tr").forEach(row => {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  });
}));
</script></body></html>
)html";

} // namespace mpt

#endif // MPT_LIB_PRECISION_REPORT_HTMLPAGE_H
