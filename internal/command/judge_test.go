package command

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// rules compiles entries of command.deny, and of command.allow with a leading
// "+", without the built-in list.
func rules(entries ...string) *Rules {
	l := List{Reach: ReachArgv}
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e, "+"); ok {
			l.Allow = append(l.Allow, Entry{Text: text})
		} else {
			l.Deny = append(l.Deny, Entry{Text: e})
		}
	}
	return l.Compile()
}

// run is an exec of a program found on PATH, as a shell does it.
func run(line string) Exec {
	argv := strings.Fields(line)
	e := Exec{Argv: argv}
	if len(argv) > 0 {
		e.Path = argv[0]
		if !strings.Contains(e.Path, "/") {
			e.Path = "/usr/bin/" + e.Path
		}
		e.Real = e.Path
	}
	return e
}

func TestDeniedWordsAreFoundHoweverTheyAreWritten(t *testing.T) {
	r := rules("git push", "gh pr create", "rm", "kubectl delete", "docker run --privileged", "npm publish", "cargo publish",
		"frob push", "systemctl reboot", "pip install", "ruby", "./gradlew publish", "/opt/tool/bin/deploy", "twine upload",
		"rm -rf", "dd if=", "docker --pid=host", "gh * delete", "apt-get install", "go generate", "make deploy", "git checkout --")
	for _, line := range []string{
		"git push",
		"git push origin main",
		"git -C . push",
		"git -c a=b --git-dir=x push",
		"git --git-dir x --work-tree y push",
		"git --no-pager -p --bare push",
		"git --an-option-of-tomorrow push",
		"git --an-option-of-tomorrow with-a-value push",
		"git -- push",
		"git -c alias.p=push p",
		"git -C . -c alias.p=push --no-pager p origin",
		"/usr/bin/git push",
		"./git push",
		"../../usr/bin/git push",
		"git-push",
		"git-push origin main",
		"/usr/lib/git-core/git-push origin",
		"git.exe push",

		"gh pr create",
		"gh -R owner/repo pr create",
		"gh pr --repo owner/repo create",
		"gh pr -R owner/repo create --fill",
		"gh repo delete owner/repo",

		"kubectl -n prod delete pod x",
		"kubectl --namespace=prod delete pod x",
		"kubectl --context a --as b delete pod x",
		"kubectl -nprod delete pod x",

		"docker run --privileged image",
		"docker --debug run --privileged image",
		"docker -H tcp://x run --name a --privileged image",
		"docker run --privileged=true image",
		"docker run --pid=host image",
		"docker run --pid host image",

		"npm publish",
		"npm --prefix dir publish",
		"npm --registry=x publish --access public",
		"npm-cli.js publish",
		"cargo publish",
		"cargo +nightly publish",
		"cargo +nightly -q --config x=y publish",
		"cargo-publish",
		"go -C dir generate ./...",
		"apt-get -y -o A=b install x",
		"make -C dir V=1 deploy",
		"systemctl --user --no-wall -H host reboot",
		"pip install x",
		"pip3 install x",
		"pip3.11 -q install x",
		"python -m pip install x",
		"python3.11 -I -W ignore -m pip install x",
		"python3 -m twine upload dist",
		"ruby",
		"ruby3.1 script.rb",

		"frob push",
		"frob --verbose push",
		"frob --dir there push",
		"frob -x -y value -z push",
		"frob-push",

		"rm x",
		"rm -rf x",
		"dd of=x if=y",
		"git checkout -- file",
		"git checkout main -- file",

		"busybox rm x",
		"/bin/busybox.static rm x",
		"busybox busybox rm x",
		"toybox rm x",
		"coreutils --coreutils-prog=rm x",
		"coreutils rm x",

		"/lib64/ld-linux-x86-64.so.2 /usr/bin/git push",
		"/lib64/ld-linux-x86-64.so.2 --argv0 x --library-path /lib /usr/bin/git push",
		"/lib/ld-musl-x86_64.so.1 -- /usr/bin/git push",
		"/lib/ld.so /bin/busybox rm",
		"/lib/ld.so --argv0 rm /bin/busybox x",

		"node /usr/lib/node_modules/npm/bin/npm-cli.js publish",
		"node --require x /usr/bin/npm publish",
		"sh /usr/bin/npm publish",
		"bash -x -o pipefail /usr/bin/npm publish",

		"./gradlew publish",
		"/work/gradlew --info publish",
		"/opt/tool/bin/deploy now",
	} {
		if v := r.Judge(run(line)); v.Allowed {
			t.Errorf("%q: got allowed, want a refusal", line)
		}
	}
}

