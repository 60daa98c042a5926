package hello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// clientHello is what Go's own client sends.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, c).Handshake()
		client.Close()
	}()
	var got []byte
	buffer := make([]byte, 4096)
	for {
		n, err := server.Read(buffer)
		got = append(got, buffer[:n]...)
		var more *Incomplete
		if _, perr := Parse(got); !errors.As(perr, &more) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNameOfARealClientIsRead(t *testing.T) {
	for _, c := range []*tls.Config{
		{ServerName: "example.com", NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "example.com", NextProtos: []string{"h2", "http/1.1"}, MaxVersion: tls.VersionTLS12},
	} {
		h, err := Parse(clientHello(t, c))
		if err != nil || h.ServerName != "example.com" || h.Encrypted || !slices.Equal(h.Protocols, c.NextProtos) {
			t.Errorf("got %+v, %v", h, err)
		}
	}
	h, err := Parse(clientHello(t, &tls.Config{InsecureSkipVerify: true}))
	if err != nil || h.ServerName != "" {
		t.Errorf("without a name: got %+v, %v", h, err)
	}
}

// build makes a hello with these extensions, in one record.
func build(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)                      // session
	body = append(body, 0, 4, 0x0a, 0x0a, 0, 1) // suites, the first a GREASE one
	body = append(body, 1, 0)                   // compression
	body = append(body, vector16(slices.Concat(extensions...))...)
	return record(message(body))
}

func message(body []byte) []byte {
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func record(payload []byte) []byte { return append([]byte{22, 3, 1}, vector16(payload)...) }

func vector16(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

func extension(kind uint16, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), vector16(data)...)
}

func serverName(name string) []byte {
	return extension(0, vector16(append([]byte{0}, vector16([]byte(name))...)))
}

func TestNamesAndUnknownExtensionsAreTold(t *testing.T) {
	grease := extension(0x1a1a, []byte{0})
	for _, c := range []struct {
		name string
		in   []byte
		want Hello
	}{
		{"grease", build(grease, serverName("a.com"), extension(0xfafa, nil)), Hello{ServerName: "a.com"}},
		{"ech", build(serverName("a.com"), extension(0xfe0d, []byte{0})), Hello{ServerName: "a.com", Encrypted: true}},
		{"esni", build(extension(0xffce, []byte{0})), Hello{Encrypted: true}},
		{"none", build(), Hello{}},
	} {
		got, err := Parse(c.in)
		if err != nil || got.ServerName != c.want.ServerName || got.Encrypted != c.want.Encrypted {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		}
	}
}

func TestHelloInPiecesIsPutTogether(t *testing.T) {
	whole := build(serverName("a.com"))
	payload := whole[5:]
	for size := 2; size < len(payload); size += 7 {
		var pieces []byte
		for chunk := range slices.Chunk(payload, size) {
			pieces = append(pieces, record(chunk)...)
		}
		for n := range len(pieces) {
			var more *Incomplete
			if _, err := Parse(pieces[:n]); !errors.As(err, &more) || more.Need <= n {
				t.Fatalf("records of %d, %d bytes: got %v", size, n, err)
			}
		}
		if h, err := Parse(pieces); err != nil || h.ServerName != "a.com" {
			t.Errorf("records of %d: got %+v, %v", size, h, err)
		}
		// What follows in the next record belongs to whoever reads on.
		if h, err := Parse(append(pieces, 20, 3, 3, 0, 1, 1)); err != nil || h.ServerName != "a.com" {
			t.Errorf("records of %d and more: got %+v, %v", size, h, err)
		}
	}
}

func TestAmbiguousAndMalformedHellosAreRefused(t *testing.T) {
	two := extension(0, vector16(slices.Concat([]byte{0}, vector16([]byte("a.com")), []byte{0}, vector16([]byte("b.com")))))
	whole := build(serverName("a.com"))
	for name, in := range map[string][]byte{
		"two names":           build(two),
		"extension twice":     build(serverName("a.com"), serverName("b.com")),
		"empty name":          build(serverName("")),
		"name of no host":     build(extension(0, vector16(append([]byte{1}, vector16([]byte("a.com"))...)))),
		"bytes after name":    build(extension(0, append(vector16(append([]byte{0}, vector16([]byte("a.com"))...)), 0))),
		"extension too short": build([]byte{0, 0, 0}),
		"second message":      record(append(slices.Clone(whole[5:]), 1, 0, 0, 0)),
		"not a hello":         record([]byte{2, 0, 0, 1, 0}),
		"empty record":        {22, 3, 1, 0, 0},
		"huge record":         {22, 3, 1, 0xff, 0xff},
		"huge hello":          record([]byte{1, 0xff, 0xff, 0xff}),
		"alert":               {21, 3, 1, 0, 2, 2, 40},
		"http":                []byte("GET / HTTP/1.1\r\n\r\n"),
		"many records":        bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 100),
		"many small records":  append(record([]byte{1, 0, 1, 0}), bytes.Repeat(record([]byte{0}), maxRecords)...),
		"large records":       append(record([]byte{1, 0, 0xff, 0xff}), bytes.Repeat(record(make([]byte, maxRecord)), MaxSize/maxRecord)...),
	} {
		h, err := Parse(in)
		var more *Incomplete
		if err == nil || errors.As(err, &more) {
			t.Errorf("%s: got %+v, %v", name, h, err)
		}
	}
}

func FuzzHelloIsReadAsGoReadsIt(f *testing.F) {
	f.Add(build(serverName("a.com")))
	f.Add(build(extension(0x1a1a, nil), serverName("a.com"), extension(16, []byte{0, 3, 2, 'h', '2'})))
	f.Add(clientHello(f, &tls.Config{ServerName: "example.com"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			return
		}
		// What passes here, Go's server must read as the same name, or refuse.
		var name string
		called := false
		server := tls.Server(&replay{Reader: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			name, called = i.ServerName, true
			return nil, errors.New("enough")
		}})
		_ = server.Handshake()
		// Go drops a dot at the end, and the gate does so later.
		if called && name != h.ServerName && name+"." != h.ServerName {
			t.Errorf("got %q, and Go reads %q", h.ServerName, name)
		}
	})
}

// replay is a connection on which a client has said something and gone.
type replay struct {
	net.Conn
	io.Reader
}

func (r *replay) Read(b []byte) (int, error)  { return r.Reader.Read(b) }
func (r *replay) Write(b []byte) (int, error) { return len(b), nil }
func (r *replay) Close() error                { return nil }
