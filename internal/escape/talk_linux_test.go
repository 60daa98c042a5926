package escape

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// proxyAddress is where the gate is a proxy, inside.
const proxyAddress = "127.0.0.1:940"

// talk is a connection from inside, and what is said on it. After each part but
// the last something is waited for.
type talk struct {
	name string
	to   string // proxyAddress if empty
	say  []string
	tls  string // if set, what follows is inside TLS to a server of this name
	then []string
}

// spoken is a talk on its way into the sandbox and back.
type spoken struct {
	To     string
	Say    [][]byte
	TLS    string
	Then   [][]byte
	Answer []byte
	Error  string
}

func init() {
	// talk FILE [NAME] carries out the talks in a file, under another name.
	attacks["talk"] = func(args []string) {
		if len(args) > 1 {
			name, err := strconv.Unquote(args[1])
			report("unquote", err)
			report("take another name", os.WriteFile("/proc/self/comm", []byte(name), 0))
		}
		var list []spoken
		data, err := os.ReadFile(args[0])
		report("read", err)
		report("decode", json.Unmarshal(data, &list))
		for i := range list {
			list[i].carryOut()
		}
		data, err = json.Marshal(list)
		report("encode", err)
		keep("talks", data)
	}
}

func (s *spoken) carryOut() {
	if err := s.speak(); err != nil {
		s.Error = err.Error()
	}
}

func (s *spoken) speak() error {
	network := "tcp"
	if strings.HasPrefix(s.To, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, s.To, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := s.sayAll(c, s.Say); err != nil {
		return err
	}
	if s.TLS != "" {
		if len(s.Say) > 0 {
			if err := s.listen(c); err != nil {
				return err
			}
		}
		c = tls.Client(c, &tls.Config{ServerName: s.TLS, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err := s.sayAll(c, s.Then); err != nil {
			return err
		}
	}
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	rest, err := io.ReadAll(c)
	s.Answer = append(s.Answer, rest...)
	return err
}

// sayAll says one part after the other, and listens in between.
func (s *spoken) sayAll(c net.Conn, parts [][]byte) error {
	for i, part := range parts {
		if i > 0 {
			if err := s.listen(c); err != nil {
				return err
			}
		}
		if _, err := c.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (s *spoken) listen(c net.Conn) error {
	var b [4096]byte
	n, err := c.Read(b[:])
	s.Answer = append(s.Answer, b[:n]...)
	return err
}

// talk has each talk carried out in the sandbox, and returns the answers.
func (b *box) talk(talks ...talk) []string {
	b.t.Helper()
	list := b.putTalks(talks)
	b.attack("talk", "talks.json")
	if err := json.Unmarshal([]byte(b.looted()["talks"]), &list); err != nil {
		b.t.Fatalf("the attack did not come to its end: %v", err)
	}
	answers := make([]string, len(list))
	for i := range list {
		answers[i] = string(list[i].Answer)
		b.t.Logf("%q: %.300q %s", talks[i].name, answers[i], list[i].Error)
	}
	return answers
}

// putTalks puts talks into the project, for the attack to read.
func (b *box) putTalks(talks []talk) []spoken {
	b.t.Helper()
	list := make([]spoken, len(talks))
	for i, t := range talks {
		list[i] = spoken{To: t.to, Say: parts(t.say), TLS: t.tls, Then: parts(t.then)}
		if t.to == "" {
			list[i].To = proxyAddress
		}
	}
	data, err := json.Marshal(list)
	must(b.t, err)
	b.write(b.project+"/talks.json", string(data))
	return list
}

func parts(list []string) (out [][]byte) {
	for _, part := range list {
		out = append(out, []byte(part))
	}
	return out
}

// Ways to ask for a connection.

func connectBy(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func socks5Name(host string, port uint16) string {
	return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host + string([]byte{byte(port >> 8), byte(port)})
}

func socks4a(host string, port uint16) string {
	return "\x04\x01" + string([]byte{byte(port >> 8), byte(port)}) + "\x00\x00\x00\x01user\x00" + host + "\x00"
}

const socks5Hello = "\x05\x01\x00"

// get is a request as servers want it.
func get(host, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

// getByURL is a request as proxies want it.
func getByURL(host, path string) string {
	return "GET http://" + host + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

// everyWay asks for a path of a host in every way there is to ask the gate.
func everyWay(host, path string) []talk {
	return []talk{
		{name: "by URL, " + host, say: []string{getByURL(host, path)}},
		{name: "by CONNECT, " + host, say: []string{connectBy(host + ":80"), get(host, path)}},
		{name: "by SOCKS 5, " + host, say: []string{socks5Hello, socks5Name(host, 80), get(host, path)}},
		{name: "by SOCKS 4a, " + host, say: []string{socks4a(host, 80), get(host, path)}},
	}
}
