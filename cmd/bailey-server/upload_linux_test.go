package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// What is uploaded and downloaded may be larger than the machine's memory. In a long run it
// is four gigabytes.
func TestFilesOfAnySizePassThroughLittleMemory(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	size := int64(testenv.Count(64, 4096)) << 20
	const most = 32 << 10 // kB that the server may grow by
	state := short(t)
	d := start(t, "--state", state, "--orphan-timeout", "1s")
	sandboxes := baileyv1connect.NewSandboxServiceClient(over(socket(state)), "http://x")
	for _, test := range []struct {
		what string
		body io.Reader
	}{
		{"content?path=large", zeros(size)},
		{"archive?path=", io.MultiReader(archiveHeader(t, "large", size), zeros(size+1024))}, // two empty blocks are its end
	} {
		before := peakMemory(t, d.Process.Pid)
		made, err := sandboxes.CreateSandbox(t.Context(), &baileyv1.CreateSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		files := "http://x/v1/sandboxes/" + made.GetId() + "/files:"
		exchange(t, state, http.MethodPut, files+test.what, test.body)
		if got := exchange(t, state, http.MethodGet, files+"content?path=large", nil); got != size {
			t.Errorf("%s: %d bytes came back, want %d", test.what, got, size)
		}
		if more := peakMemory(t, d.Process.Pid) - before; more > most {
			t.Errorf("%s: the server took %d kB more for %d bytes, want %d at most", test.what, more, size, most)
		}
		if _, err := sandboxes.DestroySandbox(t.Context(), &baileyv1.DestroySandboxRequest{SandboxId: made.GetId()}); err != nil {
			t.Fatal(err)
		}
	}
}

// exchange sends a request, and returns how long the answer is.
func exchange(t *testing.T, state, method, url string, body io.Reader) int64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := over(socket(state)).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var start bytes.Buffer
	n, err := io.Copy(io.Discard, io.TeeReader(io.LimitReader(res.Body, 1<<10), &start))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s, %v", method, url, res.Status, start.String(), err)
	}
	more, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return n + more
}

// zeros are bytes that nobody has to keep.
func zeros(n int64) io.Reader { return io.LimitReader(endless{}, n) }

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// archiveHeader is the beginning of an archive, before the content of its first file.
func archiveHeader(t *testing.T, name string, size int64) io.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	return &b
}

// peakMemory is the most memory that a process ever had, in kB.
func peakMemory(t *testing.T, pid int) (kilobytes int64) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(data), "VmHWM:")
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		t.Fatalf("VmHWM of %d: %v", pid, err)
	}
	return kilobytes
}