func TestWhatIsNotDeniedRuns(t *testing.T) {
	r := rules("git push", "gh pr create", "rm", "kubectl delete", "docker run --privileged", "npm publish", "cargo publish",
		"systemctl reboot", "pip install", "/opt/tool/bin/deploy", "ssh", "shutdown", "docker --pid=host", "git checkout --",
		"dd if=", "foo -rf", "scripts/release", "apt install", "git credential-store")
	for _, line := range []string{
		"git pull",
		"git pushx",
		"git log --grep push",
		"git checkout push",
		"git commit -m push",
		"git -C push log",
		"git -c push status",
		"git --git-dir push status",
		"git remote add push url",
		"git stash push",
		"git-fetch push",
		"git-lfs pull",
		"git checkout push",
		"git credential fill",
		"pushgit push",
		"gitk push",
		"echo git push",
		"grep -r git push",
		"printf git-push",

		"gh pr list",
		"gh issue create",
		"gh pr view create",
		"kubectl get pod delete",
		"kubectl -n delete get pods",
		"docker run image",
		"docker ps --privileged",
		"docker run image -- --privileged",
		"docker run --pid container:x image",
		"npm run publish",
		"npm pack",
		"cargo +publish build",
		"cargo build",
		"systemctl status reboot",
		"systemctl --type reboot list-units",
		"pip download install",
		"python3 -c print(1) install",
		"dd of=x bs=1",
		"foo -r x",
		"foo -- -rf",
		"apt-get install x",

		"ssh-keygen -t ed25519",
		"ssh-add",
		"shutdown.sh",
		"/opt/other/bin/deploy now",
		"release",
		"/x/other/release",

		"busybox ls rm",
		"busybox --help",
		"toybox ls",
		"bash -c rm git push",
		"bash -lc rm git push",
		"node -e npm publish",
		"node --eval npm publish",
		"perl -pi -e s/a/b/ git push",
		"python3 script.py rm",
		"/lib64/ld-linux-x86-64.so.2 --list /usr/bin/ls",
		"env git push",
		"xargs git push",
	} {
		if v := r.Judge(run(line)); !v.Allowed {
			t.Errorf("%q: got %v, want allowed", line, v)
		}
	}
}

