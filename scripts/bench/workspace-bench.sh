#!/usr/bin/env bash
# Times work on files in an overlay against the same work on the project itself; see
# docs/overlay.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/bench/workspace-bench.sh [OPTION]...

In each round every workload runs once outside of any sandbox, once in a sandbox
on the project, and once in one with --overlay, in rotating order. The time is
taken inside, so that starting a sandbox is no part of it. Writes all samples as
JSON, and tables as Markdown and HTML. A workload whose program is not installed is
in them with that reason.

  -b, --binary PATH     the bailey to measure (default: built from this tree)
  -o, --output DIR      where the reports go (default: ./benchmarks/workspace)
  -n, --runs N          rounds (default: 30)
  -q, --quick           5 rounds
      --only LIST       of the workloads, with commas
      --settings NAME=FILE
                        one more variant: a sandbox on the project with this
                        policy. It can be given more than once
  -h, --help            this text
TEXT
}

workloads=(read-small read-small-first read-large write-small write-large rewrite-small stat stat-first
  readdir create delete rename git-status rg tar-x npm-ci)
binary='' output=benchmarks/workspace runs=30 settings=()
while [ $# -gt 0 ]; do
  case "$1" in
    -b | --binary) binary=${2:?$1 needs a path} && shift 2 ;;
    -o | --output) output=${2:?$1 needs a directory} && shift 2 ;;
    -n | --runs) runs=${2:?$1 needs a number} && shift 2 ;;
    -q | --quick) runs=5 && shift ;;
    --only) IFS=, read -ra workloads <<<"${2:?$1 needs a list}" && shift 2 ;;
    --settings) settings+=("${2:?$1 needs a name and a file}") && shift 2 ;;
    -h | --help) usage && exit ;;
    *)
      usage >&2
      printf '%s: %s: no such option\n' "$(basename "$0")" "$1" >&2
      exit 2
      ;;
  esac
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || die "--runs $runs: not a number of rounds"
[ -z "$binary" ] || binary=$(resolved --binary "$binary")

# Neither /tmp, which is private to each sandbox, nor memory.
work=$(mktemp -d "$root/.cache/workspace-bench.XXXXXX" 2>/dev/null) || work=$(mktemp -d "$HOME/.cache/workspace-bench.XXXXXX")
clean() {
  chmod -R u+rwX "$work/data" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM
rounds=$work/rounds
export BAILEY_DATA=$work/data

build() {
  mkdir -p "$work/bin" "$rounds" "$output"
  output=$(realpath "$output")
  (cd "$root" && CGO_ENABLED=0 go build -o "$work/bin/" ./internal/bench/harness ./internal/bench/workspacebench)
  if [ -z "$binary" ]; then
    build_commands "$work/bin"
    binary=$work/bin/bailey
  fi
}

# make_project makes a repository with 5,000 small files, a large one, and an
# archive.
make_project() {
  mkdir "$work/project"
  cd "$work/project"
  python3 - <<'CODE'
import os
for n in range(5000):
    directory = f"tree/{n // 40}"
    if n % 40 == 0:
        os.makedirs(directory)
    with open(f"{directory}/{n % 40}.txt", "w") as f:
        f.write(f"line {n}\n" * 80 + ("needle\n" if n % 10 == 0 else ""))
CODE
  head -c 134217728 /dev/zero | tr '\0' x >large
  tar -cf tree.tar tree/1 tree/1[0-9] tree/2[0-9]
  if has npm; then make_packages; fi
  printf 'large\n*.tar\nout\nnpm\n' >.gitignore
  git init -q
  git -c core.fsync=none add .
  git -c user.name=bench -c user.email=bench@localhost commit -qm 'files to look at'
}

# make_packages makes 150 packages of 20 files for npm ci, the lock file of a project
# that has them all, and a cache that they are in, so that no registry is needed.
make_packages() {
  python3 - <<'CODE'
import io, json, os, tarfile
os.makedirs("npm/packages")
for n in range(150):
    with tarfile.open(f"npm/packages/p{n}.tgz", "w:gz") as t:
        def add(name, text):
            member = tarfile.TarInfo("package/" + name)
            member.size, member.mode = len(text), 0o644
            t.addfile(member, io.BytesIO(text.encode()))
        add("package.json", json.dumps({"name": f"p{n}", "version": "1.0.0"}))
        for m in range(19):
            add(f"lib/{m}.js", f"module.exports = {m}\n" * 40)
os.mkdir("out")
with open("out/package.json", "w") as f:
    json.dump({"name": "job", "private": True, "dependencies": {f"p{n}": f"file:../npm/packages/p{n}.tgz" for n in range(150)}}, f)
CODE
  (cd out && npm install --silent --offline --ignore-scripts --no-audit --no-fund --cache ../npm/cache) || die 'npm could not install packages that were just made'
  mv out/package.json out/package-lock.json npm
  rm -r out
}

# has PROGRAM tells whether it is there, and starts: a version manager may have
# nothing but its name.
has() { "$1" --version >/dev/null 2>&1; }

# lacks WORKLOAD prints the program that a workload would need and is not there. What
# the project is made with is there.
lacks() {
  local program
  case "$1" in
    rg) program=rg ;;
    npm-ci) program=npm ;;
    *) return 1 ;;
  esac
  ! has "$program" && echo "$program"
}

