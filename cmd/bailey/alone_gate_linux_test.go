package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// alone is a command under a policy where no namespaces can be made.
func (w *world) alone(policy string, argv ...string) result {
	w.t.Helper()
	return w.restricted(append([]string{"-q", "--policy", policy, "--"}, argv...)...)
}

func TestGrantedHostsAreReachedWithoutNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		testenv.Requires(t, testenv.Landlock(6))
		policy := granting(`"allowedDomains": ["good.example"]`)
		clients := map[string][]string{
			"curl":        {"curl", "-sSf", "--cacert", "ca.pem"},
			"wget":        {"wget", "-qO-", "-t", "1", "--ca-certificate=ca.pem"},
			"python":      {"python3", "-c", "import urllib.request, sys, ssl; print(urllib.request.urlopen(sys.argv[1], context=ssl.create_default_context(cafile='ca.pem')).read().decode())"},
			"curl, socks": {"curl", "-sSf", "--cacert", "ca.pem", "--proxy", "socks5h://127.0.0.1:940"},
			"by IPv6":     {"curl", "-sSf", "--cacert", "ca.pem", "--proxy", "http://[::ffff:127.0.0.1]:940"},
		}
		for name, argv := range clients {
			for _, scheme := range []string{"http", "https"} {
				got := w.alone(policy, append(argv, scheme+"://good.example/x")...)
				if got.status != 0 || strings.TrimSpace(got.stdout) != "answer from good.example" {
					t.Errorf("%s, %s: %+v", name, scheme, got)
				}
				if got := w.alone(policy, append(argv, scheme+"://bad.example/x")...); got.status == 0 || got.status >= exitOwn {
					t.Errorf("%s, %s: another host: %+v", name, scheme, got)
				}
			}
		}
		questions, served := w.heard()
		if i := slices.IndexFunc(append(questions, served...), func(s string) bool { return strings.Contains(s, "bad") }); i >= 0 {
			t.Errorf("asked for %q, served %q", questions, served)
		}
	})
}

func TestDirectConnectionsAreJudgedByTheGateWithoutNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		testenv.Requires(t, testenv.Landlock(6))
		direct := func(policy, url string) result {
			return w.restricted("--policy", policy, "--", "curl", "-sSf", "--noproxy", "*", url)
		}
		got := direct(`{"network": {"allowLocalOutboundPorts": ["8080"]}}`, "http://127.0.0.1:8080/x")
		if got.status != 0 || got.stdout != "answer from 127.0.0.1:8080" {
			t.Errorf("a port that is granted: %+v", got)
		}
		w.heard()
		got = direct(`{"network": {"allowLocalOutboundPorts": ["8080"]}}`, "http://127.0.0.1/x")
		if _, served := w.heard(); got.status == 0 || len(served) > 0 {
			t.Errorf("one that is not: %+v, served %q", got, served)
		}
		// 7 is curl's for a connection that was refused: it never had one.
		if want := `denied: connect 127.0.0.1:80 (`; got.status != 7 || !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, `"allowLocalOutboundPorts": ["80"]`) {
			t.Errorf("status %d, stderr %q does not say %q, or not how to allow it", got.status, got.stderr, want)
		}
		// Names are found by the gate alone.
		if got := direct(granting(`"allowedDomains": ["good.example"]`), "http://good.example/x"); got.status != 6 {
			t.Errorf("a name was looked up: %+v", got)
		}
		if questions, _ := w.heard(); len(questions) > 0 {
			t.Errorf("asked for %q", questions)
		}
	})
}

func TestCredentialsNeverEnterWithoutNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		testenv.Requires(t, testenv.Landlock(6), testenv.Program("curl"))
		const secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789"
		w.env = append(w.env, "SSL_CERT_FILE="+w.ca, "SERVICE_TOKEN="+secret)
		policy := granting(`"allowedDomains": ["good.example", "also.good.example"], "inject": [
			{"hosts": ["good.example"], "bearer": true, "fromEnv": "SERVICE_TOKEN", "placeholder": "SERVICE_TOKEN"}]`)
		for _, scheme := range []string{"http", "https"} {
			call := func(host string) result {
				return w.alone(policy, "curl", "-sSf", "-H", "Authorization: Bearer none", scheme+"://"+host+"/header")
			}
			if got := call("good.example"); got.stdout != "Bearer "+secret {
				t.Errorf("%s: %+v", scheme, got)
			}
			if got := call("also.good.example"); got.stdout != "Bearer none" {
				t.Errorf("%s: another host: %+v", scheme, got)
			}
		}
		got := w.alone(policy, "sh", "-c", `env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; ls "${CURL_CA_BUNDLE%/*}"; cat "${CURL_CA_BUNDLE%/*}"/*.key "${CURL_CA_BUNDLE%/*}"/*.pem`)
		if strings.Contains(got.stdout, secret) || strings.Contains(got.stdout, "PRIVATE") || !strings.Contains(got.stdout, "SERVICE_TOKEN=bailey-adds-it-outside") {
			t.Errorf("inside: %+v", got)
		}
	})
}