func TestEveryNameOfAProgramCounts(t *testing.T) {
	r := rules("git push", "rm", "vi", "shutdown", "insmod", "cargo", "python", "+python3", "+ls")
	for _, c := range []struct {
		name string
		exec Exec
		want bool
	}{
		{"argv[0] lies", Exec{Path: "/usr/bin/git", Real: "/usr/bin/git", Argv: []string{"foo", "push"}}, false},
		{"argv[0] tells", Exec{Path: "/tmp/x", Real: "/tmp/x", Argv: []string{"git", "push"}}, false},
		{"argv[0] of a login shell", Exec{Path: "/tmp/x", Argv: []string{"-git", "push"}}, false},
		{"argv[0] is empty", Exec{Path: "/usr/bin/git", Argv: []string{"", "push"}}, false},
		{"no argv", Exec{Path: "/usr/bin/rm"}, false},
		{"symbolic link", Exec{Path: "/tmp/x", Real: "/usr/bin/git", Argv: []string{"x", "push"}}, false},
		{"only the real path is known", Exec{Real: "/usr/bin/git", Argv: []string{"x", "push"}}, false},
		{"copy", Exec{Path: "/tmp/g2", Real: "/tmp/g2", Argv: []string{"./g2", "push"}, Same: []string{"git"}}, false},
		{"copy, other words", Exec{Path: "/tmp/g2", Real: "/tmp/g2", Argv: []string{"./g2", "pull"}, Same: []string{"git"}}, true},
		{"copy under an allowed name", Exec{Path: "/tmp/ls", Real: "/tmp/ls", Argv: []string{"ls"}, Same: []string{"rm"}}, false},
		{"denied program under an allowed argv[0]", Exec{Path: "/bin/rm", Real: "/bin/rm", Argv: []string{"ls"}}, false},
		{"copy loaded under a name", Exec{Path: "/lib/x", Argv: []string{"x", "/usr/bin/git", "push"}, Same: []string{"ld-linux-x86-64.so.2"}}, false},
		{"git-push is a link to git", Exec{Path: "/usr/lib/git-core/git-push", Real: "/usr/bin/git", Argv: []string{"git-push", "origin"}}, false},
		{"a remote called push", Exec{Path: "/usr/lib/git-core/git-fetch", Real: "/usr/bin/git", Argv: []string{"git-fetch", "push"}}, true},

		{"ls of busybox", Exec{Path: "/bin/ls", Real: "/bin/busybox", Argv: []string{"ls"}, Same: []string{"busybox", "rm"}}, true},
		{"rm of busybox", Exec{Path: "/bin/rm", Real: "/bin/busybox", Argv: []string{"rm"}, Same: []string{"busybox", "rm"}}, false},
		{"hard-linked ls of busybox", Exec{Path: "/bin/ls", Real: "/bin/ls", Argv: []string{"ls", "rm"}, Same: []string{"busybox", "rm"}}, true},
		{"copied busybox called rm", Exec{Path: "/tmp/b", Real: "/tmp/b", Argv: []string{"rm"}, Same: []string{"busybox", "rm"}}, false},
		{"copied busybox given rm", Exec{Path: "/tmp/b", Real: "/tmp/b", Argv: []string{"busybox", "rm"}, Same: []string{"busybox"}}, false},
		{"systemctl itself", Exec{Path: "/bin/systemctl", Real: "/bin/systemctl", Argv: []string{"systemctl", "status"}, Same: []string{"shutdown", "systemctl"}}, true},
		{"lsmod", Exec{Path: "/sbin/lsmod", Real: "/bin/kmod", Argv: []string{"lsmod"}, Same: []string{"insmod"}}, true},
		{"insmod", Exec{Path: "/sbin/insmod", Real: "/bin/kmod", Argv: []string{"insmod"}}, false},
		{"rustc of rustup", Exec{Path: "/r/bin/rustc", Real: "/r/bin/rustup", Argv: []string{"rustc"}, Same: []string{"cargo"}}, true},

		{"editor behind an alternative", Exec{Path: "/usr/bin/vi", Real: "/usr/bin/vim.basic", Argv: []string{"vi"}}, false},
		{"link to it", Exec{Path: "/tmp/x", Real: "/usr/bin/vim.basic", Argv: []string{"x"}, Same: []string{"vi"}}, false},
		{"denied name of an allowed file", Exec{Path: "/usr/bin/python", Real: "/usr/bin/python3.11", Argv: []string{"python"}, Same: []string{"python", "python3"}}, false},
		{"allowed name of a denied file", Exec{Path: "/usr/bin/python3", Real: "/usr/bin/python3.11", Argv: []string{"python3"}, Same: []string{"python", "python3"}}, true},
	} {
		if got := r.Judge(c.exec); got.Allowed != c.want {
			t.Errorf("%s: got %v, want allowed %v", c.name, got, c.want)
		}
	}
}

