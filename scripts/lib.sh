# shellcheck shell=bash
# What the scripts share. Source it; it sets root to the repository.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# resolved OPTION FILE prints where a program is, wherever the script goes later.
resolved() {
  if [ ! -f "$2" ] || [ ! -x "$2" ]; then die "$1 $2: not a program"; fi
  realpath "$2"
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

# cargo_tool NAME VERSION prints the path of a Rust program, built at that version
# once and kept in the repository's cache. Not optimised: that takes longer than it
# saves.
cargo_tool() {
  local dir=$root/.cache/tools/$1-$2 work
  if [ ! -x "$dir/$1" ]; then
    work=$(mktemp -d)
    (cd / && cargo install --quiet --locked --debug --target-dir "$work/target" --root "$work" --version "$2" "$1") >&2 || { rm -rf "$work" && return 1; }
    mkdir -p "$dir" && mv "$work/bin/$1" "$dir/$1"
    rm -rf "$work"
  fi
  printf '%s\n' "$dir/$1"
}

# python_packages prints a directory with the Python packages that the tests use,
# installed at their versions once and kept in the repository's cache. They are
# for the system's own Python, which every user can reach.
python_packages() {
  local dir=$root/.cache/python list=$root/cmd/bailey/testdata/clients/requirements.txt
  if ! cmp -s <(/usr/bin/python3 --version && cat "$list") "$dir/installed"; then
    rm -rf "$dir"
    /usr/bin/python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --no-deps --target "$dir" -r "$list" >&2
    (/usr/bin/python3 --version && cat "$list") >"$dir/installed"
  fi
  printf '%s\n' "$dir"
}

# guest_kernel prints a kernel that qemu boots, Debian's own, fetched once and kept
# in the repository's cache. It is not installed.
guest_kernel() {
  local dir=$root/.cache/kernel package
  if [ ! -e "$dir/vmlinuz" ]; then
    mkdir -p "$dir"
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    (cd "$dir" && apt-get download "$package" && dpkg-deb -x "$package"_*.deb package) >&2
    mv "$dir"/package/boot/vmlinuz-* "$dir/vmlinuz"
    rm -r "$dir"/package "$dir"/*.deb
  fi
  printf '%s\n' "$dir/vmlinuz"
}

# build_commands DIR builds every command as it is released.
build_commands() {
  mkdir -p "$1"
  make --silent -C "$root" build BIN="$1"
}

# here_git runs git on the repository, whoever owns it.
here_git() { git -c safe.directory="$root" -C "$root" "$@"; }

# source_files lists the files of the repository, committed or new.
# shellcheck disable=SC2016 # the inner shell expands it
source_files() {
  here_git ls-files -z --cached --others --exclude-standard --deduplicate |
    (cd "$root" && xargs -0 -r sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh)
}

# agent NAME PACKAGE VERSION prints the directory that an agent of npm's is
# installed in, once, as "npm install -g" does it.
agent() {
  local dir=$root/.cache/agents/$1-$3
  if [ ! -e "$dir/installed" ]; then
    rm -rf "$dir"
    npm install --global --prefix "$dir" --no-audit --no-fund --loglevel=error "$2@$3" >&2
    touch "$dir/installed"
  fi
  printf '%s\n' "$dir"
}

# python_agent NAME PACKAGE VERSION is agent for one of PyPI's, in a virtual
# environment.
python_agent() {
  local dir=$root/.cache/agents/$1-$3
  if [ ! -e "$dir/installed" ]; then
    rm -rf "$dir"
    /usr/bin/python3 -m venv "$dir"
    "$dir/bin/pip" install -q --disable-pip-version-check "$2==$3" >&2
    touch "$dir/installed"
  fi
  printf '%s\n' "$dir"
}

# notebook VERSION prints a directory with what executes notebooks.
notebook() {
  local dir=$root/.cache/agents/notebook-$1
  if [ ! -e "$dir/installed" ]; then
    rm -rf "$dir"
    /usr/bin/python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$dir" "nbclient==$1" ipykernel==6.29.5 >&2
    touch "$dir/installed"
  fi
  printf '%s\n' "$dir"
}
