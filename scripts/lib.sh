# shellcheck shell=bash
# What the scripts share. Source it; it sets root to the repository.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }

# install_packages NAME... installs the Debian packages that are missing.
install_packages() {
  command -v dpkg-query >/dev/null || return 0
  local name missing=()
  for name in "$@"; do
    dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  is_root || die "packages are missing; as root: apt-get install ${missing[*]}"
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
}

# go_tool PACKAGE VERSION prints the path of a Go program, built at that version
# once and kept in the repository's cache.
go_tool() {
  local dir=$root/.cache/tools/${1##*/}-$2
  [ -x "$dir/${1##*/}" ] || (cd / && GOFLAGS='' GOBIN="$dir" CGO_ENABLED=0 go install "$1@$2") >&2
  printf '%s\n' "$dir/${1##*/}"
}

# build_commands DIR builds every command as it is released.
build_commands() {
  mkdir -p "$1"
  make --silent -C "$root" build BIN="$1"
}

# source_files lists the files of the repository, committed or new.
# shellcheck disable=SC2016 # the inner shell expands it
source_files() {
  git -c safe.directory="$root" -C "$root" ls-files -z --cached --others --exclude-standard --deduplicate |
    (cd "$root" && xargs -0 -r sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh)
}
