#!/usr/bin/env bash
# Times commands unsandboxed and sandboxed, interleaved; see docs/benchmarking.md.
set -euo pipefail
[ "${BASH_VERSINFO[0]}" -ge 5 ] || { echo 'bash is too old, 5 is needed: brew install bash' >&2 && exit 1; }
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/bench/peers.sh
. "$root/scripts/bench/peers.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/benchmark.sh [OPTION]...

Every round runs each variant of each workload once with "hyperfine -N", in
rotating order, so that a change of the machine's speed meets all of them.
Writes all samples as JSON, tables as Markdown and plots as HTML, named by
system, architecture and time.

  -b, --binary PATH   the bailey to measure (default: built from this tree)
  -o, --output DIR    where the reports go (default: ./benchmarks)
  -n, --runs N        rounds (default: 30)
  -q, --quick         5 rounds
      --network       measure programs that use the network, too, with a server
                      on this machine
      --peers[=LIST]  measure every other sandbox that is installed, too, or
                      those of a list with commas; see scripts/bench/install-peers
      --against PATH  measure another build of bailey in the same rounds, as the
                      variant "previous"; "bailey bench compare" tells them apart
      --broker        measure what the broker decides instead: files made, a
                      tree of 100,000 files, with and without patterns, and
                      programs executed under rules
      --work          measure whole jobs instead, offline: git clone, go build,
                      npm ci and cargo build, as far as these are installed
      --resident      measure sandboxes that stay instead: commands in one
                      against commands outside, and memory; prints a table
                      and writes no report
      --gate          measure three commands and nothing else: enough for
                      --against to tell whether launches became slower
      --user NAME     as root: measure as this user
  -h, --help          this text
TEXT
}

binary='' output=benchmarks runs=30 user='' kind='' network='' wanted=() against=''
# choose KIND: a run is of one kind.
choose() {
  [ -z "$kind" ] || die "--$kind and --$1: a run is one of them; run the script twice"
  kind=$1
}
while [ $# -gt 0 ]; do
  case "$1" in
    -b | --binary) binary=${2:?$1 needs a path} && shift 2 ;;
    -o | --output) output=${2:?$1 needs a directory} && shift 2 ;;
    -n | --runs) runs=${2:?$1 needs a number} && shift 2 ;;
    -q | --quick) runs=5 && shift ;;
    --network) network=1 && shift ;;
    --broker) choose broker && shift ;;
    --work) choose work && shift ;;
    --resident) choose resident && shift ;;
    --gate) choose gate && shift ;;
    --peers) wanted=("${known_peers[@]}") && shift ;;
    --peers=?*) IFS=, read -ra wanted <<<"${1#*=}" && shift ;;
    --against) against=${2:?$1 needs a path} && shift 2 ;;
    --user) user=${2:?$1 needs a name} && shift 2 ;;
    -h | --help) usage && exit ;;
    *)
      usage >&2
      printf '%s: %s: no such option\n' "$(basename "$0")" "$1" >&2
      exit 2
      ;;
  esac
done
kind=${kind:-all}
for name in "${wanted[@]}"; do
  [[ " ${known_peers[*]} " == *" $name "* ]] || die "--peers: $name is none of ${known_peers[*]}"
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || die "--runs $runs: not a number of rounds"
[ "$kind" != resident ] || [ -z "$network$against${wanted[*]}" ] || die '--resident measures nothing else: leave out --network, --peers and --against'
[ -z "$user" ] || is_root || die "--user $user: only root can become another user"
[ -z "$user" ] || id -u -- "$user" >/dev/null 2>&1 || die "--user $user: there is no such user"

# needs PROGRAM... names all that are missing, before anything is made.
needs() {
  local name missing=()
  for name in "$@"; do command -v "$name" >/dev/null || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] || die "not installed, and needed: ${missing[*]} (from apt-get, brew and the like)"
}
needs go git python3 hyperfine realpath
[ -n "$binary" ] || needs make
[ -z "$user" ] || needs setpriv getent

[ -z "$binary" ] || binary=$(resolved --binary "$binary")
[ -z "$against" ] || against=$(resolved --against "$against")

# A hook of git's has variables that name its repository, which is none of these.
unset "${!GIT_@}"
# Whoever is measured must reach what is made here.
umask 022

