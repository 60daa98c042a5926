# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with the script that sources this one
# The sandboxes that scripts/benchmark.sh measures beside Bailey: how each runs a
# command, whether it really does, and what it holds. That script sources it.

readonly known_peers=(bwrap firejail runsc docker fence greywall srt landrun sandlock)

# Those that are measured, where each is, and why others are not.
peers=()
declare -A peer_path=() absent=()

# peer NAME COMMAND prints how another sandbox runs a command with about the walls
# that Bailey has by default: files read-only but for this directory, no network.
# Where a sandbox has further walls that need no more than a flag, it has them.
peer() {
  local here=$PWD path=${peer_path[$1]} word
  case "$1" in
    bwrap) printf '%s' "$path --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --bind $here $here $2" ;;
    firejail) printf '%s' "$path --quiet --noprofile --net=none --private-tmp --caps.drop=all --nonewprivs --seccomp --read-only=/ --read-write=$here $2" ;;
    runsc)
      [ "$("${as[@]}" id -u)" = 0 ] || path+=' --rootless'
      printf '%s' "$path --network=none do -quiet $2"
      ;;
    docker)
      printf '%s' "$path -H unix://$work/docker/socket run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges"
      for word in "${docker_shows[@]}"; do printf ' -v %s:%s:ro' "$word" "$word"; done
      printf '%s' " -v $here:$here -w $here bench $2"
      ;;
    fence) printf '%s' "$path --settings $work/settings/fence.json -c \"$2\"" ;; # it would drop arguments that are empty
    greywall) printf '%s' "$path -- $2" ;;
    srt) printf '%s' "$path --settings $work/settings/srt.json -c \"$2\"" ;; # it would take flags of the command for its own
    landrun) printf '%s' "$path --rox / --rwx $here --rw /dev/null --env PATH --env HOME $2" ;;
    sandlock) printf '%s' "$path run -r / -w $here -w /dev/null -- $2" ;;
  esac
}

# peer_program NAME prints where a sandbox is: in PATH, or where install-peers put it.
peer_program() {
  local cached=$root/.cache/peers/bin/$1
  program "$1" && return
  "${as[@]}" test -x "$cached" && realpath "$cached"
}

# peer_version NAME prints a version: where install-peers put a program at one, that,
# since not every program knows its own.
peer_version() {
  local path=${peer_path[$1]}
  if [ "$1" = docker ]; then # the engine does the work, and may be older than its client
    "$path" -H "unix://$work/docker/socket" version --format '{{.Server.Version}}, client {{.Client.Version}}' 2>/dev/null
    return
  fi
  case "$path" in
    "$root"/.cache/*/*/*) cut -d / -f 2 <<<"${path#"$root"/.cache/}" ;;
    *) "${as[@]}" "$path" --version 2>/dev/null ;;
  esac
}

# find_peers NAME... finds those that are installed, run a command, and were tried
# from inside. Every other is in the report with the reason.
find_peers() {
  local name
  write_settings
  start_listener || die 'python3 is missing: what a sandbox holds cannot be tried'
  try_out unsandboxed "$(probing)" || die "the probe fails outside of any sandbox: $(first_error)"
  try_out bailey "'$binary' -- $(probing)" || die "the probe fails: $(first_error)"
  for name in "$@"; do
    if ! peer_path[$name]=$(peer_program "$name"); then
      absent[$name]='not installed'
    elif [ "$name" = docker ] && ! start_docker; then
      absent[$name]="did not start: $(first_error)"
    elif ! try_out "$name" "$(peer "$name" "$(probing)")"; then
      absent[$name]="did not run the command: $(first_error)"
    else
      peers+=("$name")
    fi
  done
  end "$listener"
  listener=''
}

first_error() {
  local line
  line=$(grep -v '^[[:space:]]*$' "$work/errors" | head -n 1 | tr -d '|' | cut -c 1-200)
  printf '%s' "${line:-it says nothing}"
}

# write_settings says to those that read it from a file what the others are told
# with flags.
write_settings() {
  mkdir -p "$work/settings"
  printf '{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}\n' >"$work/settings/srt.json"
  cp "$work/settings/srt.json" "$work/settings/fence.json"
}

# start_listener makes what a sandbox is tried with: a server on the host's
# loopback, a process of the same user, a file that is not for the command, and a
# directory that everybody could write to.
start_listener() {
  printf 'secret\n' >"$work/secret"
  install -d -m 777 "$work/elsewhere"
  python=$(program python3) || return 1
  "${as[@]}" "$python" -u -c 'import os, signal, socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], os.getpid())
signal.pause()' >"$work/listening" &
  listener=$!
  until [ -s "$work/listening" ]; do
    kill -0 "$listener" || return 1
    sleep 0.05
  done
  read -r listener_port listener_pid <"$work/listening"
}

