#!/bin/sh
# Sees to it that a Chromium is there for the tests that look at pages; where apt is, by installing it.
# Without one those tests fail and say so, the others run.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "set-up: no Chromium on the path and no apt-get to install it; the tests of HTML pages will fail" >&2
    exit 0
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "set-up: installing Chromium takes root; the tests of HTML pages will fail without it" >&2
        exit 0
    fi
    as_root="sudo"
fi
echo "set-up: Chromium, for the tests of HTML pages"
log=$(mktemp)
if ! { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >"$log" 2>&1; then
    tail -5 "$log" >&2
    echo "set-up: Chromium could not be installed; the tests of HTML pages will fail" >&2
fi
rm -f "$log"