func TestProgramsHiddenTooDeeplyAreRefused(t *testing.T) {
	r := rules("rm")
	for n, want := range map[int]bool{1: true, maxInside - 1: true, maxInside: false, 1000: false} {
		argv := append(slices.Repeat([]string{"busybox"}, n), "ls")
		if got := r.Judge(Exec{Path: "/bin/busybox", Argv: argv}); got.Allowed != want {
			t.Errorf("%d deep: got %v, want allowed %v", n, got, want)
		}
	}
}

func TestScriptsAreJudgedWithTheirInterpreters(t *testing.T) {
	r := rules("git push", "npm publish", "awk", "frob one /tmp/x a")
	for _, c := range []struct {
		name string
		exec Exec
		want bool
	}{
		{"npm is a script", Exec{
			Path: "/usr/bin/npm", Real: "/usr/lib/npm/bin/npm-cli.js", Argv: []string{"npm", "publish"},
			Interpreters: []Interpreter{{Line: "#!/usr/bin/env node"}},
		}, false},
		{"git as an interpreter", Exec{Path: "/tmp/x", Argv: []string{"x"}, Interpreters: []Interpreter{{Line: "#! /usr/bin/git\tpush \n"}}}, false},
		{"git without the word", Exec{Path: "/tmp/push", Argv: []string{"push"}, Interpreters: []Interpreter{{Line: "#!/usr/bin/git"}}}, true},
		{"the argument is one word", Exec{Path: "/tmp/x", Argv: []string{"x"}, Interpreters: []Interpreter{{Line: "#!/usr/bin/git push origin"}}}, true},
		{"a denied interpreter", Exec{Path: "/tmp/x", Interpreters: []Interpreter{{Line: "/usr/bin/awk -f"}}}, false},
		{"behind a link", Exec{Path: "/tmp/x", Interpreters: []Interpreter{{Line: "/tmp/a -f", Real: "/usr/bin/awk"}}}, false},
		{"the script and its words stand behind", Exec{Path: "/tmp/x", Argv: []string{"y", "a"}, Interpreters: []Interpreter{{Line: "/bin/frob one"}}}, false},
		{"a copy", Exec{Path: "/tmp/x", Interpreters: []Interpreter{{Line: "/tmp/a -f", Same: []string{"awk"}}}}, false},
		{"two deep", Exec{Path: "/tmp/x", Interpreters: []Interpreter{{Line: "/tmp/y"}, {Line: "/usr/bin/awk -f"}}}, false},
		{"an ordinary script", Exec{Path: "/tmp/x", Argv: []string{"x", "git", "push"}, Interpreters: []Interpreter{{Line: "#!/bin/sh"}}}, true},
		{"a line with nothing in it", Exec{Path: "/tmp/x", Argv: []string{"x"}, Interpreters: []Interpreter{{Line: "#!"}}}, true},
	} {
		if got := r.Judge(c.exec); got.Allowed != c.want {
			t.Errorf("%s: got %v, want allowed %v", c.name, got, c.want)
		}
	}
}

