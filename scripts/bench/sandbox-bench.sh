#!/usr/bin/env bash
# Measures the runtimes that carry sandboxes, with the bundle that Bailey writes; see
# docs/sandbox-performance.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/bench/sandbox-bench.sh [OPTION]...

Launches a small command under each runtime, by hand and through Bailey, in
rotating order. Asserts the boundary from inside first; only launches that end
with status 0, and whose nonce comes back, count. Prints tables, and writes
results.json, results.md and methodology.txt.

  --iterations N    launches of each runtime in each mode (default: 50)
  --runtimes LIST   of native, bwrap, runc, crun, runsc (both platforms),
                    runsc-systrap, runsc-ptrace, docker, docker+runsc
                    (default: native,bwrap,runc,crun,runsc)
  --out DIR         where the results go (default: ./benchmarks/sandboxes)
  --bin DIR         Bailey's programs (default: built from this tree)
  --keep            keep the directory that the bench worked in
  -h, --help        this text

Environment:
  BENCH_IMAGE       image for the root directory of the bundles: a reference,
                    better with its digest, an OCI layout or an archive
  BENCH_ROOTFS      a directory for it (default: a static busybox)
  BENCH_MEM_MB      limit of memory (default: 256; for root only)
  BENCH_CPUS        limit of processors (default: 1; for root only)

Exit status: 0 if everything was measured, 3 if something that was asked for
could not be started or failed, which stderr says; the rest was measured.
TEXT
}

arguments=() out=benchmarks/sandboxes bin='' keep=''
while [ $# -gt 0 ]; do
  case "$1" in
    --iterations | --runtimes) arguments+=("$1" "${2:?$1 needs a value}") && shift 2 ;;
    --iterations=* | --runtimes=*) arguments+=("$1") && shift ;;
    --out) out=${2:?$1 needs a directory} && shift 2 ;;
    --out=*) out=${1#*=} && shift ;;
    --bin) bin=${2:?$1 needs a directory} && shift 2 ;;
    --bin=*) bin=${1#*=} && shift ;;
    --keep) keep=1 && shift ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
  esac
done

if [ -n "$bin" ]; then
  [ -x "$bin/bailey" ] || die "--bin $bin: no bailey there; make build, and name the directory bin"
  bin=$(realpath "$bin")
fi

# Neither /tmp, which is private to each sandbox, nor memory.
work=$(mktemp -d "${BENCH_WORK:-$root/.cache}/sandbox-bench.XXXXXX" 2>/dev/null) || work=$(mktemp -d "$HOME/.cache/sandbox-bench.XXXXXX")
clean() {
  if [ -n "$keep" ]; then
    printf 'kept: %s\n' "$work" >&2
  else
    rm -rf "$work"
  fi
}
trap clean EXIT
trap 'exit 130' INT TERM

chmod 755 "$work"
mkdir "$work/bin" "$work/run"
(cd "$root" && CGO_ENABLED=0 go build -o "$work/bin/" ./internal/bench/sandboxbench)
if [ -z "$bin" ]; then
  build_commands "$work/bin"
  bin=$work/bin
fi
# A runsc that scripts/build-runsc has built before is found, too.
for dir in "$root"/.cache/tools/runsc-*; do PATH=$PATH:$dir; done
mkdir -p "$out"
"$work/bin/sandboxbench" --bin "$bin" --work "$work/run" --out "$(realpath "$out")" \
  --commit "$(here_git describe --always --dirty --abbrev=12 2>/dev/null || echo none)" "${arguments[@]}"