# make_probe DIR writes the program that tries a sandbox from inside.
make_probe() {
  cat >"$1/probe.py" <<'CODE'
import os, socket, sys
nonce, secret, elsewhere, port, pid = sys.argv[1:]

def attempt(name, good, bad, call):
    try:
        call()
        print(f"{name}={good}")
    except OSError:
        print(f"{name}={bad}")

def make(path):
    with open(path, "w") as f:
        f.write(nonce)

print(f"nonce={nonce}")
attempt("write here", "written", "refused", lambda: make("made-by-probe"))
attempt("write elsewhere", "written", "refused", lambda: make(elsewhere))
attempt("read elsewhere", "read", "refused", lambda: open(secret).read())
attempt("host loopback", "reached", "refused", lambda: socket.create_connection(("127.0.0.1", int(port)), 10))
attempt("host processes", "signalled", "refused", lambda: os.kill(int(pid), 0))
if os.path.exists("/proc/self/status"):  # on Linux
    status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    field = lambda name: status.get(name, "").strip()
    print("system call filter=" + ("yes" if field("Seccomp") == "2" else "none"))
    print("no new privileges=" + ("yes" if field("NoNewPrivs") == "1" else "no"))
    print("capabilities=" + ("none" if int(field("CapEff") or "0", 16) == 0 else "some"))
CODE
}

# probing prints the command that runs it.
probing() {
  printf "'%s' probe.py nonce-%s %s %s %s %s" "$python" "$$" "$work/secret" "$work/elsewhere/made" "$listener_port" "$listener_pid"
}

# try_out NAME COMMAND tries a sandbox from inside and keeps what came of it. It
# fails if the command did not run in there: whoever prints the nonce did.
try_out() {
  local key value
  rm -f "$work/elsewhere/made" made-by-probe
  "${as[@]}" "${limit[@]}" bash -c "$2" >"$work/tried" 2>"$work/errors" </dev/null || return 1
  grep -qx "nonce=nonce-$$" "$work/tried" || return 1
  printf '%s.command=%s\n' "$1" "${2/"$(probing)"/COMMAND}" >>"$rounds/sandboxes"
  while IFS='=' read -r key value; do
    case "$key" in
      nonce) continue ;;
      'write here') [ "$value" != written ] || [ -e made-by-probe ] || value='kept apart' ;;
      'write elsewhere') [ "$value" != written ] || [ -e "$work/elsewhere/made" ] || value='kept apart' ;;
    esac
    printf '%s.tried.%s=%s\n' "$1" "$key" "$value" >>"$rounds/sandboxes"
  done <"$work/tried"
  rm -f "$work/elsewhere/made" made-by-probe
}

# start_docker starts an engine of its own, with an image that has nothing but the
# places where directories of the host are shown.
start_docker() {
  local at=$work/docker deadline=$((SECONDS + 60))
  if ! is_root || [ -n "$user" ]; then
    echo 'the engine needs root, and whoever reaches it is root' >"$work/errors"
    return 1
  fi
  if ! command -v dockerd >/dev/null; then
    echo 'dockerd is not installed' >"$work/errors"
    return 1
  fi
  mkdir -p "$at"
  dockerd --data-root "$at/data" --exec-root "$at/exec" --pidfile "$at/pid" -H "unix://$at/socket" \
    --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs >"$at/log" 2>&1 &
  engine=$!
  until "${peer_path[docker]}" -H "unix://$at/socket" version >/dev/null 2>"$work/errors"; do
    if ! kill -0 $engine 2>/dev/null || [ $SECONDS -gt $deadline ]; then
      tail -n 1 "$at/log" >"$work/errors"
      return 1
    fi
    sleep 0.1
  done
  make_image "$at/root"
  tar -C "$at/root" -c . | "${peer_path[docker]}" -H "unix://$at/socket" import - bench >/dev/null 2>"$work/errors"
}

# make_image DIR makes the root directory of the image, and says what is shown in it.
make_image() {
  local name target prefix
  docker_shows=(/usr /etc)
  mkdir -p "$1"/{proc,dev,sys,tmp,usr,etc}
  for name in bin sbin lib lib64 lib32; do
    if target=$(readlink "/$name"); then ln -s "$target" "$1/$name"; elif [ -d "/$name" ]; then docker_shows+=("/$name"); fi
  done
  # A Python or Node that somebody installed for themselves.
  for prefix in "$("$python" -c 'import sys; print(sys.base_prefix)')" "$(dirname "$(dirname "$(program node || echo /usr/bin/node)")")"; do
    [[ $prefix == /usr || $prefix == /usr/* ]] || docker_shows+=("$prefix")
  done
}

# stop_peers ends what was started for them.
stop_peers() {
  [ -z "${listener:-}" ] || end "$listener"
  [ -z "${engine:-}" ] || end "$engine"
}