func TestTheMoreSpecificEntryWinsAndAllowWinsATie(t *testing.T) {
	for _, c := range []struct {
		entries []string
		line    string
		want    bool
	}{
		{[]string{"git push", "+git push origin docs"}, "git push origin docs", true},
		{[]string{"git push", "+git push origin docs"}, "git -C . push origin docs --tags", true},
		{[]string{"git push", "+git push origin docs"}, "git push origin main", false},
		{[]string{"git push", "+git push origin docs"}, "git push --force origin docs", false},
		{[]string{"git push", "+git push origin docs"}, "git --unknown push origin docs", false},
		{[]string{"git push", "+git"}, "git push", false},
		{[]string{"git", "+git status"}, "git status", true},
		{[]string{"git", "+git status"}, "git -C dir status", true},
		{[]string{"git", "+git status"}, "git log", false},
		{[]string{"git push", "+git push"}, "git push", true},
		{[]string{"docker --privileged", "+docker run"}, "docker run --privileged x", true},
		{[]string{"docker run --privileged", "+docker run"}, "docker run --privileged x", false},
		{[]string{"git push --force", "+git push --force"}, "git push origin x --force", true},
		{[]string{"python", "+python3"}, "python3 x", true},
		{[]string{"python", "+python3"}, "python3.11 x", true},
		{[]string{"python3", "+python"}, "python3 x", false},
		{[]string{"mkfs", "+mkfs.vfat"}, "mkfs.vfat x", true},
		{[]string{"mkfs", "+mkfs.vfat"}, "mkfs.ext4 x", false},
		{[]string{"make", "+/usr/bin/make"}, "/usr/bin/make all", true},
		{[]string{"make", "+/usr/bin/make"}, "/tmp/make all", false},
		{[]string{"git"}, "git-lfs pull", false},
		{[]string{"docker"}, "docker-compose up", false},
		{[]string{"foo"}, "foo-bar", true},
		{[]string{"foo bar"}, "foo-bar", false},
		{[]string{"git push *"}, "git push", false},
		{[]string{"git push", "+git push * docs"}, "git push fork docs", true},
		{[]string{"git push", "+git push * docs"}, "git push fork main", false},
	} {
		if got := rules(c.entries...).Judge(run(c.line)); got.Allowed != c.want {
			t.Errorf("%q: %q: got %v, want allowed %v", c.entries, c.line, got, c.want)
		}
	}
}

func TestOptionsOfARuleAreFoundInAnyForm(t *testing.T) {
	for _, c := range []struct {
		rule, line string
		want       bool
	}{
		{"rm -rf", "rm -rf x", false},
		{"rm -rf", "rm -fr x", false},
		{"rm -rf", "rm -r x -f", false},
		{"rm -rf", "rm -vrf x", false},
		{"rm -rf", "rm -r x", true},
		{"rm -rf", "rm -r -- -f", true},
		{"git push -f", "git push origin main -f", false},
		{"git push -f", "git push -uf origin main", false},
		{"git push -f", "git push --follow-tags", true},
		{"git push --force", "git push origin --force", false},
		{"git push --force", "git push --force-with-lease", true},
		{"git push --force", "git push origin -- --force", true},
		{"terraform apply -auto-approve", "terraform -chdir=x apply -auto-approve", false},
		{"terraform apply -auto-approve", "terraform apply -out=plan", true},
		{"docker -v=/:*", "docker run -v /:/host x", false},
		{"docker -v=/:*", "docker run -v/:/host x", false},
		{"docker -v=/:*", "docker run -v=/:/host x", false},
		{"docker -v=/:*", "docker run -v /home:/host x", true},
		{"docker run -v /:/", "docker run -it -v /:/ x", false},
		{"docker run -v /:/", "docker run --name x -v /:/ x", false},
		{"docker run -v /:/", "docker run -v /x:/ x", true},
		{"dd if=", "dd of=y if=x", false},
		{"dd if=/dev/*", "dd of=y if=/dev/sda", false},
		{"dd if=/dev/*", "dd of=y if=x", true},
		{"curl --data=", "curl --data x y", false},
		{"curl --data=", "curl y --data=x", false},
		{"curl --data=", "curl y", true},
	} {
		if got := rules(c.rule).Judge(run(c.line)); got.Allowed != c.want {
			t.Errorf("%q: %q: got %v, want allowed %v", c.rule, c.line, got, c.want)
		}
	}
}

