package nameserver

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The gate is started for the first query, which is there before the gate is.
func TestQueryThatWaitedIsAnsweredFromWhereItWent(t *testing.T) {
	for _, c := range []struct{ network, address string }{{"udp4", "127.9.9.9"}, {"udp4", "127.0.0.1"}, {"udp6", "::1"}} {
		packets, err := net.ListenUDP(c.network, &net.UDPAddr{})
		if err != nil {
			t.Logf("%s: %v", c.network, err)
			continue
		}
		client, err := net.DialUDP(c.network, nil, &net.UDPAddr{IP: net.ParseIP(c.address), Port: packets.LocalAddr().(*net.UDPAddr).Port})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write(query("allowed.example.", dnsmessage.TypeA, false)); err != nil {
			t.Fatal(err)
		}
		s, _ := testServer()
		done := make(chan error, 1)
		go func() { done <- s.ServePacket(t.Context(), packets) }()
		_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := client.Read(make([]byte, 1500)); err != nil || n == 0 {
			t.Errorf("%s: %v", c.address, err)
		}
		client.Close()
		packets.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
