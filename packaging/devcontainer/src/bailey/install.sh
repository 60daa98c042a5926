#!/bin/sh
# Builds and installs Bailey in a development container. The feature's option
# "version" arrives as VERSION; SOURCE, if set, is a tree to build instead.
set -eu

for name in go git make; do
  command -v "$name" >/dev/null || {
    echo "bailey: $name is missing; add the feature that has it, for example ghcr.io/devcontainers/features/go" >&2
    exit 1
  }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${SOURCE:-}" ]; then
  SOURCE=$work/bailey
  git clone -q https://github.com/bailey-sandbox/bailey "$SOURCE"
  git -C "$SOURCE" checkout -q "${VERSION:-main}"
fi
make --silent -C "$SOURCE" install BIN="$work/bin" DESTDIR="${DESTDIR:-}"
