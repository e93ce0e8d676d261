#!/bin/sh
# Fetches the vendored front-end files in the versions below, and builds the icon sprite. Run it in this folder after
# changing a version; npm is needed for this only, never at run time.
set -eu

BOOTSTRAP=5.3.9
HTMX=2.0.11
HTMX_SSE=2.2.4
UPLOT=1.6.32
HIGHLIGHT=11.11.1
ICONS=1.13.2
# The icons that templates name; a template that needs another adds it here.
ICON_NAMES="
archive arrow-clockwise arrow-left arrow-right arrow-repeat arrow-up-short bell box-arrow-right building chat-left-text
check-circle-fill chevron-down chevron-right circle-half cpu dash-circle exclamation-circle exclamation-triangle-fill
globe2 graph-up hourglass-split house journal-text key lightning-charge-fill list moon-stars pencil people person-circle person-plus plus-lg question-circle
robot search send sliders stop-circle sun tools x-circle-fill x-lg eye tags plug shield-check person-check trash play check-lg bar-chart-line box-seam
speedometer2 cash-coin inbox gear code-slash clipboard download diagram-2
"

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$here/licences"

unpack() { # package, version, short name
  (cd "$work" && npm pack --silent "$1@$2" >/dev/null && mkdir "$3" && tar xzf "$(echo "$1" | sed -e 's|^@||' -e 's|/|-|')-$2.tgz" -C "$3" --strip-components=1)
  cp "$work/$3/LICENSE" "$here/licences/$3.txt"
}

unpack bootstrap "$BOOTSTRAP" bootstrap
unpack htmx.org "$HTMX" htmx
unpack htmx-ext-sse "$HTMX_SSE" htmx-ext-sse
unpack uplot "$UPLOT" uplot
unpack @highlightjs/cdn-assets "$HIGHLIGHT" highlight
unpack bootstrap-icons "$ICONS" bootstrap-icons

# Source maps are not shipped, so nothing may point to them.
strip_map() { sed -e 's|/\*# sourceMappingURL=.*\*/||' -e 's|^//# sourceMappingURL=.*$||' "$1" >"$2"; }
strip_map "$work/bootstrap/dist/css/bootstrap.min.css" "$here/bootstrap.min.css"
strip_map "$work/bootstrap/dist/js/bootstrap.bundle.min.js" "$here/bootstrap.bundle.min.js"
cp "$work/htmx/dist/htmx.min.js" "$here/htmx.min.js"
cp "$work/htmx-ext-sse/sse.js" "$here/htmx-ext-sse.js"
cp "$work/uplot/dist/uPlot.iife.min.js" "$here/uplot.min.js"
cp "$work/uplot/dist/uPlot.min.css" "$here/uplot.min.css"
cp "$work/highlight/highlight.min.js" "$here/highlight.min.js"

{
  printf '<svg xmlns="http://www.w3.org/2000/svg">\n'
  for name in $ICON_NAMES; do
    printf '<symbol id="%s" viewBox="0 0 16 16">' "$name"
    tr -d '\n' <"$work/bootstrap-icons/icons/$name.svg" | sed -e 's|^<svg[^>]*>||' -e 's|</svg>$||' -e 's|  *<|<|g'
    printf '</symbol>\n'
  done
  printf '</svg>\n'
} >"$here/icons.svg"

cat >"$here/VERSIONS.md" <<END
# Vendored front-end files

Written by \`update.sh\`; the licence texts are in \`licences/\`.

| file | package | version | licence |
|---|---|---|---|
| bootstrap.min.css, bootstrap.bundle.min.js | bootstrap | $BOOTSTRAP | MIT |
| htmx.min.js | htmx.org | $HTMX | 0BSD |
| htmx-ext-sse.js | htmx-ext-sse | $HTMX_SSE | 0BSD |
| uplot.min.js, uplot.min.css | uplot | $UPLOT | MIT |
| highlight.min.js (its common languages) | @highlightjs/cdn-assets | $HIGHLIGHT | BSD-3-Clause |
| icons.svg (a sprite of the icons in use) | bootstrap-icons | $ICONS | MIT |
END
