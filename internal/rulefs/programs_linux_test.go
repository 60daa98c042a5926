package rulefs

import (
	"os/exec"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Programs that people use, on a tree in which there are hidden names. Each script
// ends with a look at what it did.
func TestPrograms(t *testing.T) {
	for _, test := range []struct {
		needs  string
		script string
	}{
		{"cp", `mkdir -p e/d && for i in $(seq 50); do echo $i > e/d/$i; done && ln e/d/1 e/hard && ln -s d/2 e/soft && mkfifo e/pipe && chmod 4711 e/d/3 && touch -d 2001-02-03 e/d/4 &&
			cp -a e f && test "$(cd e && find . | sort | xargs stat -c '%n %f %Y %h %s')" = "$(cd f && find . | sort | xargs stat -c '%n %f %Y %h %s')"`},
		{"mv", `mkdir -p a/b/c && echo x > a/b/c/f && mv a d && mv d/b e && test "$(cat e/c/f)" = x && test ! -e a`},
		{"rm", `mkdir -p t/a/b/c/d t/x && for i in $(seq 300); do echo $i > t/x/$i; done && rm -rf t && test ! -e t`},
		{"rsync", `mkdir src && for i in $(seq 50); do echo $i > src/$i; done && ln src/1 src/hard && ln -s 1 src/soft &&
			rsync -aH src/ dst/ && diff -r src dst && rsync -aH --delete src/ dst/`},
		{"git", `git init -q r && cd r && git config user.email a@b && git config user.name n && for i in $(seq 40); do echo $i > f$i; done &&
			git add . && git commit -qm one && echo y > f1 && git commit -qam two && git gc -q && git fsck --no-progress && cd .. &&
			git clone -q r c && cd c && git log --oneline | wc -l | grep -qx 2 && git status --porcelain | wc -l | grep -qx 0`},
		{"sqlite3", `sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1),(2)' && sqlite3 db 'pragma journal_mode=delete; insert into t values(3)' &&
			test "$(sqlite3 db 'select sum(x) from t; pragma integrity_check')" = "$(printf '6\nok')"`},
		{"make", `printf 'all: $(addprefix o,$(shell seq 30))\no%%:\n\techo $@ > $@\n' > Makefile && make -sj4 && test $(ls o* | wc -l) = 30 && make -q`},
		{"tar", `mkdir s && for i in $(seq 100); do echo $i > s/$i; done && chmod 444 s/7 && tar cf s.tar s && mkdir x && tar xf s.tar -C x && diff -r s x/s`},
		{"go", `export GOFLAGS=-mod=mod GO111MODULE=on GOPROXY=off GOTOOLCHAIN=local && mkdir m && cd m && printf 'module m\ngo 1.21\n' > go.mod &&
			printf 'package main\nfunc main() { println("built") }\n' > main.go && go build -o prog . && ./prog 2>&1 | grep -qx built`},
	} {
		t.Run(test.needs, func(t *testing.T) {
			testenv.Requires(t, testenv.Program(test.needs))
			w := newWorld(t, rule("**/.env", pathrule.None), rule("docs/**/*.md", pathrule.View))
			w.put(t, ".env")
			sh := exec.Command("sh", "-ec", test.script)
			sh.Dir = w.mnt
			if out, err := sh.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
