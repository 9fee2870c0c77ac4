#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs.sh [FOLDER]: builds the documentation as a site, build/site by default, with search and references of the Python package and the
# headers. Its pages open from disk and fetch nothing. A dead link is an error. MkDocs lies in an environment of its own, build/docs-env.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null
cd "$MPT_ROOT"

PACKAGES=(mkdocs==1.6.1 mkdocs-material==9.8.2 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 griffelib==2.4.1 black==26.10.1)
out="$(realpath -m "${1:-build/site}")"
environment="$MPT_ROOT/build/docs-env"

if [ "${PACKAGES[*]}" != "$(cat "$environment/packages" 2>/dev/null)" ]; then
  say "installing ${PACKAGES[*]}"
  rm -rf "$environment"
  python3 -m venv "$environment" && "$environment/bin/python" -m pip install -q --disable-pip-version-check "${PACKAGES[@]}" ||
    die "pip could not install: ${PACKAGES[*]}"
  echo "${PACKAGES[*]}" >"$environment/packages"
fi

export NO_MKDOCS_2_WARNING=1 # a notice of the theme about its successor
# Under --quiet no warning would count.
log="$("$environment/bin/python" -m mkdocs build --strict --config-file scripts/site/mkdocs.yml --site-dir "$out" 2>&1)" ||
  die "the site was not built:
$log"
foreign="$(grep -rlE '<(script|link|img|iframe|source)[^>]+(src|href)="?(https?:)?//' "$out" --include='*.html' || true)"
[ -z "$foreign" ] || die "pages fetch from other places: $foreign"
say "$(find "$out" -name '*.html' | wc -l) pages, $(du -sh "$out" | cut -f1), in $out/index.html"