func TestInspectedRequestsAreJudgedWithoutNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		testenv.Requires(t, testenv.Landlock(6), testenv.Program("curl"))
		w.env = append(w.env, "SSL_CERT_FILE="+w.ca)
		policy := granting(`"rules": [{"host": "good.example", "methods": ["GET"], "paths": ["/open/**"], "action": "allow", "inspect": true}]`)
		for _, c := range []struct {
			args []string
			ok   bool
		}{
			{[]string{"https://good.example/open/a"}, true},
			{[]string{"-X", "POST", "https://good.example/open/a"}, false},
			{[]string{"https://good.example/closed"}, false},
		} {
			w.heard()
			got := w.alone(policy, append([]string{"curl", "-sSf"}, c.args...)...)
			if _, served := w.heard(); (got.status == 0) != c.ok || (len(served) > 0) != c.ok {
				t.Errorf("%q: %+v, the server heard %q", c.args, got, served)
			}
		}
	})
}

// escapes tries every way to send something that is not through the gate. Each
// line it prints is one that was found.
const escapes = `
import ctypes, errno, os, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
target = ("127.0.0.1", int(sys.argv[1]))
packed = struct.pack("=H", socket.AF_INET) + struct.pack("!H", target[1]) + socket.inet_aton(target[0]) + bytes(8)

def attempt(name, f):
    try: result = f()
    except OSError: return
    print(name, result)

def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0: raise OSError(ctypes.get_errno(), "")
    return result

def heard(s):
    s.settimeout(5)
    try:
        s.sendall(b"GET /escaped HTTP/1.0\r\nHost: escaped\r\n\r\n")
        return b"answer from" in s.recv(4096)
    except OSError: return False

def plain():
    s = socket.socket(); s.connect(target)
    if not heard(s): raise OSError
def six():
    s = socket.socket(socket.AF_INET6); s.connect(("::ffff:" + target[0], target[1]))
    if not heard(s): raise OSError
def anywhere():
    s = socket.socket(); s.connect(("0.0.0.0", target[1]))
    if not heard(s): raise OSError
def again():  # from the gate to elsewhere
    s = socket.socket(); s.connect(("127.0.0.1", 940))
    libc.connect(s.fileno(), struct.pack("=H", 0) + bytes(14), 16)  # AF_UNSPEC
    s.connect(target)
    if not heard(s): raise OSError
def fast(flags_in):
    s = socket.socket()
    s.sendto(b"GET /escaped HTTP/1.0\r\n\r\n", 0x20000000, target)
def fast_message():
    socket.socket().sendmsg([b"GET /escaped HTTP/1.0\r\n\r\n"], [], 0x20000000, target)
def option(level, name, value):
    socket.socket().setsockopt(level, name, value)
def inherited():
    for address in (packed, struct.pack("=H", 1) + b"/run/host.sock\0", struct.pack("=H", 1) + b"\0host"):
        if libc.connect(0, address, len(address)) == 0 and heard(socket.socket(fileno=os.dup(0))): return address
    raise OSError

attempt("plain", plain)
attempt("IPv6", six)
attempt("any address", anywhere)
attempt("connected again", again)
attempt("fast open", lambda: fast(0))
attempt("fast open by sendmsg", fast_message)
attempt("fast open by option", lambda: option(6, 30, 1))
attempt("device", lambda: option(socket.SOL_SOCKET, 25, b"lo"))
attempt("device by index", lambda: option(socket.SOL_SOCKET, 62, 1))
attempt("source route", lambda: option(0, 4, bytes([131, 7, 4]) + socket.inet_aton("10.0.0.1") + b"\0"))
attempt("route of IPv6", lambda: socket.socket(socket.AF_INET6).setsockopt(41, 57, bytes(24)))
attempt("another protocol", lambda: option(6, 31, b"tls"))
attempt("UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("UDP of IPv6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("MPTCP", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("SCTP", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
for family in (1, 3, 5, 9, 15, 16, 17, 21, 29, 31, 38, 40, 43, 44):
    attempt("family %d" % family, lambda: socket.socket(family, socket.SOCK_STREAM))
    attempt("family %d, raw" % family, lambda: socket.socket(family, socket.SOCK_RAW))
attempt("datagrams of a pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("listen", lambda: socket.socket().listen())
attempt("io_uring", lambda: call(425, 8, ctypes.create_string_buffer(120)))
attempt("inherited", inherited)

# An address that is the gate's when it is looked at, and another's afterwards.
buffer, stop = ctypes.create_string_buffer(packed, 16), threading.Event()
gate = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 940) + socket.inet_aton("127.0.0.1") + bytes(8)
def flip():
    while not stop.is_set():
        ctypes.memmove(buffer, gate, 16); ctypes.memmove(buffer, packed, 16)
flipper = threading.Thread(target=flip); flipper.start()
for i in range(300):
    try: s = socket.socket()
    except OSError: break
    if libc.connect(s.fileno(), buffer, 16) == 0:
        s.settimeout(5)
        try: s.sendall(b"GET /escaped HTTP/1.0\r\nHost: escaped\r\n\r\n"); s.recv(100)
        except OSError: pass
    s.close()
stop.set(); flipper.join()
print("done")
`