func TestReachSaysWhichRulesFollow(t *testing.T) {
	l := List{Deny: []Entry{{Text: "rm"}, {Text: "git push"}}, SSH: &SSH{}}
	for _, c := range []struct {
		reach         Reach
		rm, push, ssh bool
	}{
		{ReachOff, true, true, true},
		{ReachPath, false, true, true},
		{ReachArgv, false, false, false},
		{"", false, false, false},
	} {
		l.Reach = c.reach
		r := l.Compile()
		for line, want := range map[string]bool{"rm x": c.rm, "git push": c.push, "ssh host": c.ssh, "git pull": true} {
			if got := r.Judge(run(line)); got.Allowed != want {
				t.Errorf("%s: %q: got %v, want allowed %v", c.reach, line, got, want)
			}
			if line == "git pull" {
				continue
			}
			if got := r.Typed(strings.Fields(line), nil); got.Allowed {
				t.Errorf("%s: typed %q: got allowed, want a refusal whatever the reach", c.reach, line)
			}
		}
	}
}

func TestPolicyIsReadWithItsPlaces(t *testing.T) {
	p, err := policy.Parse("p.jsonc", []byte(`{
  "command": {"deny": ["git push"], "allow": ["git push origin docs"], "runtimeExecPolicy": "argv"},
  "ssh": {"allowedHosts": ["*.example.com"], "inheritDeny": true}
}`))
	if err != nil {
		t.Fatal(err)
	}
	r := FromPolicy(*p).Compile()
	got := r.Judge(run("git push origin main"))
	want := Verdict{
		Command: "git push origin main", Key: "command.deny", Rule: "git push", Where: "p.jsonc:2:24",
		Fix: "remove the entry, or add a longer one to command.allow",
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for line, want := range map[string]bool{
		"git push origin docs": true, "shutdown now": false, "ssh a.example.com": true, "ssh example.com": false, "ls": true,
	} {
		if got := r.Judge(run(line)); got.Allowed != want {
			t.Errorf("%q: got %v, want allowed %v", line, got, want)
		}
	}
	off := false
	p.Command.UseDefaults = &off
	if v := FromPolicy(*p).Compile().Judge(run("shutdown now")); !v.Allowed {
		t.Errorf("without the built-in list: got %v, want allowed", v)
	}
	if l := FromPolicy(policy.Policy{}); l.Reach != ReachArgv || !l.Defaults || l.SSH != nil {
		t.Errorf("an empty policy: got %+v, want the built-in list, and nothing about ssh", l)
	}
}

func TestEntriesThatCannotMatchAreNamed(t *testing.T) {
	l := List{Deny: []Entry{
		{Text: "git push"},
		{Text: "curl x | sh", Where: "p:1:2"},
		{Text: "a; b"},
		{Text: "*"},
		{Text: "mkfs.*"},
		{Text: `git commit -m "x"`},
		{Text: "curl http://x/?a=1&b=2"},
		{Text: "git push *"},
	}}
	got := l.Warnings()
	want := []string{`"curl x | sh" (p:1:2)`, `"a; b"`, `"*"`, `"mkfs.*"`, `"git commit -m \"x\""`}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %d warnings", got, len(want))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("got %q, want one about %s", got[i], want[i])
		}
	}
}

func TestProgramsListsWhatRulesAreAbout(t *testing.T) {
	got := strings.Join(rules("git push", "git", "/opt/x/tool run", "/opt/x/rm", "+git status", "rm").Programs(), " ")
	for _, want := range []string{"git", "rm", "/opt/x/tool", "/opt/x/rm", "busybox"} {
		if n := strings.Count(" "+got+" ", " "+want+" "); n != 1 {
			t.Errorf("got %q %d times in %s, want once", want, n, got)
		}
	}
}

func TestRefusalsCannotGarbleATerminal(t *testing.T) {
	v := rules("git push").Judge(Exec{Path: "git", Argv: []string{"git", "push", "\x1b[2J\xff\n", strings.Repeat("x", 1<<16)}})
	if s := v.String(); v.Allowed || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) || len(s) > 500 || !utf8.ValidString(v.Command) {
		t.Errorf("got %q, want one short printable line", s)
	}
}