fact() { printf '%s=%s\n' "$1" "$(head -n 1 <<<"$2")" >>"$rounds/facts"; }

gather_facts() {
  fact kernel "$(uname -srm)"
  fact processor "$(awk -F': ' '/^model name/ {print $2; exit}' /proc/cpuinfo)"
  fact processors "$(nproc)"
  fact memory "$(awk '/^MemTotal/ {print int($2 / 1024) " MiB"}' /proc/meminfo)"
  fact governor "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo none)"
  fact load "$(cut -d ' ' -f 1-3 /proc/loadavg)"
  fact commit "$(here_git describe --always --dirty --abbrev=12 2>/dev/null || echo none)"
  fact user "$(id -un)"
  fact rounds "$runs"
  fact program.bailey "$("$binary" --version)"
  fact 'program.file system' "$(stat -f -c %T "$work")"
  touch "$rounds/memory" "$rounds/launches" "$rounds/sandboxes"
}

# seconds VARIANT WORKLOAD runs one of them, and prints how long it took.
seconds() {
  local inside=("$binary" -q --allow-read "$work/bin") name
  case "$1" in
    unsandboxed) "$work/bin/workspacebench" "$2" ;;
    bailey) "${inside[@]}" -- "$work/bin/workspacebench" "$2" ;;
    overlay)
      "${inside[@]}" --overlay=keep:bench -- "$work/bin/workspacebench" "$2" 2>/dev/null
      "$binary" ws discard bench
      ;;
    *)
      for name in "${settings[@]}"; do
        [ "${name%%=*}" != "$1" ] || "${inside[@]}" --settings "${name#*=}" -- "$work/bin/workspacebench" "$2"
      done
      ;;
  esac
}

# measure ROUND NUMBER WORKLOAD runs all variants, in an order that rotates, and
# writes the times down in the form of hyperfine. Round 0 warms the caches.
measure() {
  local variants=(unsandboxed bailey overlay) i took results='' dir program
  dir=$rounds/$(printf %02d "$2")-$3
  if program=$(lacks "$3"); then
    [ "$1" != 0 ] || { mkdir -p "$dir" && printf 'category=workspace\nmissing=%s is not installed\n' "$program" >"$dir/about"; }
    return
  fi
  for i in "${settings[@]}"; do variants+=("${i%%=*}"); done
  for ((i = 0; i < ${#variants[@]}; i++)); do
    local variant=${variants[(i + $1) % ${#variants[@]}]}
    took=$(seconds "$variant" "$3") || die "$3 failed as $variant"
    results+="${results:+,}{\"command\":\"$variant\",\"times\":[$took],\"exit_codes\":[0]}"
  done
  [ "$1" != 0 ] || { mkdir -p "$dir" && printf 'category=workspace\ncommand=workspacebench %s\n' "$3" >"$dir/about" && return; }
  printf '{"results":[%s]}\n' "$results" >"$dir/$(printf %05d "$1").json"
}

main() {
  build
  make_project
  gather_facts
  local round number
  for ((round = 0; round <= runs; round++)); do
    [ ! -t 2 ] || printf '\rround %d of %d ' "$round" "$runs" >&2
    for number in "${!workloads[@]}"; do measure "$round" "$number" "${workloads[number]}"; done
  done
  [ ! -t 2 ] || printf '\r' >&2
  "$work/bin/harness" collect "$rounds" "$output"
  compare_with_direct
}

# compare_with_direct adds what counts to the newest report: how many times as long
# each took as the sandbox on the project itself did in the same round.
compare_with_direct() {
  python3 - "$output" <<'CODE' | tee "$work/table"
import glob, json, statistics, sys
report = json.load(open(max(glob.glob(sys.argv[1] + "/*.json"))))
print("\n| workload | variant | median, ms | to the sandbox on the project |\n|---|---|---:|---:|")
for workload in report["workloads"]:
    if workload.get("missing"):
        print(f"| {workload['name']} | not measured: {workload['missing']} | | |")
        continue
    seconds = {v["name"]: v["seconds"] for v in workload["variants"]}
    direct = seconds["bailey"]
    for name, own in seconds.items():
        if name not in ("unsandboxed", "bailey"):
            ratio = statistics.median(a / b for a, b in zip(own, direct))
            print(f"| {workload['name']} | {name} | {1000 * statistics.median(own):.2f} | {ratio:.3f} |")
CODE
  cat "$work/table" >>"$(printf '%s\n' "$output"/*.md | sort | tail -n 1)"
}

main