func TestNothingIsSentAroundTheGateWithoutNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		testenv.Requires(t, testenv.Landlock(6), testenv.Program("python3"))
		w.write("escapes.py", escapes, 0o644)
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		stdin := os.NewFile(uintptr(pair[0]), "stdin")
		defer stdin.Close()
		defer unix.Close(pair[1])
		for name, policy := range map[string]string{
			"through the gate": granting(`"allowedDomains": ["good.example"]`),
			"closed":           `{}`,
		} {
			cmd := w.filtered(testenv.NoNamespaces, "-q", "--policy", policy, "--", "python3", "escapes.py", "8080")
			cmd.Stdin = stdin
			got := w.collect(cmd)
			if got.status != 0 || !strings.HasSuffix(got.stdout, "done\n") {
				t.Errorf("%s: %+v", name, got)
			}
			if found := strings.TrimSuffix(got.stdout, "done\n"); found != "" {
				t.Errorf("%s: found a way:\n%s", name, found)
			}
		}
		questions, served := w.heard()
		if len(questions) > 0 || len(served) > 0 {
			t.Errorf("the world heard %q and %q", questions, served)
		}
		// Without a sandbox most of them are ways, so the test could fail.
		cmd := w.command()
		cmd.Path, cmd.Args = "/usr/bin/python3", []string{"python3", "escapes.py", "8080"}
		cmd.Stdin = nil
		got := w.collect(cmd)
		for _, way := range []string{"plain ", "IPv6 ", "any address ", "fast open ", "device ", "source route ", "UDP ", "family 1 ", "bind ", "listen "} {
			if !strings.Contains("\n"+got.stdout, "\n"+way) {
				t.Errorf("%q is no way without a sandbox either:\n%s", way, got.stdout)
			}
		}
	})
}

func TestSocketsThatCouldReachOthersAreNoStreamsWithoutNamespaces(t *testing.T) {
	b := aloneBench(t)
	for _, c := range []struct{ family, kind int }{
		{unix.AF_INET, unix.SOCK_STREAM}, {unix.AF_INET, unix.SOCK_DGRAM}, {unix.AF_UNIX, unix.SOCK_DGRAM}, {unix.AF_UNIX, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(c.family, c.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "socket")
		for _, policy := range []string{`{}`, `{"network": {"allowedDomains": ["good.example"]}}`} {
			cmd := b.filtered(testenv.NoNamespaces, "-q", "--policy", policy, "-c", "echo ran")
			cmd.Stdin = f
			if got := b.collect(cmd); got.status != exitOwn || got.stdout != "" || !strings.Contains(got.stderr, "stdin: is a socket that is not connected") {
				t.Errorf("%d, %d: got %+v", c.family, c.kind, got)
			}
		}
		f.Close()
		// What the message says.
		b.restricted("-q", "-c", "echo ran").want(t, 0, "ran\n", "")
	}
}
