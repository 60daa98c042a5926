package nameserver

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
)

// TestAStreamOfNonsenseEnds without an answer.
func TestAStreamOfNonsenseEnds(t *testing.T) {
	for want, send := range map[string][]byte{
		"the query is too long": binary.BigEndian.AppendUint16(nil, maxQuery+1),
		"not a query":           {0, 3, 'a', 'b', 'c'},
		"unexpected EOF":        {0, 9, 'a'},
	} {
		s, _ := testServer()
		client, server := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- s.ServeStream(t.Context(), server)
			_ = server.Close()
		}()
		if _, err := client.Write(send); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(want, "EOF") {
			_ = client.Close()
		} else if got, err := io.ReadAll(client); len(got) > 0 || err != nil {
			t.Errorf("%s: answered %q, %v", want, got, err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		_ = client.Close()
	}
}