# The workloads live in the repository: /tmp is private to each sandbox.
work=$root/benchmarks/work.$$
if [[ $root == /tmp/* ]] || [ ! -w "$root" ]; then work=$HOME/.cache/bailey-benchmark.$$; fi
rounds=$work/rounds
as=()
server='' staying='' run=''
# Its name is for this run only: others may run beside it, or have one of their own.
box=bench$$
system=$(uname -s)
limit=(timeout 300)
command -v timeout >/dev/null || limit=() # as on macOS

# progress TEXT is for whoever looks on.
progress() { [ ! -t 2 ] || printf '\r\033[K%s' "$1" >&2; }

prepare() {
  trap clean EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  mkdir -p "$output" "$work/bin" "$rounds"
  output=$(realpath "$output")
  [ -w "$output" ] || die "--output $output: cannot be written to"
  progress 'building'
  local helper=harness
  [ "$kind" != resident ] || helper=resident
  (cd "$root" && CGO_ENABLED=0 go build -buildvcs=false -o "$work/bin/" "./internal/bench/$helper")
  if [ -z "$binary" ]; then
    build_commands "$work/bin"
    binary=$work/bin/bailey
  fi
  become
  "${as[@]}" test -x "$work" || die "--user $user cannot reach $work: run a copy of this repository that everybody can read, such as one below /opt"
  "${as[@]}" test -x "$binary" || die "$binary cannot be executed as $("${as[@]}" id -un)"
  [ -z "$against" ] || "${as[@]}" test -x "$against" || die "$against cannot be executed as $("${as[@]}" id -un)"
  install -m 666 /dev/null "$work/export" # hyperfine runs as the user
  install -m 666 /dev/null "$rounds/launches"
  : >"$rounds/memory"
  : >"$rounds/sandboxes"
}

# clean leaves nothing behind, and is not to be stopped half-way.
# shellcheck disable=SC2046 # numbers
clean() {
  trap '' INT TERM HUP
  [ -z "$server" ] || end "$server"
  [ -z "$staying" ] || kill -KILL $(descent "$staying") 2>/dev/null || true
  [ -z "$binary" ] || "${as[@]}" "$binary" box stop "$box" >/dev/null 2>&1 || true
  stop_peers
  progress "removing $work"
  cd /
  rm -rf "$work" ${run:+"$run"}
  rmdir "$root/benchmarks" 2>/dev/null || true # if the reports went elsewhere
  progress ''
}

# end PID ends a process that was started here, and waits for it.
end() {
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# descent PID prints a process and all that come from it.
descent() {
  local processes=("$1") next=0
  while [ $next -lt ${#processes[@]} ]; do
    mapfile -t -O ${#processes[@]} processes < <(pgrep -P "${processes[next]}")
    next=$((next + 1))
  done
  printf '%s\n' "${processes[@]}"
}

# become sets the prefix of everything measured. Every variant starts from the
# same small environment: Bailey keeps most variables out, and one that slows a
# program down (NODE_EXTRA_CA_CERTS triples the start of node) would otherwise
# slow down only what Bailey is compared with.
become() {
  local name=${user:-$(id -un)} path=$PATH home=$HOME
  if [ -n "$user" ]; then
    as=(setpriv --reuid="$user" --regid="$user" --init-groups --inh-caps=-all)
    path=/usr/local/bin:/usr/bin:/bin
    home=$(getent passwd "$name" | cut -d: -f6)
  fi
  # With a keeper of its own: whoever keeps sandboxes already has one of another build.
  # Not below the project, which a sandbox can write to.
  run=$(mktemp -d "/tmp/benchmark.$$.XXXXXX")
  own "$run"
  as+=(env -i HOME="$home" USER="$name" LOGNAME="$name" PATH="$path" LANG=C.UTF-8 XDG_RUNTIME_DIR="$run")
}

# own DIR gives what was made to whoever is measured.
own() { [ -z "$user" ] || chown -R "$user:" "$1"; }

# make_files COUNT DIR makes so many small files, forty in a directory.
make_files() {
  python3 - "$1" "$2" <<'CODE'
import os, sys
count, top = int(sys.argv[1]), sys.argv[2]
for n in range(count):
    directory = f"{top}/{n // 2000}/{n // 40 % 50}"
    if n % 40 == 0:
        os.makedirs(directory)
    with open(f"{directory}/{n % 40}.txt", "w") as f:
        f.write(f"line of file {n // 2000} {n % 40}\n" * 5)
CODE
}

commit_all() {
  git -C "$1" init -q
  git -C "$1" -c core.fsync=none add .
  # Neither a key nor a hook of whoever runs this has a part in it.
  git -C "$1" -c user.name=bench -c user.email=bench@localhost -c commit.gpgSign=false -c core.hooksPath=/dev/null commit -qm 'files to look at'
}

# make_scripts DIR COUNT writes what the workloads run.
# shellcheck disable=SC2016 # the scripts expand it
make_scripts() {
  make_probe "$1"
  # The programs themselves: where they are differs, and a shell has a "true" of its own.
  printf 'i=0\nwhile [ $i -lt %s ]; do "%s" || exit; i=$((i+1)); done; echo $i\n' "$2" "$(program true)" >"$1/spawn.sh"
  printf 'i=0\nwhile [ $i -lt 10 ]; do "%s" status --porcelain || exit; i=$((i+1)); done\n' "$(program git)" >"$1/statuses.sh"
  cat >"$1/create.py" <<'CODE'
import os, sys
count = int(sys.argv[1])
os.mkdir("made")
for i in range(count):
    fd = os.open(f"made/{i}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(fd, b"x" * 100)
    os.close(fd)
print(len(os.listdir("made")))
for i in range(count):
    os.unlink(f"made/{i}")
os.rmdir("made")
CODE
}

# make_project DIR makes a small repository with something to find in it.
make_project() {
  local directory file
  for directory in {1..20}; do
    mkdir -p "$1/src/$directory"
    for file in {1..20}; do
      printf 'line %s of file %s\nneedle\n' {1..50} "$directory/$file" >"$1/src/$directory/$file.txt"
    done
  done
  make_scripts "$1" 1000
  python3 -c 'import json; print(json.dumps({"filesystem": {"denyRead": [f"/srv/data-{n}/secret" for n in range(500)]}}))' >"$1/denials.jsonc"
  commit_all "$1"
  own "$1"
}

# make_tree DIR makes a repository of 100,000 files.
make_tree() {
  mkdir -p "$1"
  make_files 100000 "$1/tree"
  make_scripts "$1" 300
  printf '{"command": {"deny": ["git push"]}}\n' >"$1/rules.jsonc"
  commit_all "$1"
  own "$1"
}

# Why jobs cannot be done, by the program that they need.
declare -A lacking=()

# make_jobs DIR makes what whole jobs need, so that they need no network. Each
# starts by removing what the last one made. What cannot be had is in the report.
# shellcheck disable=SC2016 # the scripts expand it
make_jobs() {
  mkdir -p "$1/go" "$1/npm" "$1/cargo/src"
  make_probe "$1"
  here_git clone -q --bare "$root" "$1/source.git"
  git -C "$1/source.git" gc -q
  printf 'rm -rf made && git clone -q "file://$PWD/source.git" made\n' >"$1/clone.sh"
  printf 'package main\n\nimport "net/http"\n\nfunc main() { println(http.StatusText(200)) }\n' >"$1/go/main.go"
  printf 'module example.com/job\n\ngo 1.21\n' >"$1/go/go.mod"
  printf 'cd go && rm -rf made && GOCACHE=$PWD/made GOTOOLCHAIN=local go build -o made/job .\n' >"$1/go.sh"
  if "${as[@]}" npm --version >/dev/null 2>&1; then
    printf '{"name": "job", "private": true, "dependencies": {"eslint": "8.57.1", "express": "4.21.2"}}\n' >"$1/npm/package.json"
    (cd "$1/npm" && npm install --loglevel=error --omit-lockfile-registry-resolved=false --ignore-scripts --no-audit --no-fund --cache cache) >/dev/null 2>"$work/errors" ||
      lacking[npm]="npm could not get packages: $(first_error)"
    printf 'cd npm && rm -rf node_modules && npm ci --silent --offline --ignore-scripts --no-audit --no-fund --cache cache >/dev/null\n' >"$1/npm.sh"
  fi
  if "${as[@]}" cargo --version >/dev/null 2>&1; then
    printf '[package]\nname = "job"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nregex = "=1.10.6"\nserde_json = "=1.0.128"\n' >"$1/cargo/Cargo.toml"
    printf 'fn main() { println!("{}", regex::escape("a.b")) }\n' >"$1/cargo/src/main.rs"
    mkdir "$1/cargo/.cargo"
    (cd "$1/cargo" && CARGO_NET_RETRY=2 cargo vendor -q) >/dev/null 2>"$work/errors" || lacking[cargo]="cargo could not get packages: $(first_error)"
    printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "vendor"\n' >"$1/cargo/.cargo/config.toml"
    printf 'cd cargo && rm -rf target && CARGO_HOME=$PWD/home cargo build -q --offline\n' >"$1/cargo.sh"
  fi
  git -C "$1" init -q
  own "$1"
}

# program NAME prints the path of the real program, past the shims of version
# managers, which would be measured instead.
# shellcheck disable=SC2016 # the inner shell expands it
program() {
  case "$1$system" in
    python3*) "${as[@]}" python3 -c 'import sys; print(sys.executable)' 2>/dev/null ;;
    node*) "${as[@]}" node -p process.execPath 2>/dev/null ;;
    # /usr/bin/git only looks for the one of Xcode there.
    gitDarwin) "${as[@]}" bash -c 'real=$(git --exec-path)/git && { [ -x "$real" ] && realpath "$real" || type -P git; }' 2>/dev/null ;;
    *) "${as[@]}" bash -c 'type -aP -- "$0" | grep -v -m 1 /shims/ || mise which "$0" || asdf which "$0"' "$1" 2>/dev/null ;;
  esac
}

# about WORKLOAD NAME VALUE
about() { printf '%s=%s\n' "$2" "$3" >>"$rounds/$1/about"; }

# describe WORKLOAD CATEGORY COMMAND says once what a workload is.
describe() {
  mkdir "$rounds/$1"
  about "$1" category "$2"
  about "$1" command "$3"
  local name
  for name in "${!absent[@]}"; do about "$1" "absent.$name" "${absent[$name]}"; done
  [ -n "$closed" ] || for name in "${peers[@]}"; do about "$1" "absent.$name" 'has no network as it is measured'; done
}

# missing WORKLOAD CATEGORY REASON says that a workload was not measured.
missing() {
  [ ! -d "$rounds/$1" ] || return 0
  describe "$1" "$2" ''
  about "$1" missing "$3"
}

# Variants besides those that every workload has, as "NAME FLAGS" of bailey.
extra=()
variants=()
# Whether a workload can do without network: only then are there those variants.
closed=1

# Where programs are, each looked for once, and how often a workload had its turn.
declare -A found=() turns=()

# measure ROUND CATEGORY/WORKLOAD PROGRAM [ARGUMENTS], the arguments as one quoted
# string. Round 0 warms the caches and is not kept.
measure() {
  local round=$1 category=${2%%/*} name=${2#*/}
  local dir=$rounds/$name
  progress "round $round of $runs: ${name#*-}"
  [ -n "${found[$3]+looked}" ] || found[$3]=$(program "$3") || true
  if [ -z "${found[$3]}" ]; then
    missing "$name" "$category" "$3 is not installed"
    return
  fi
  local command="'${found[$3]}' ${4:-}" i
  collect_variants "$name" "$command"
  if [ ! -d "$dir" ]; then
    describe "$name" "$category" "$command"
    verify "$name"
    collect_variants "$name" "$command"
  fi
  # By its own turns: one that is not in every round would always begin alike.
  local count=$((${#variants[@]} / 2)) turn=${turns[$name]:-0} arguments=()
  turns[$name]=$((turn + 1))
  for ((i = 0; i < count; i++)); do
    local at=$((2 * ((i + turn) % count)))
    arguments+=(-n "${variants[at]}" "${variants[at + 1]}")
  done
  # Whose command failed, the exit statuses tell whoever reads the rounds.
  "${as[@]}" hyperfine -N --runs 1 --ignore-failure --style none --export-json "$work/export" "${arguments[@]}" \
    2>"$work/errors" || { cat "$work/errors" >&2 && die "$name: a variant could not be run"; }
  [ "$round" = 0 ] || cp "$work/export" "$dir/$(printf %05d "$round").json"
}

# Variants that do not do in a workload what is done outside.
declare -A unfit=()

# collect_variants WORKLOAD COMMAND sets the variants, as names and commands.
collect_variants() {
  local entry
  variants=(unsandboxed "$2")
  if [ -n "$closed" ]; then
    variants+=(bailey "'$binary' -- $2")
    [ -z "$against" ] || variants+=(previous "'$against' -- $2")
  fi
  for entry in "${extra[@]}"; do
    [ -n "${unfit[$1/${entry%% *}]:-}" ] || variants+=("${entry%% *}" "'$binary' ${entry#* } -- $2")
  done
  [ -n "$closed" ] || return 0
  for entry in "${peers[@]}"; do
    [ -n "${unfit[$1/$entry]:-}" ] || variants+=("$entry" "$(peer "$entry" "$2")")
  done
}

# verify WORKLOAD runs every variant once and looks at what it prints: a time says
# something only if the command did inside what it does outside.
verify() {
  local i variant reason
  output "${variants[1]}" >"$work/expected" || die "$1 fails outside of any sandbox: $(first_error)"
  for ((i = 2; i < ${#variants[@]}; i += 2)); do
    variant=${variants[i]} reason=''
    if ! output "${variants[i + 1]}" >"$work/printed"; then
      reason="failed: $(first_error)"
    elif ! cmp -s "$work/expected" "$work/printed"; then
      reason="printed something else than outside: $(diff "$work/expected" "$work/printed" | grep -m 1 '^[<>]' || true)"
    fi
    [ -n "$reason" ] || continue
    may_fail "$variant" || die "$1: $variant $reason"
    unfit[$1/$variant]=1
    about "$1" "absent.$variant" "$reason"
  done
}

# may_fail VARIANT: what another sandbox cannot do is in the report, and what Bailey
# itself does on Linux only.
may_fail() {
  case "$1" in
    bailey | previous) false ;;
    *) [ "$system" != Linux ] || [[ " ${peers[*]} " == *" $1 "* ]] ;;
  esac
}

# output COMMAND prints what a command prints, in an order of its own.
output() { "${as[@]}" "${limit[@]}" bash -c "$1" 2>"$work/errors" </dev/null | LC_ALL=C sort; }

# calls WORKLOAD COUNT SCRIPT PROGRAM says how many programs one sample of a
# workload executes, once somebody else has counted them.
calls() {
  ! grep -q '^calls=' "$rounds/$1/about" || return 0
  install -m 666 /dev/null "$work/execs"
  if "${as[@]}" strace -qq -o "$work/execs" true 2>"$work/errors"; then
    "${as[@]}" strace -f -qq -e trace=execve -e signal=none -o "$work/execs" "$binary" -- sh "$3" >/dev/null
    local counted
    counted=$(grep -c "execve(\"$4\"" "$work/execs") || true
    [ "$counted" = "$2" ] || die "$1: strace counts $counted executions of $4, not $2"
  else
    printf '%s: strace cannot be used (%s), nobody has counted the %s executions\n' "$1" "$(first_error)" "$2" >&2
  fi
  about "$1" calls "$2"
}

# memory VARIANT COMMAND... adds up the memory of everything a sandbox runs besides
# the command itself.
memory() {
  local variant=$1 process processes total=0
  shift
  if [ "$system" != Linux ]; then
    printf 'memory is measured on Linux only\n' >&2
    return
  fi
  mkfifo "$work/ready"
  "${as[@]}" "$@" sh -c 'echo ready; exec sleep 60' >"$work/ready" 2>/dev/null &
  staying=$!
  read -r _ <"$work/ready" || true
  rm "$work/ready"
  sleep 0.5 # a command that stays: memory is given back after a tenth of a second
  mapfile -t processes < <(descent "$staying")
  for process in "${processes[@]}"; do
    # The shell that becomes "sleep" has said ready already and may not be there yet.
    case "$(cat "/proc/$process/comm")" in sleep | sh) continue ;; esac
    total=$((total + $(awk '$1 == "Pss:" {print $2}' "/proc/$process/smaps_rollup" 2>/dev/null || echo 0)))
  done
  kill -KILL "${processes[@]}" 2>/dev/null || true
  wait "$staying" 2>/dev/null || true
  staying=''
  if [ $total = 0 ]; then
    printf 'memory of %s could not be read\n' "$variant" >&2
    return
  fi
  printf '%s=%s\n' "$variant" "$total" >>"$rounds/memory"
}

# Fifteen patterns, as people deny them.
patterns=''
for pattern in .env '.env.*' '*.pem' '*.key' id_rsa id_ed25519 '*.p12' '*.pfx' .netrc .npmrc .pypirc 'secrets/**' '*.kdbx' credentials.json '*.tfstate'; do
  patterns+=" --deny-read '**/$pattern'"
done

# measure_all ROUND: commands as people and agents run them.
measure_all() {
  extra=('monitor -m' "kept -k $box")
  measure "$1" spawn/10-true true
  measure "$1" spawn/11-echo echo hello
  measure "$1" interpreter/20-python3 python3 '-c pass'
  measure "$1" interpreter/21-node node "-e ''"
  measure "$1" tool/40-git-status git 'status --porcelain'
  measure "$1" files/50-rg rg '--no-config -c needle .'
  measure "$1" files/51-create-x1000 python3 'create.py 1000'
  extra=()
  # A thousand starts are a sample of a thousand: not every round has them, if six
  # do, from which a range of the median can be told.
  local every=$((runs / 6))
  every=$((every < 1 ? 1 : every > 5 ? 5 : every))
  if [ $((($1 - 1) % every)) = 0 ]; then
    measure "$1" amortised/60-fork+exec-x1000 sh spawn.sh
    calls 60-fork+exec-x1000 1000 spawn.sh "$(program true)"
    measure "$1" amortised/61-git-status-x10 sh statuses.sh
    calls 61-git-status-x10 10 statuses.sh "$(program git)"
  fi
  extra=('500-denials -s denials.jsonc' "15-patterns $patterns")
  measure "$1" start/70-start true
  cd "$work/large"
  extra=("15-patterns $patterns")
  measure "$1" start/71-start-280000-files true
}

# measure_gate ROUND: what shows whether launches became slower.
measure_gate() {
  extra=()
  measure "$1" spawn/10-true true
  measure "$1" interpreter/20-python3 python3 '-c pass'
  measure "$1" tool/40-git-status git 'status --porcelain'
}

# measure_broker ROUND: everything the broker has a part in.
measure_broker() {
  extra=("patterns $patterns" 'rules -s rules.jsonc')
  # What is done elsewhere with fewer files has another name there.
  measure "$1" spawn/10-true-100000-files true
  measure "$1" files/20-create-x20000 python3 'create.py 20000'
  measure "$1" tool/30-git-status-100000-files git 'status --porcelain'
  measure "$1" files/40-find-100000-files find '. -name nothing'
  measure "$1" files/50-rg-100000-files rg "--no-config -c '49 39' tree"
  measure "$1" amortised/60-fork+exec-x300 sh spawn.sh
  calls 60-fork+exec-x300 300 spawn.sh "$(program true)"
}

# measure_job ROUND WORKLOAD PROGRAM SCRIPT: a script that needs a program.
measure_job() {
  if [ -n "${lacking[$3]:-}" ]; then
    missing "$2" work "${lacking[$3]}"
  elif "${as[@]}" "$3" --version >/dev/null 2>&1 || "${as[@]}" "$3" version >/dev/null 2>&1; then
    measure "$1" "work/$2" sh "$4"
  else
    missing "$2" work "$3 is not installed"
  fi
}

# measure_work ROUND: what people wait for.
measure_work() {
  extra=("patterns $patterns")
  measure_job "$1" 10-git-clone git clone.sh
  measure_job "$1" 20-go-build go go.sh
  measure_job "$1" 30-npm-ci npm npm.sh
  measure_job "$1" 40-cargo-build cargo cargo.sh
}

# measure_network ROUND: a server on this machine, reached directly and through the
# gate. With the default policy there is no network, so it is not among the variants.
measure_network() {
  local closed=''
  cd "$work/network"
  extra=('gate -s gate.jsonc' '50-domains -s domains.jsonc')
  local url=http://127.0.0.1:$port
  measure "$1" network/80-start-with-network true
  measure "$1" network/81-curl curl "-sSf -o /dev/null $url/small"
  measure "$1" network/82-curl-x20 curl "-sSf -o /dev/null $url/small?[1-20]"
  measure "$1" network/83-download-64MiB curl "-sSf -o /dev/null $url/large"
}

# start_server serves a directory on a port of its own choice.
start_server() {
  mkdir "$work/network"
  cd "$work/network"
  git init -q # else this repository would be the project
  printf small >small
  head -c 67108864 /dev/zero >large
  python3 -u -c 'import functools, http.server as h
class Quiet(h.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def log_message(self, *_): pass
s = h.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
print(s.server_port)
s.serve_forever()' >port 2>/dev/null &
  server=$!
  until [ -s port ]; do
    kill -0 "$server" 2>/dev/null || die 'the server for --network ended'
    sleep 0.05
  done
  port=$(cat port)
  printf '{"network": {"allowLocalOutboundPorts": [%s]}}\n' "$port" >gate.jsonc
  python3 -c 'import json, sys
print(json.dumps({"network": {"allowedDomains": [f"host-{n}.example.com" for n in range(50)], "allowLocalOutboundPorts": [int(sys.argv[1])]}}))' "$port" >domains.jsonc
  own "$work/network"
}

fact() { printf '%s=%s\n' "$1" "$(head -n 1 <<<"$2")" >>"$rounds/facts"; }

# gather_machine: what is asked of each system in its own way.
gather_machine() {
  local governor=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
  if [ "$system" = Darwin ]; then
    fact processor "$(sysctl -n machdep.cpu.brand_string)"
    fact memory "$(($(sysctl -n hw.memsize) >> 20)) MiB"
    fact governor none
    fact load "$(sysctl -n vm.loadavg | tr -d '{}' | xargs)"
    return
  fi
  fact processor "$(awk -F': ' '/^model name/ {print $2; exit}' /proc/cpuinfo)"
  fact memory "$(awk '/^MemTotal/ {print int($2 / 1024) " MiB"}' /proc/meminfo)"
  fact governor "$(cat "$governor" 2>/dev/null || echo none)"
  fact load "$(cut -d ' ' -f 1-3 /proc/loadavg)"
}

gather_facts() {
  local name
  fact kernel "$(uname -srm)"
  fact processors "$(getconf _NPROCESSORS_ONLN)"
  gather_machine
  fact commit "$(here_git describe --always --dirty --abbrev=12 2>/dev/null || echo none)"
  fact user "$("${as[@]}" id -un)"
  fact rounds "$runs"
  fact program.bailey "$("$binary" --version)"
  [ -z "$against" ] || fact program.previous "$("$against" --version)"
  for name in hyperfine python3 node git rg curl strace; do
    fact "program.$name" "$("${as[@]}" "$name" --version 2>/dev/null || echo 'not installed')"
  done
  for name in "${peers[@]}"; do fact "program.$name" "$(peer_version "$name")"; done
}

# take_apart splits launches into their parts.
take_apart() {
  local builds=(bailey="$binary")
  [ -z "$against" ] || builds+=(previous="$against")
  (cd "$work/project" && "${as[@]}" "$work/bin/harness" launches "$((runs < 20 ? 20 : runs))" "$rounds/launches" "${builds[@]}")
}

main() {
  prepare
  progress 'making files'
  case $kind in
    broker) make_tree "$work/project" ;;
    work) make_jobs "$work/project" ;;
    *) make_project "$work/project" ;;
  esac
  cd "$work/project"
  if [ "$kind" = resident ]; then
    "${as[@]}" "$work/bin/resident" -binary "$binary" -dir "$work/project" -n $((runs * 10))
    return
  fi
  if [ "$kind" = all ]; then
    make_files 280000 "$work/large"
    git -C "$work/large" init -q # else this repository would be the project
    own "$work/large"
  fi
  # Bubblewrap is what others are compared with.
  case $kind in
    gate | work) ;;
    *) [ ${#wanted[@]} -gt 0 ] || wanted=(bwrap) ;;
  esac
  [ ${#wanted[@]} = 0 ] || find_peers "${wanted[@]}"
  [ -z "$network" ] || start_server
  gather_facts
  local round
  for ((round = 0; round <= runs; round++)); do
    cd "$work/project"
    "measure_$kind" "$round"
    [ -z "$network" ] || measure_network "$round"
  done
  progress 'taking launches apart'
  take_apart
  [ "$kind" = gate ] || memory bailey "$binary" --
  [[ " ${peers[*]} " != *' bwrap '* ]] || memory bwrap bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp
  progress ''
  "$work/bin/harness" collect "$rounds" "$output"
}

main
