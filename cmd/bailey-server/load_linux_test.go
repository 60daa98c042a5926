package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestLoadMeasuresAServerOfItsOwn(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	file := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr bytes.Buffer
	load := exec.Command(testenv.Binary(t, "baileyd"), "load", "--quick", "--json", file)
	load.Stdout, load.Stderr = &stdout, &stderr
	if err := load.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	checkSchema(t, data, "server-load.schema.json")
	var report struct {
		Latencies []struct {
			Name          string
			Samples       int
			P50, P90, P99 float64
		}
		Figures []struct{ Name string }
	}
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Latencies) == 0 || len(report.Figures) == 0 {
		t.Fatalf("the report is empty: %s", data)
	}
	for _, l := range report.Latencies {
		if l.Samples == 0 || l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 {
			t.Errorf("%+v cannot be", l)
		}
		if !strings.Contains(stdout.String(), "| "+l.Name+" |") {
			t.Errorf("the tables do not have %q:\n%s", l.Name, stdout.String())
		}
	}
}

func checkSchema(t *testing.T, data []byte, name string) {
	t.Helper()
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Schema(t, name).Validate(value); err != nil {
		t.Error(err)
	}
}

func TestLoadRefusesWhatItCannotMeasure(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--idle", "0"}, "--idle and --cycles are 1 or more"},
		{[]string{"--address", "nowhere"}, `"nowhere" is no address`},
		{[]string{"--address", "unix:/nonexistent/socket"}, "/nonexistent/socket"},
		{[]string{"more"}, `"more" is no flag`},
	} {
		var stderr bytes.Buffer
		if status := run(append([]string{"load"}, c.args...), nil, &stderr, &stderr); status != exitOwn || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("load %q: status %d, %s", c.args, status, stderr.String())
		}
	}
}
