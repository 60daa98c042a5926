package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// patternRules are path permissions that mounts cannot hold, so that a file system
// of Bailey's own shows the project.
const patternRules = `{"workspace": {"rules": [
	{"pattern": "**/.env", "permission": "none"},
	{"pattern": "private/**/*.md", "permission": "view"}
]}}`

// fileSystem is what may lie between a command and the project. Some are tried in
// long runs only.
type fileSystem struct {
	name  string
	needs []testenv.Requirement
	flags []string
}

var fileSystems = []fileSystem{
	{"overlay", nil, []string{"--overlay=keep:w"}},
	{"rules", []testenv.Requirement{testenv.FUSE}, []string{"--policy", patternRules}},
	{"rules on an overlay", []testenv.Requirement{testenv.FUSE, testenv.Long}, []string{"--overlay=keep:w", "--policy", patternRules}},
}

// suiteBench is a project that every user can reach, with the program of a test
// suite and its settings.
func suiteBench(t *testing.T, program, settings string) (b *bench, flags []string, file string) {
	t.Helper()
	testenv.Requires(t, testenv.NoRace, testenv.Program(program))
	b = keepBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	t.Cleanup(b.openWork)
	base := filepath.Dir(b.dir)
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file = b.write("../suite.toml", settings, 0o644)
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return b, []string{"-q", "--allow-read", filepath.Dir(path), "--allow-read", file}, file
}

// pjdfstestSettings name two users that every Debian has, and wait long enough
// between two calls for the clock of a kernel that ticks a hundred times a second.
const pjdfstestSettings = `
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.012
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
`

// quickGroups are all tests of pjdfstest but one, which makes as many links as a
// file can have.
var quickGroups = strings.Fields(`tests::chmod tests::chown tests::ftruncate tests::link::c tests::link::e tests::link::r tests::link::s tests::link::u
	tests::mkdir tests::mkfifo tests::mknod tests::open tests::posix_fallocate tests::rename tests::rmdir tests::symlink tests::truncate tests::unlink tests::utimensat`)

// differences are the tests of pjdfstest whose result on a file system may be
// another than on the one below it; docs/workspaces.md has the reasons.
var differences = map[string]*regexp.Regexp{
	"overlay":             regexp.MustCompile(`::char$|^link::link_count_max$`),
	"rules":               ruleDifferences,
	"rules on an overlay": ruleDifferences,
}

var ruleDifferences = regexp.MustCompile(`::char$|^link::link_count_max$|` +
	// They do something as another user, who cannot reach a view.
	`::uid_gid_eq_euid_egid$|::unchanged_ctime_failed::|^rename::write_access_required_subdir$|^utimensat::(nobody|write_perm)$|` +
	`^chmod::clear_isgid_bit$|^ftruncate::affected_create_flags_only$|^posix_fallocate::affected_only_create_flags$|` +
	// It gives files away.
	`^link::share_metadata::`)

// TestFilesBehaveAsOnTheFileSystemBelow: an ordinary user's tests run in the
// sandbox. Root's run beside it, in its namespaces and with all capabilities
// there, which nothing in it ever has: most of the suite needs them.
func TestFilesBehaveAsOnTheFileSystemBelow(t *testing.T) {
	b, flags, settings := suiteBench(t, "pjdfstest", pjdfstestSettings)
	suite := []string{"pjdfstest", "-c", settings, "-p", b.dir}
	if testenv.Count(0, 1) == 0 {
		suite = append(suite, quickGroups...)
	}
	below := b.results(flags, suite)
	if len(below) < 300 || count(below, "ok") < 200 {
		t.Fatalf("%d tests, of which %d passed: %v", len(below), count(below, "ok"), below)
	}
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			testenv.Requires(t, fs.needs...)
			above := b.results(slices.Concat(flags, fs.flags), suite)
			if len(above) != len(below) {
				t.Errorf("%d tests, below %d", len(above), len(below))
			}
			for name, want := range below {
				if got := above[name]; got != want && !differences[fs.name].MatchString(name) {
					t.Errorf("%s: got %s, below %s", name, got, want)
				}
			}
		})
	}
}

// results runs pjdfstest in a new sandbox, or beside it for root, and returns what
// became of each test. No workspace is left of it.
func (b *bench) results(flags, suite []string) map[string]string {
	b.t.Helper()
	defer b.run("ws", "discard", "w")
	if os.Geteuid() != 0 {
		return outcomes(b.run(slices.Concat(flags, []string{"--"}, lookedUp(b.t, suite))...).stdout)
	}
	if got := b.run(slices.Concat(flags, []string{"--keep=suite", "--", "true"})...); got.status != 0 {
		b.t.Fatalf("%+v", got)
	}
	defer b.run("box", "stop", "suite")
	pid := strconv.Itoa(b.boxes()["suite"].Pid)
	return outcomes(b.runProgram(slices.Concat([]string{"nsenter", "-t", pid, "-U", "-m", "-p", "--wd=" + b.dir}, lookedUp(b.t, suite))...).stdout)
}

// lookedUp is a command by the path of its program.
func lookedUp(t testing.TB, argv []string) []string {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]string{path}, argv[1:])
}

var outcomeLine = regexp.MustCompile(`(?m)^(\S+) +(ok|FAILED|skipped)$`)

func outcomes(out string) map[string]string {
	all := make(map[string]string)
	for _, line := range outcomeLine.FindAllStringSubmatch(out, -1) {
		all[line[1]] = line[2]
	}
	return all
}

func count(outcomes map[string]string, want string) (n int) {
	for _, got := range outcomes {
		if got == want {
			n++
		}
	}
	return n
}

// fsxSettings have every operation that fsx knows. It waits for the disk rarely,
// which is slow and shows little; in long runs also after each write to a memory
// map.
const fsxSettings = `
nomsyncafterwrite = %t
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 0.02
fdatasync = 0.02
posix_fallocate = 1
punch_hole = 1
sendfile = 1
posix_fadvise = 1
copy_file_range = 1
`

// TestRandomOperationsReadWhatWasWritten: fsx compares everything that it reads with
// what it wrote, through calls and through memory maps.
func TestRandomOperationsReadWhatWasWritten(t *testing.T) {
	b, flags, settings := suiteBench(t, "fsx", fmt.Sprintf(fsxSettings, testenv.Count(0, 1) == 0))
	operations := strconv.Itoa(testenv.Count(5_000, 100_000))
	for i, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			testenv.Requires(t, fs.needs...)
			name := fmt.Sprintf("file%d", i)
			b.write(name, "of the project\n", 0o644) // so that an overlay copies it
			fsx := lookedUp(t, []string{"fsx", "-q", "-f", settings, "-N", operations, "-S", strconv.Itoa(i + 1), "-P", ".", name})
			got := b.run(slices.Concat(flags, fs.flags, []string{"--"}, fsx)...)
			if out := got.stdout + got.stderr; got.status != 0 || !strings.Contains(out, "A-OK") {
				t.Errorf("status %d:\n%s", got.status, out)
			}
			b.run("ws", "discard", "w")
		})
	}
}

func TestKeysAreNotListed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.File("/proc/keys"))
	b := newBench(t)
	for _, name := range []string{"/proc/keys", "/proc/key-users"} {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if got := b.run("--", "cat", name); got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, "Permission denied") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
