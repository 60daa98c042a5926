package relay

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const relayChild = "BAILEY_TEST_RELAY"

// TestBytesStayInTheKernel runs a relay under strace. The ends of it are in the
// same process, and use read and write; the relay itself must not.
func TestBytesStayInTheKernel(t *testing.T) {
	const size = 64 << 20
	if os.Getenv(relayChild) != "" {
		download(t, os.Getenv(relayChild), size)
		return
	}
	testenv.Requires(t, testenv.Program("strace"), testenv.NoRace)
	for _, kinds := range []string{"tcp tcp", "unix tcp"} {
		trace := filepath.Join(t.TempDir(), "trace")
		child := exec.Command("strace", "-f", "-o", trace, "-e", "trace=splice", os.Args[0], "-test.run=^TestBytesStayInTheKernel$")
		child.Env = append(os.Environ(), relayChild+"="+kinds)
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		// Each byte goes from the socket into a pipe, and from there into the
		// other socket.
		if got := spliced(string(data)); got < 2*size {
			t.Errorf("%s: %d of %d bytes were moved by splice", kinds, got/2, size)
		}
	}
}

func spliced(trace string) int64 {
	var total int64
	for line := range strings.Lines(trace) {
		// A call that was interrupted by another thread's is told in two lines, and
		// there are as many blanks before the result as fill the column.
		at := strings.LastIndex(line, " = ")
		if at < 0 || !strings.HasSuffix(strings.TrimRight(line[:at], " "), ")") {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(line[at+3:]), 10, 64); err == nil {
			total += n
		}
	}
	return total
}

func download(t *testing.T, kinds string, size int64) {
	client, server, _ := strings.Cut(kinds, " ")
	c, s, done := start(t, client, server, Limits{})
	go func() {
		_, _ = io.CopyN(onlyWriter{s}, zeros{}, size)
		s.Close()
	}()
	n, err := io.Copy(onlyWriter{io.Discard}, struct{ io.Reader }{c})
	if n != size || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	c.Close()
	if r := wait(t, done); r.In != size {
		t.Errorf("got %+v", r)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func BenchmarkRelay(b *testing.B) {
	const chunk = 1 << 20
	c, s, _ := start(b, "tcp", "tcp", Limits{})
	go func() { _, _ = io.Copy(onlyWriter{s}, zeros{}) }()
	buffer := make([]byte, chunk)
	b.SetBytes(chunk)
	for range b.N {
		if _, err := io.ReadFull(c, buffer); err != nil {
			b.Fatal(err)
		}
	}
	c.(*net.TCPConn).Close()
}
