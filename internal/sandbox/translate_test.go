package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// foreignProject is a directory inside of a repository, with settings of Fence's
// beside it.
func foreignProject(t *testing.T, settings string) (dir, file string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", filepath.Join(base, "home"))
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir, file = filepath.Join(base, "repository", "sub"), filepath.Join(base, "fence.json")
	for _, d := range []string{dir, filepath.Join(base, "repository", ".git"), filepath.Join(base, "home", ".config")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

// A wrapped command carries its policy as text, in which a relative path would
// mean the repository.
func TestWrappedForeignSettingsMeanTheWorkingDirectory(t *testing.T) {
	dir, file := foreignProject(t, `{"filesystem": {"allowWrite": ["."], "denyWrite": ["*.pem"]}}`)
	m := New(Config{Dir: dir, Settings: file})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	argv, err := m.Wrap("bailey", []string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(argv, " ")
	if !strings.Contains(line, `"allowWrite":["`+dir+`"]`) || !strings.Contains(line, `"denyWrite":["`+dir+`/*.pem"]`) {
		t.Errorf("%s", line)
	}
	if l := m.Loaded(); l.Tool != "Fence" || l.Note == "" || len(l.Files) != 1 || l.Files[0] != file {
		t.Errorf("%+v", l)
	}
}

func TestForeignSettingsMayGrantTheDirectoryAroundBaileysOwn(t *testing.T) {
	dir, file := foreignProject(t, `{"filesystem": {"allowWrite": ["~/.config/**"]}}`)
	m := New(Config{Dir: dir, Settings: file})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	s, err := m.Compile([]string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(os.Getenv("HOME"), ".config", "bailey")
	if a, _ := s.Access(own); a.String() != "read" {
		t.Errorf("%s can be accessed for %v", own, a)
	}
	if a, _ := s.Access(filepath.Dir(own)); a.String() != "write" {
		t.Errorf("%s can be accessed for %v", filepath.Dir(own), a)
	}
}
