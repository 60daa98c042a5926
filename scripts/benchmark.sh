#!/usr/bin/env bash
# Times commands unsandboxed, under bubblewrap and under Bailey, interleaved.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/benchmark.sh [OPTION]...

Every round runs each variant of each workload once with "hyperfine -N", in
rotating order, so that a change of the machine's speed meets all of them.
Writes all samples as JSON and a table as Markdown, named by system,
architecture and time.

  -b, --binary PATH   the bailey to measure (default: built from this tree)
  -o, --output DIR    where the reports go (default: ./benchmarks)
  -n, --runs N        rounds (default: 30)
  -q, --quick         5 rounds
      --broker        measure what the broker decides instead: files made, a
                      tree of 100,000 files, with and without patterns, and
                      programs executed under rules
      --resident      measure sandboxes that stay instead: commands in one
                      against commands outside, and memory
      --user NAME     as root: measure as this user
  -h, --help          this text
TEXT
}

binary='' output=benchmarks runs=30 user='' broker='' resident=''
while [ $# -gt 0 ]; do
  case "$1" in
    -b | --binary) binary=$(realpath "${2:?$1 needs a path}") && shift 2 ;;
    -o | --output) output=${2:?$1 needs a directory} && shift 2 ;;
    -n | --runs) runs=${2:?$1 needs a number} && shift 2 ;;
    -q | --quick) runs=5 && shift ;;
    --broker) broker=1 && shift ;;
    --resident) resident=1 && shift ;;
    --user) user=${2:?$1 needs a name} && shift 2 ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || die "--runs $runs: not a number of rounds"
command -v hyperfine >/dev/null || die 'hyperfine is missing: apt-get install hyperfine'

# The workloads live in the repository: /tmp is private to each sandbox.
work=$root/benchmarks/work.$$
rounds=$work/rounds
as=()

