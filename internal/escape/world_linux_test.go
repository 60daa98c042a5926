package escape

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Addresses of the world. The machine has one cable, and behind it is a place
// that answers on every address there is: whatever leaves arrives.
const (
	machine4   = "203.0.113.2"
	machine6   = "2a0f:ff00::2"
	nameserver = "203.0.113.1"
	good4      = "198.51.100.10"
	good6      = "2a0f:ff01::10"
	evil4      = "198.51.100.66"
	evil6      = "2a0f:ff01::66"
)

// world is a machine with a cable, both of the test's own. The test plays every
// server at the other end, hears every question and request there, and sees
// every packet that the machine sends.
type world struct {
	*box
	beyond chan func()
	tap    *tap
	ca     string // the certificate that the servers' one is signed by

	mu        sync.Mutex
	questions []string // "name type" that the name server was asked for
	served    []string // "METHOD host path" of requests, and "at ADDRESS with CREDENTIAL"
	raw       []string // what was said on each connection to rawPort
	answers   func(name string, kind dnsmessage.Type) []dnsmessage.ResourceBody
}

// inWorld runs a test on a machine of its own, in a process of its own.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("unshare"), testenv.Program("ip"))
	const variable = "BAILEY_TEST_WORLD"
	if os.Getenv(variable) == t.Name() {
		test(t, newWorld(t))
		return
	}
	gate := testenv.Binary(t, "bailey-gate")
	self, err := os.Executable()
	must(t, err)
	args := []string{"--net", "--mount", "--", self, "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=5m"}
	if isContainer() {
		testenv.Requires(t, testenv.Root) // of the machine: containers are not made by root of a namespace
	} else {
		args = append([]string{"--map-root-user"}, args...)
	}
	c := exec.Command("unshare", args...)
	c.Env = append(os.Environ(), variable+"="+t.Name(), "PATH="+filepath.Dir(gate)+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{box: newBox(t), beyond: make(chan func())}
	t.Cleanup(func() { close(w.beyond) })
	w.connect()
	w.tap = newTap(t)
	conf := w.root + "/resolv.conf"
	w.write(conf, "nameserver "+nameserver+"\n")
	real, err := filepath.EvalSymlinks("/etc/resolv.conf")
	must(t, err)
	must(t, unix.Mount(conf, real, "", unix.MS_BIND, ""))
	w.serveNames()
	for _, port := range []string{"80", "8080"} {
		go serveHTTP(w, w.listenBeyond(port))
	}
	go w.serveRaw(w.listenBeyond(rawPort))
	go serveHTTP(w, tls.NewListener(w.listenBeyond("443"), w.certificates()))
	return w
}

// connect lays the cable.
func (w *world) connect() {
	w.t.Helper()
	tid := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in its network
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tid <- 0
			return
		}
		tid <- unix.Gettid()
		for f := range w.beyond {
			f()
		}
	}()
	there := <-tid
	if there == 0 {
		w.t.Fatal("no second network could be made")
	}
	w.ip("link set lo up", "link add cable type veth peer name cable netns "+strconv.Itoa(there),
		"addr add "+machine4+"/24 dev cable", "-6 addr add "+machine6+"/64 dev cable nodad", "link set cable up")
	w.there(func() {
		w.ip("link set lo up", "addr add "+nameserver+"/24 dev cable", "-6 addr add 2a0f:ff00::1/64 dev cable nodad", "link set cable up",
			"route add local default dev lo table main", "-6 route add local default dev lo table main")
	})
	w.ip("route add default via "+nameserver, "-6 route add default via 2a0f:ff00::1")
}

// there does something at the other end of the cable.
func (w *world) there(f func()) {
	done := make(chan struct{})
	w.beyond <- func() { defer close(done); f() }
	<-done
}

func (w *world) ip(lines ...string) {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			w.t.Errorf("ip %s: %v: %s", line, err, out)
		}
	}
}

// listenBeyond takes connections to every address at the other end.
func (w *world) listenBeyond(port string) (l net.Listener) {
	w.t.Helper()
	var err error
	w.there(func() { l, err = net.Listen("tcp", ":"+port) })
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return l
}

