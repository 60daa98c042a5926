package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// programsInAnOverlay are what real projects run, with what it prints at the end.
var programsInAnOverlay = []struct {
	name  string
	needs testenv.Requirement
	line  string
	want  string
}{
	{"cp", testenv.Program("cp"), `cp -a sub copy && diff -r sub copy && cp -a --reflink=auto a.txt b.txt && cmp a.txt b.txt && stat -c %Y a.txt b.txt | uniq | wc -l`, "1"},
	{"rsync", testenv.Program("rsync"), `rsync -a --delete sub/ mirror/ && rm sub/b.txt && rsync -a --delete sub/ mirror/ && find mirror -type f`, "mirror/deep/c.txt"},
	{"mv", testenv.Program("mv"), `mv sub moved && mv moved/deep up && mv up sub && cat sub/c.txt && ls -d moved sub | wc -l`, "c\n2"},
	{"rm", testenv.Program("rm"), `rm -rf sub keep link hard run.sh && mkdir sub && ls sub | wc -l && { ls -d sub keep run.sh 2>/dev/null; true; }`, "0\nsub"},
	{"tar", testenv.Program("tar"), `tar cf t.tar sub && rm -r sub && tar xf t.tar && cat sub/deep/c.txt`, "c"},
	{"git", testenv.Program("git"), `git init -q work && cd work && git config user.name a && git config user.email a@b && cp -r ../sub . && git add . && git commit -q -m one && echo x >> sub/b.txt && git commit -q -a -m two && git gc -q && git fsck --strict 2>/dev/null; git clone -q . ../clone && cd ../clone && git log --format=%s && git status --porcelain`, "two\none"},
	{"sqlite3", testenv.Program("sqlite3"), `sqlite3 d.db 'pragma journal_mode=wal; create table t(n); insert into t values (1), (2);' && sqlite3 d.db 'begin; update t set n=n+1; commit; vacuum; select sum(n) from t;' 'pragma integrity_check;'`, "wal\n5\nok"},
	{"make", testenv.Program("make"), `printf 'all: 1 2 3 4 5 6 7 8\n%%:\n\t@echo $@ > out$@\n' > Makefile && make -s -j4 all && cat out? | wc -l && make -s -j4 -B all && rm out?`, "8"},
	{"npm", testenv.Program("npm"), `npm ci --offline --no-audit --no-fund >/dev/null && node -e 'console.log(require("dep"))' && ls node_modules`, "42\ndep"},
	{"npm, from an archive", testenv.Program("npm"), `npm pack ./dep >/dev/null 2>&1 && mkdir user && cd user && echo '{"name": "user", "version": "1.0.0"}' > package.json && npm install --offline --no-audit --no-fund ../dep-1.0.0.tgz >/dev/null && rm -rf node_modules && npm ci --offline --no-audit --no-fund >/dev/null && node -e 'console.log(require("dep"))' && ls node_modules/dep`, "42\nindex.js\npackage.json"},
	{"pip", testenv.File(systemPip), systemPip + ` install -q --no-index --find-links . --no-cache-dir --disable-pip-version-check --target packages greeting && PYTHONPATH=packages python3 -c 'import greeting; print(greeting.TEXT)'`, "hello"},
	{"go", testenv.Program("go"), `cd prog && go build -o prog . && ./prog`, "built"},
}

// programsBench has what the programs work on.
func programsBench(t *testing.T) *bench {
	t.Helper()
	b := newOverlayBench(t)
	if err := os.Mkdir(filepath.Join(b.dir, "prog"), 0o755); err != nil {
		t.Fatal(err)
	}
	npmProject(b)
	b.write("prog/go.mod", "module prog\n\ngo 1.21\n", 0o644)
	b.write("prog/main.go", "package main\n\nfunc main() { println(\"built\") }\n", 0o644)
	b.write("greeting-1.2.3-py3-none-any.whl", string(greetingWheel(t)), 0o644)
	return b
}

// TestRealProgramsWorkInAnOverlay: and the project stays as it is.
func TestRealProgramsWorkInAnOverlay(t *testing.T) {
	b := programsBench(t)
	flags := append([]string{"-q", "--overlay=keep:w"}, goFlags(t)...)
	before := b.snapshot()
	for _, p := range programsInAnOverlay {
		t.Run(p.name, func(t *testing.T) {
			testenv.Requires(t, p.needs)
			r := b.run(append(flags, "-c", "{ "+p.line+"; } 2>&1")...)
			if got := strings.TrimSuffix(r.stdout, "\n"); r.status != 0 || !strings.HasSuffix(got, p.want) {
				t.Errorf("status %d, got %q, want %q at the end; %s", r.status, got, p.want, r.stderr)
			}
			b.wantSame(before)
			if r := b.run("ws", "discard", "w"); r.status != 0 {
				t.Errorf("discard: %s", r.stderr)
			}
		})
	}
}

// TestRealProgramsWorkUnderRules: the others are tried in package rulefs.
func TestRealProgramsWorkUnderRules(t *testing.T) {
	testenv.Requires(t, testenv.FUSE, testenv.NoRace)
	for _, p := range programsInAnOverlay {
		if p.name == "npm" || p.name == "go" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			testenv.Requires(t, p.needs)
			b := programsBench(t)
			r := b.run("-q", "--policy", patternRules, "-c", "{ "+p.line+"; } 2>&1")
			if got := strings.TrimSuffix(r.stdout, "\n"); r.status != 0 || !strings.HasSuffix(got, p.want) {
				t.Errorf("status %d, got %q, want %q at the end; %s", r.status, got, p.want, r.stderr)
			}
		})
	}
}

// goFlags let a sandbox use this machine's Go, with a cache in which the standard
// library may be.
func goFlags(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT", "GOCACHE").Output()
	if err != nil {
		return nil
	}
	root, cache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"extends":    "default",
		"filesystem": map[string]any{"allowRead": []string{root}, "privateWrite": []string{cache}},
		"env": map[string]any{"set": map[string]string{
			"PATH": filepath.Join(root, "bin") + ":/usr/bin:/bin", "GOCACHE": cache, "CGO_ENABLED": "0", "GOTELEMETRY": "off", "GOFLAGS": "-trimpath",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--policy", string(text)}
}

func greetingWheel(t *testing.T) []byte {
	const info = "greeting-1.2.3.dist-info/"
	return zipped(t,
		file{"greeting.py", "TEXT = 'hello'\n"},
		file{info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.2.3\n"},
		file{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		file{info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	)
}