prepare() {
  [[ $root != /tmp/* ]] || die "$root: the sandboxes have a /tmp of their own; clone the repository elsewhere"
  mkdir -p "$output" "$work/bin" "$rounds"
  output=$(realpath "$output")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  if [ -z "$binary" ]; then
    build_commands "$work/bin"
    binary=$work/bin/bailey
  fi
  become
  "${as[@]}" test -x "$binary" || die "$binary cannot be executed as $("${as[@]}" id -un)"
  install -m 666 /dev/null "$work/export" # hyperfine runs as the user
  if [ -n "$broker" ]; then make_tree "$work/project"; else make_project "$work/project"; fi
  cd "$work/project"
}

# become sets the prefix of everything measured. Every variant starts from the
# same small environment: Bailey keeps most variables out, and one that slows a
# program down (NODE_EXTRA_CA_CERTS triples the start of node) would otherwise
# slow down only what Bailey is compared with.
become() {
  local name=${user:-$(id -un)} path=$PATH
  if [ -n "$user" ]; then
    is_root || die "--user $user: only root can become another user"
    as=(setpriv --reuid="$user" --regid="$user" --init-groups --inh-caps=-all)
    path=/usr/local/bin:/usr/bin:/bin
  fi
  as+=(env -i HOME="$(getent passwd "$name" | cut -d: -f6)" USER="$name" LOGNAME="$name" PATH="$path" LANG=C.UTF-8)
}

# make_project DIR makes a small repository with something to find in it.
# shellcheck disable=SC2016 # spawn.sh expands it
make_project() {
  local directory file
  for directory in {1..20}; do
    mkdir -p "$1/src/$directory"
    for file in {1..20}; do
      printf 'line %s of file %s\nneedle\n' {1..50} "$directory/$file" >"$1/src/$directory/$file.txt"
    done
  done
  printf 'i=0\nwhile [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done\n' >"$1/spawn.sh"
  git -C "$1" init -q
  git -C "$1" add .
  git -C "$1" -c user.name=bench -c user.email=bench@localhost commit -qm 'files to look at'
  [ -z "$user" ] || chown -R "$user:" "$1"
}

# make_tree DIR makes a repository of 100,000 files, and scripts that make files
# and execute programs.
# shellcheck disable=SC2016 # spawn.sh expands it
make_tree() {
  mkdir -p "$1/tree"
  python3 - "$1/tree" <<'CODE'
import os, sys
for a in range(50):
    for b in range(50):
        directory = f"{sys.argv[1]}/{a}/{b}"
        os.makedirs(directory)
        for c in range(40):
            with open(f"{directory}/{c}.txt", "w") as f:
                f.write(f"line of file {a} {c}\n" * 5)
CODE
  cat >"$1/create.py" <<'CODE'
import os
os.mkdir("made")
for i in range(20000):
    fd = os.open(f"made/{i}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(fd, b"x" * 100)
    os.close(fd)
for i in range(20000):
    os.unlink(f"made/{i}")
os.rmdir("made")
CODE
  printf 'i=0\nwhile [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done\n' >"$1/spawn.sh"
  printf '{"command": {"deny": ["git push"]}}\n' >"$1/rules.jsonc"
  git -C "$1" init -q
  git -C "$1" -c core.fsync=none add tree
  git -C "$1" -c user.name=bench -c user.email=bench@localhost commit -qm 'files to look at'
  [ -z "$user" ] || chown -R "$user:" "$1"
}

# program NAME prints the path of the real program, past the shims of version
# managers, which would be measured instead.
# shellcheck disable=SC2016 # the inner shell expands it
program() {
  case "$1" in
    python3) "${as[@]}" python3 -c 'import sys; print(sys.executable)' 2>/dev/null ;;
    node) "${as[@]}" node -p process.execPath 2>/dev/null ;;
    *) "${as[@]}" bash -c 'type -P -- "$0"' "$1" ;;
  esac
}

# measure ROUND WORKLOAD PROGRAM [ARGUMENTS], the arguments as one quoted string.
# Round 0 warms the caches and is not kept.
measure() {
  local round=$1 dir=$rounds/$2 path
  mkdir -p "$dir"
  path=$(program "$3") || { printf '%s\n' "$3" >"$dir/missing" && return; }
  local command="'$path' ${4:-}" variants=() i
  variants+=(unsandboxed "$command")
  variants+=(bailey "'$binary' -- $command")
  if [ -n "$broker" ]; then
    variants+=(patterns "'$binary' $patterns -- $command")
    variants+=(rules "'$binary' -s rules.jsonc -- $command")
  elif [ -n "$bwrap" ]; then
    variants+=(bwrap "'$bwrap' --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp $command")
  fi
  local count=$((${#variants[@]} / 2)) arguments=()
  for ((i = 0; i < count; i++)); do
    local at=$((2 * ((i + round) % count)))
    arguments+=(-n "${variants[at]}" "${variants[at + 1]}")
  done
  "${as[@]}" hyperfine -N --runs 1 --style none --export-json "$work/export" "${arguments[@]}" \
    2>"$work/errors" || { cat "$work/errors" >&2 && die "$2: a variant failed"; }
  [ "$round" = 0 ] || cp "$work/export" "$dir/$(printf %05d "$round").json"
}

# pss VARIANT COMMAND... adds up the memory of everything a sandbox runs besides
# the command itself.
pss() {
  local variant=$1 pid process total=0
  shift
  mkfifo "$work/ready"
  "${as[@]}" "$@" sh -c 'echo ready; exec sleep 60' >"$work/ready" 2>/dev/null &
  pid=$!
  read -r _ <"$work/ready" || true
  rm "$work/ready"
  sleep 0.5 # a command that stays: memory is given back after a tenth of a second
  local processes=("$pid") next=0
  while [ $next -lt ${#processes[@]} ]; do
    mapfile -t -O ${#processes[@]} processes < <(pgrep -P "${processes[next]}")
    next=$((next + 1))
  done
  for process in "${processes[@]}"; do
    # The shell that becomes "sleep" has said ready already and may not be there yet.
    case "$(cat "/proc/$process/comm")" in sleep | sh) continue ;; esac
    total=$((total + $(awk '$1 == "Pss:" {print $2}' "/proc/$process/smaps_rollup" 2>/dev/null || echo 0)))
  done
  kill -KILL "${processes[@]}" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  if [ $total = 0 ]; then
    printf 'memory of %s could not be read\n' "$variant" >&2
    return
  fi
  printf '%s=%s\n' "$variant" "$total" >>"$rounds/pss"
}

# Fifteen patterns, as people deny them.
patterns=''
for pattern in .env '.env.*' '*.pem' '*.key' id_rsa id_ed25519 '*.p12' '*.pfx' .netrc .npmrc .pypirc 'secrets/**' '*.kdbx' credentials.json '*.tfstate'; do
  patterns+=" --deny-read '**/$pattern'"
done

# measure_broker ROUND measures everything the broker has a part in.
measure_broker() {
  measure "$1" 10-true true
  measure "$1" 20-create-x20000 python3 create.py
  measure "$1" 30-git-status git 'status --porcelain'
  measure "$1" 40-find find '. -name nothing'
  measure "$1" 50-rg rg "--no-config -c '49 39' tree"
  measure "$1" 60-fork+exec-x300 sh spawn.sh
}

# measure_all ROUND
measure_all() {
  measure "$1" 10-true true
  measure "$1" 20-python3 python3 '-c pass'
  measure "$1" 30-node node "-e ''"
  measure "$1" 40-git-status git 'status --porcelain'
  measure "$1" 50-rg rg '--no-config -c needle .'
  # A thousand starts are a sample of a thousand: every fifth round is enough.
  [ $(($1 % 5)) != 1 ] || measure "$1" 60-fork+exec-x1000 sh spawn.sh
}

fact() { printf '%s=%s\n' "$1" "$(head -n 1 <<<"$2")" >>"$rounds/facts"; }

gather_facts() {
  local name
  fact kernel "$(uname -srm)"
  fact processor "$(awk -F': ' '/^model name/ {print $2; exit}' /proc/cpuinfo) × $(nproc)"
  fact memory "$(awk '/^MemTotal/ {print int($2 / 1024) " MiB"}' /proc/meminfo)"
  fact load "$(cut -d ' ' -f 1-3 /proc/loadavg)"
  fact commit "$(git -c safe.directory="$root" -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo none)"
  fact user "$("${as[@]}" id -un)"
  fact rounds "$runs"
  fact bailey "$("$binary" --version)"
  for name in bwrap hyperfine python3 node git rg; do
    fact "$name" "$("${as[@]}" "$name" --version 2>/dev/null || echo 'not installed')"
  done
}

# measure_resident prints a table; its rounds are short.
measure_resident() {
  (cd "$root" && CGO_ENABLED=0 go build -o "$work/bin/resident" ./internal/bench/resident)
  "${as[@]}" "$work/bin/resident" -binary "$binary" -dir "$work/project" -n $((runs * 10))
}

main() {
  prepare
  if [ -n "$resident" ]; then
    measure_resident
    return
  fi
  bwrap=$(program bwrap) || bwrap=''
  : >"$rounds/pss"
  gather_facts
  local round
  for ((round = 0; round <= runs; round++)); do
    [ ! -t 2 ] || printf '\rround %d of %d' "$round" "$runs" >&2
    if [ -n "$broker" ]; then measure_broker "$round"; else measure_all "$round"; fi
  done
  [ ! -t 2 ] || printf '\r' >&2
  pss bailey "$binary" --
  [ -z "$bwrap" ] || pss bwrap "$bwrap" --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp
  (cd "$root" && go run ./internal/bench/interleave "$rounds" "$output")
}

main
