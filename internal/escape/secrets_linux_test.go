package escape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// readers are the ways to get at the content of a path.
var readers = []func(path string) ([]byte, error){
	os.ReadFile,
	func(p string) ([]byte, error) { return os.ReadFile("/proc/self/root" + p) },
	func(p string) ([]byte, error) { return os.ReadFile("/proc/self/cwd/" + relative(p)) },
	func(p string) ([]byte, error) { return os.ReadFile(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), p)) },
	func(p string) (data []byte, err error) {
		err = through(p, "readlink", func(l string) error { data, err = os.ReadFile(l); return err })
		return data, err
	},
	func(p string) ([]byte, error) {
		defer os.Remove("readhard")
		if err := os.Link(p, "readhard"); err != nil {
			return nil, err
		}
		return os.ReadFile("readhard")
	},
	func(p string) ([]byte, error) {
		if strings.HasPrefix(p, "/etc/") {
			return nil, errors.New("not the attacker's to open up, if it can")
		}
		if err := os.Chmod(p, 0o644); err != nil {
			return nil, err
		}
		return os.ReadFile(p)
	},
	func(p string) (data []byte, err error) {
		err = onDescriptor(p, func(fd int) error {
			data, err = os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
			return err
		}, unix.O_PATH)
		return data, err
	},
	func(p string) (data []byte, err error) {
		err = onDescriptor(p, func(fd int) error {
			m, err := unix.Mmap(fd, 0, 64, unix.PROT_READ, unix.MAP_PRIVATE)
			data = bytes.Clone(bytes.TrimRight(m, "\x00"))
			return err
		})
		return data, err
	},
	// The name alone may be what matters.
	func(p string) ([]byte, error) {
		entries, err := os.ReadDir(filepath.Dir(p))
		for _, e := range entries {
			if e.Name() == filepath.Base(p) {
				return []byte("listed"), nil
			}
		}
		return nil, err
	},
	func(p string) ([]byte, error) { return []byte("exists"), unix.Access(p, unix.F_OK) },
}

func init() {
	attacks["steal"] = func(args []string) {
		for i, path := range args {
			for j, read := range readers {
				data, err := read(path)
				if err == nil && len(data) > 0 {
					keep(fmt.Sprintf("%d-%d", i, j), append([]byte(path+": "), data...))
				}
			}
		}
	}
}

// secrets are files a home directory may hold that no command needs.
var secrets = []string{
	".ssh/id_ed25519", ".ssh/config", ".ssh/known_hosts",
	".aws/credentials", ".aws/sso/cache/token.json", ".azure/accessTokens.json", ".config/gcloud/credentials.db", ".kube/config",
	".docker/config.json", ".netrc", ".pgpass", ".my.cnf", ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pip/pip.conf",
	".config/gh/hosts.yml", ".config/hub", ".git-credentials", ".config/git/credentials",
	".cargo/credentials.toml", ".cargo/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".gem/credentials", ".bundle/config",
	".local/share/uv/credentials/credentials.toml",
	".gnupg/private-keys-v1.d/key", ".password-store/x.gpg", ".local/share/keyrings/login.keyring",
	".mozilla/firefox/x.default/logins.json", ".mozilla/firefox/x.default/cookies.sqlite",
	".config/google-chrome/Default/Cookies", ".config/google-chrome/Default/Login Data", ".config/chromium/Default/Cookies",
	".config/BraveSoftware/Brave-Browser/Default/Cookies", ".config/microsoft-edge/Default/Cookies", ".thunderbird/x/logins.json",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst", ".viminfo",
	".local/share/fish/fish_history",
	".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/github-copilot/hosts.json",
	".terraform.d/credentials.tfrc.json", ".vault-token", ".config/op/config", ".config/rclone/rclone.conf", ".s3cfg", ".boto",
	".Xauthority", ".config/bailey/bailey.jsonc", ".local/state/bailey/trust.json",
	"src/other/.env", "Documents/letter.txt",
}

// expectNothingRead fails for loot with the secret in it. Names may be there: a
// file that is denied in a visible directory is listed.
func (b *box) expectNothingRead(secret string) {
	b.t.Helper()
	for _, text := range b.looted() {
		if strings.Contains(text, secret) {
			b.t.Errorf("the sandbox read %s", text)
		}
	}
}

func TestSecretsOfTheHomeAreNotRead(t *testing.T) {
	b := newBox(t)
	const secret = "BEGIN SECRET"
	var paths []string
	for _, name := range secrets {
		path := filepath.Join(b.home, name)
		b.write(path, secret)
		must(t, os.Chmod(path, 0o600))
		paths = append(paths, path)
	}
	b.write(b.home+"/.config/bailey/bailey.jsonc", "{} // "+secret+"\n")
	b.attack("steal", paths...)
	b.expectNothingRead(secret)

	// What is neither needed nor in a directory that is: not even its name.
	hidden := []string{paths[0], paths[3], paths[9], b.home + "/.config/gh/hosts.yml", b.home + "/.bash_history"}
	b.attack("steal", hidden...)
	b.expectNoLoot()

	b.policy = `{"filesystem": {"allowRead": ["~/.ssh"]}}`
	b.attack("steal", paths[0])
	b.expectLoot("0-0", "0-1", "0-2", "0-4", "0-7", "0-8", "0-9", "0-10")
}