func serveHTTP(w *world, l net.Listener) {
	s := &http.Server{Handler: w, ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	_ = s.Serve(l)
}

// ServeHTTP is every web server of the world. It tells where it was reached.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).(*net.TCPAddr)
	text := fmt.Sprintf("%s %s %s", r.Method, r.Host, r.URL.Path)
	if credential := r.Header.Get("Authorization"); credential != "" {
		text += fmt.Sprintf(" at %s with %s", at.IP, credential)
	}
	w.note(&w.served, text)
	fmt.Fprintf(rw, "served %s%s at %s", r.Host, r.URL.Path, at)
}

// rawPort is of servers that take down what they are told, byte by byte, and
// find nothing wrong with it.
const rawPort = "8000"

func (w *world) serveRaw(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var all []byte
			for buf := make([]byte, 4096); ; {
				n, err := c.Read(buf)
				if n > 0 && len(all) == 0 {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nraw")
				}
				all = append(all, buf[:n]...)
				if err != nil {
					w.note(&w.raw, string(all))
					return
				}
			}
		}()
	}
}

func (w *world) note(list *[]string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, text)
}

// record is what the world knows of since the last time.
type record struct {
	questions []string // each once
	served    []string // in order
	raw       []string
	sent      []string // packets: "tcp 198.51.100.10:80", each once
}

// heard returns what happened since the last time.
func (w *world) heard() record {
	w.t.Helper()
	sent := w.tap.take(w.t)
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.questions)
	r := record{slices.Compact(w.questions), w.served, w.raw, sent}
	w.questions, w.served, w.raw = nil, nil, nil
	return r
}

// expectSilence fails if anything left the machine, or went about on it.
func (w *world) expectSilence(what string) {
	w.t.Helper()
	if got := w.heard(); len(got.questions)+len(got.served)+len(got.sent) > 0 {
		w.t.Errorf("%s: questions %q, requests %q, packets %q", what, got.questions, got.served, got.sent)
	}
}

// names of the world.
var names = map[string][]dnsmessage.ResourceBody{
	"good.example.":      {ipv4(good4)},
	"deep.good.example.": {ipv4(good4)},
	"six.good.example.":  {ipv6(good6)},
	"evil.example.":      {ipv4(evil4)},
}

func ipv4(text string) *dnsmessage.AResource {
	return &dnsmessage.AResource{A: [4]byte(net.ParseIP(text).To4())}
}

func ipv6(text string) *dnsmessage.AAAAResource {
	return &dnsmessage.AAAAResource{AAAA: [16]byte(net.ParseIP(text).To16())}
}

// serveNames is the name server, by datagram and by stream.
func (w *world) serveNames() {
	w.t.Helper()
	var packets net.PacketConn
	var err error
	w.there(func() { packets, err = net.ListenPacket("udp", nameserver+":53") })
	must(w.t, err)
	w.t.Cleanup(func() { packets.Close() })
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := w.resolve(buf[:n]); reply != nil {
				_, _ = packets.WriteTo(reply, from)
			}
		}
	}()
}

// answer has the name server answer every question in this way.
func (w *world) answer(how func(name string, kind dnsmessage.Type) []dnsmessage.ResourceBody) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = how
}

func (w *world) resolve(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		w.note(&w.questions, fmt.Sprintf("malformed %q", question))
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	w.note(&w.questions, name+" "+strings.TrimPrefix(q.Type.String(), "Type"))
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	bodies, known := names[name]
	w.mu.Lock()
	answers := w.answers
	w.mu.Unlock()
	if answers != nil {
		bodies, known = answers(name, q.Type), true
	}
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, body := range bodies {
		kind := dnsmessage.TypeA
		if _, six := body.(*dnsmessage.AAAAResource); six {
			kind = dnsmessage.TypeAAAA
		}
		if kind == q.Type {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: body}) // TTL 0
		}
	}
	reply, _ := m.Pack()
	return reply
}

// certificates are good for every name and address the tests use.
func (w *world) certificates() *tls.Config {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{"good.example", "*.good.example", "evil.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(w.t, err)
	w.ca = w.project + "/ca.pem"
	w.write(w.ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"}}
}
