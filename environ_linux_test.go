package bailey_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// A program that gives an environment of its own means the gate too: the
// credential and the roots are in it and nowhere else.
func TestGateHasTheEnvironmentThatIsGiven(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	t.Setenv("PATH", filepath.Dir(testenv.Binary(t, "bailey-gate"))+string(os.PathListSeparator)+os.Getenv("PATH"))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) }))
	defer s.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	port := s.URL[len("https://127.0.0.1:"):]
	policy := `{"network": {"rules": [{"host": "127.0.0.1", "ports": ["` + port + `"], "action": "allow"}],
		"inject": [{"hosts": ["127.0.0.1"], "bearer": true, "fromEnv": "SITE_TOKEN"}]}}`
	m := newManager(t, bailey.Config{Policy: policy, Env: append(os.Environ(), "SITE_TOKEN=given", "SSL_CERT_FILE="+roots)})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	for name, command := range map[string]func(string, ...string) *bailey.Cmd{"command": m.Command, "box": box.Command} {
		out, err := command("curl", "-sS", "--noproxy", "", s.URL).Output()
		if string(out) != "Bearer given" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}