func TestDeniedPathIsNotRead(t *testing.T) {
	b := newBox(t)
	const secret = "BEGIN SECRET"
	b.write(b.project+"/secrets/deep/token", secret)
	b.write(b.project+"/dot.env", secret)
	paths := []string{b.project + "/secrets/deep/token", b.project + "/dot.env"}
	b.policy = `{"filesystem": {"denyRead": ["secrets", "dot.env"]}}`
	unchanged(t, func() { b.attack("steal", paths...) }, b.project+"/secrets", paths[1])
	b.expectNothingRead(secret)
	for _, line := range []string{
		"mv secrets s; cat s/deep/token", "cp -r --no-preserve=mode secrets loot/s", "tar cf loot/t secrets dot.env", "mv dot.env d; cat d > loot/d",
		"ln dot.env d; cat d > loot/d2", "cat /dev/fd/9 9< dot.env > loot/d3", "find secrets -type f -exec cp {} loot/d4 \\;",
	} {
		b.run("sh", "-c", line)
	}
	b.expectNothingRead(secret)

	b.policy = ""
	b.attack("steal", paths...)
	b.expectLoot("0-0", "1-0", "1-5")
}

func TestRootOnlyFilesOfTheSystemAreNotRead(t *testing.T) {
	b := newBox(t)
	const path = "/etc/shadow"
	b.attack("steal", path)
	for name, text := range b.looted() {
		if strings.Contains(text, ":") && strings.Contains(text, "root:") {
			t.Errorf("the sandbox got %s: %.60q", name, text)
		}
	}
	b.attack("steal", "/etc/passwd")
	b.expectLoot("0-0")
}

// shared are directories of the host that every process may use.
func shared() []string {
	dirs := []string{"/tmp", "/var/tmp", "/dev/shm"}
	if os.Geteuid() == 0 {
		dirs = append(dirs, "/run")
	}
	return dirs
}

func init() {
	attacks["shared"] = func(args []string) {
		for i, path := range args {
			for j, read := range readers {
				if data, err := read(path); err == nil && len(data) > 0 {
					keep(fmt.Sprintf("%d-%d", i, j), data)
				}
			}
			report("create", os.WriteFile(path+".evil", []byte("evil"), 0o644))
			report("overwrite", overwrite(path))
			report("overwrite by root", overwrite("/proc/self/root"+path))
		}
	}
}

func TestSharedDirectoriesOfTheHostAreOutOfReach(t *testing.T) {
	b := newBox(t)
	var paths []string
	for _, dir := range shared() {
		f, err := os.CreateTemp(dir, "escape-")
		must(t, err)
		_, err = f.WriteString("BEGIN SECRET")
		must(t, err)
		must(t, f.Close())
		paths = append(paths, f.Name())
		t.Cleanup(func() {
			_ = os.Remove(f.Name())
			_ = os.Remove(f.Name() + ".evil")
		})
	}
	unchanged(t, func() { b.attack("shared", paths...) }, paths...)
	b.expectNoLoot()
	for _, p := range paths {
		if _, err := os.Lstat(p + ".evil"); err == nil {
			t.Errorf("the sandbox made %s.evil", p)
		}
	}

	b.free("shared", paths...)
	b.expectLoot("0-0", "1-0", "2-0")
	for _, p := range paths {
		if got, _ := os.ReadFile(p); string(got) != "evil" {
			t.Errorf("control: %s is %q", p, got)
		}
	}
}

// launcherMark starts the secret that stands in the launcher's environment.
const launcherMark = "launcher" + "-secret-"

func init() {
	attacks["memory"] = func([]string) {
		// Built at run time, so that this program does not find itself.
		mark := []byte(strings.Join([]string{"launcher", "secret", ""}, "-"))
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		more, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range append(files, more...) {
			data, err := os.ReadFile(f)
			report(f, err)
			search(f, data, mark)
		}
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range append(processes, fmt.Sprintf("/proc/%d", os.Getppid())) {
			if p != fmt.Sprintf("/proc/%d", os.Getpid()) {
				searchMemory(p, mark)
			}
		}
	}
}

func search(where string, data, mark []byte) {
	if i := bytes.Index(data, mark); i >= 0 {
		keep(strings.ReplaceAll(where, "/", "-"), data[i:min(i+64, len(data))])
	}
}

func searchMemory(process string, mark []byte) {
	maps, err := os.ReadFile(process + "/maps")
	report(process+"/maps", err)
	mem, err := os.Open(process + "/mem")
	report(process+"/mem", err)
	if err != nil {
		return
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		from, to, _ := strings.Cut(strings.Fields(line)[0], "-")
		start, _ := strconv.ParseInt(from, 16, 64)
		end, _ := strconv.ParseInt(to, 16, 64)
		if !strings.Contains(line, " rw-p ") || end-start > 64<<20 || start < 0 {
			continue
		}
		data, _ := io.ReadAll(io.NewSectionReader(mem, start, end-start))
		search(process+"/mem", data, mark)
	}
}

func TestEnvironmentOfTheLauncherIsNotRead(t *testing.T) {
	testenv.Requires(t, testenv.NoRace)
	b := newBox(t)
	secret := launcherMark + strconv.Itoa(os.Getpid())
	launch := b.freeCommand("launch", b.project, "", b.program, "attack", "memory")
	launch.Env = append(os.Environ(), "UNRELATED="+secret, "GITHUB_TOKEN="+secret)
	b.runFree(launch)
	b.expectNoLoot()

	// The same search finds it where the launcher can be seen.
	parent := b.freeCommand("parent", "memory")
	parent.Env = append(os.Environ(), "UNRELATED="+secret)
	b.runFree(parent)
	if got := fmt.Sprint(b.looted()); !strings.Contains(got, secret) {
		t.Errorf("control: the search finds nothing")
	}
}
