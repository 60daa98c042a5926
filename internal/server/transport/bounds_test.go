package transport

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
)

// The bounds are short here, and what is waited for is the server's own end of
// the connection, however long that takes.
func short(c *Config) {
	c.Bounds = Bounds{HeaderTime: 50 * time.Millisecond, Stall: 50 * time.Millisecond, Header: 8 << 10, Message: 1 << 20}
}

func (f *fixture) raw(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func TestRequestsThatNeverEndAreEnded(t *testing.T) {
	f := start(t, short)
	bearer := "Authorization: Bearer " + f.tokens["ann"] + "\r\n"
	for name, text := range map[string]string{
		"header": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow:",
		"body":   "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n" + bearer + "\r\n{",
		"chunks": "PUT /v1/sandboxes/s/files:content?path=a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n" + bearer + "\r\n1\r\nx\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, answer := f.raw(t, text)
			// Whatever is answered, the connection ends.
			if content, err := io.ReadAll(answer); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%q, %v", content, err)
			} else if strings.Contains(string(content), " 200 ") {
				t.Errorf("served: %s", content)
			}
		})
	}
	if f.sandboxes.created.Load() != 0 {
		t.Error("half a request made a sandbox")
	}
}

func TestLargeHeadersAndMessagesAreRefused(t *testing.T) {
	f := start(t, short)
	res, _ := f.do(t, "GET", "/healthz", "", map[string]string{"X-Large": strings.Repeat("x", 64<<10)})
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header: %d", res.StatusCode)
	}
	large := fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", 2<<20))
	for _, path := range []string{"/v1/sandboxes", "/bailey.v1.SandboxService/CreateSandbox"} {
		if res, body := f.do(t, "POST", path, large, f.as("ann")); res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a large message to %s: %d %.200s", path, res.StatusCode, body)
		}
	}
	if f.sandboxes.created.Load() != 0 {
		t.Error("a refused message made a sandbox")
	}
}

// flood answers for ever, and says how that ended.
type flood struct {
	baileyv1connect.UnimplementedFileServiceHandler
	ended chan error
}

func (f *flood) DownloadFile(_ context.Context, _ *baileyv1.DownloadFileRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	for {
		if err := to.Send(&httpbody.HttpBody{Data: make([]byte, 256<<10)}); err != nil {
			f.ended <- err
			return err
		}
	}
}

func TestClientThatTakesNothingIsGivenUp(t *testing.T) {
	service := &flood{ended: make(chan error, 1)}
	f := start(t, short, func(c *Config) { c.Services.Files = service })
	for _, path := range []string{"/v1/sandboxes/s/files:content?path=a"} {
		_, answer := f.raw(t, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+f.tokens["ann"]+"\r\n\r\n")
		if _, err := answer.ReadByte(); err != nil {
			t.Fatal(err)
		}
		<-service.ended
	}
}

func TestClientThatLeavesEndsItsRequest(t *testing.T) {
	service := &flood{ended: make(chan error, 1)}
	f := start(t, func(c *Config) { c.Services.Files = service })
	c, answer := f.raw(t, "GET /v1/sandboxes/s/files:content?path=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+f.tokens["ann"]+"\r\n\r\n")
	if _, err := answer.ReadByte(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-service.ended
}

func TestListenersReachNoFurtherThanTold(t *testing.T) {
	dir := t.TempDir()
	certificate := Identity{Certificate: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}
	writeIdentity(t, certificate, "one")
	secured, err := certificate.Config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		address Address
		e       Exposure
		ok      bool
	}{
		{"127.0.0.1:0", Exposure{}, true},
		{"localhost:0", Exposure{}, true},
		{"0.0.0.0:0", Exposure{}, false},
		{":0", Exposure{}, false},
		{":0", Exposure{Public: true}, false},
		{":0", Exposure{TLS: secured}, false},
		{":0", Exposure{Public: true, TLS: secured}, true},
		{":0", Exposure{Public: true, Plaintext: true}, true},
		{"nonsense", Exposure{}, false},
	} {
		l, err := Listen(test.address, test.e)
		if (err == nil) != test.ok {
			t.Errorf("%s with %+v: %v, want ok %v", test.address, test.e, err, test.ok)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

func TestUnixSocketIsTheUsersAndNobodyStealsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(Address("unix:"+path), Exposure{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(Address("unix:"+path), Exposure{}); err == nil {
		t.Error("a second server took the socket")
	}
	// As a server that was killed leaves it.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	l, err = Listen(Address("unix:"+path), Exposure{})
	if err != nil {
		t.Fatalf("a socket that was left behind: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Address("unix:"+path), Exposure{}); err == nil {
		t.Error("a file was replaced by a socket")
	}
}

// writeIdentity writes a certificate that signs itself.
func writeIdentity(t *testing.T, id Identity, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{id.Certificate: {Type: "CERTIFICATE", Bytes: der}, id.Key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(id.Certificate, id.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// shake returns the name that a server shows.
func shake(address string, with ...tls.Certificate) (string, error) {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: with, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	// Only an answer says that the server has taken the client's certificate.
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		return "", err
	}
	if _, err := io.ReadAll(c); err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestTLSFilesAreTakenUpWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	id := Identity{Certificate: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), ClientCA: filepath.Join(dir, "ca")}
	client := writeIdentity(t, Identity{Certificate: id.ClientCA, Key: filepath.Join(dir, "client.key")}, "client")
	writeIdentity(t, id, "one")
	config, err := id.Config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	exposure := Exposure{TLS: config}
	l, err := Listen("127.0.0.1:0", exposure)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- tr.Serve(ctx, time.Minute, exposure.Secure(l)) }()
	t.Cleanup(func() { stop(); <-served })

	address := l.Addr().String()
	if name, err := shake(address, *client); name != "one" {
		t.Fatalf("%q, %v", name, err)
	}
	if _, err := shake(address); err == nil {
		t.Error("a client without a certificate was served")
	}
	stranger := writeIdentity(t, Identity{Certificate: filepath.Join(dir, "x"), Key: filepath.Join(dir, "y")}, "stranger")
	if _, err := shake(address, *stranger); err == nil {
		t.Error("a stranger's certificate was taken")
	}
	writeIdentity(t, id, "second")
	if name, err := shake(address, *client); name != "second" {
		t.Errorf("after the files have changed: %q, %v", name, err)
	}
	if err := os.WriteFile(id.Certificate, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := shake(address, *client); name != "second" {
		t.Errorf("after the files were broken: %q, %v", name, err)
	}
}
