package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// guest is who logs in at the site. A server of ssh that is root wants to become
// others, which cannot be done in the world, so it is this user to begin with.
const (
	guest   = "guest"
	guestID = 4242
	sshd    = "/usr/sbin/sshd"
)

// sshSite is a site with servers of ssh on ports 22 and 2222.
type sshSite struct {
	*site
	guestHome string
	config    string // of the server
	captured  string // of the client
	connected string // of the client, by way of a program that asks with CONNECT
	socks     string // and one that asks with SOCKS
	serving   sync.WaitGroup
}

func atSSHSite(t *testing.T, test func(t *testing.T, s *sshSite)) {
	testenv.Requires(t, testenv.File(sshd), testenv.Program("ssh"), testenv.Program("ssh-keygen"), testenv.Program("nc"))
	atSite(t, func(t *testing.T, inner *site) {
		s := &sshSite{site: inner, guestHome: filepath.Join(inner.home, guest)}
		if err := os.Mkdir(s.guestHome, 0o700); err != nil {
			t.Fatal(err)
		}
		s.addGuest(t)
		s.configure(t)
		t.Cleanup(s.serving.Wait) // the listeners are closed before
		for _, port := range []string{"22", "2222"} {
			l := s.door(t, port)
			s.serving.Go(func() { s.serveSSH(t, l) })
		}
		test(t, s)
	})
}

// addGuest makes the user known in the world.
func (s *sshSite) addGuest(t *testing.T) {
	t.Helper()
	known, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.home, "passwd")
	line := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", guest, guestID, guestID, s.guestHome)
	if err := os.WriteFile(file, append(known, line...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
}

// configure makes keys for both sides, and lets them know each other.
func (s *sshSite) configure(t *testing.T) {
	t.Helper()
	hostKey, userKey := filepath.Join(s.home, "host_key"), filepath.Join(s.dir, "user_key")
	for _, key := range []string{hostKey, userKey} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.config = filepath.Join(s.home, "sshd_config")
	settings := "HostKey " + hostKey + "\nAuthorizedKeysFile " + userKey + ".pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n" +
		"PidFile none\nSubsystem sftp internal-sftp\nLogLevel ERROR\n"
	if err := os.WriteFile(s.config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(hostKey + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	known := ""
	for _, host := range []string{grantedHost, refusedHost} {
		known += fmt.Sprintf("%s,[%s]:2222 %s", host, host, public)
	}
	settings = "User " + guest + "\nIdentityFile " + userKey + "\nIdentitiesOnly yes\nBatchMode yes\nStrictHostKeyChecking yes\nUserKnownHostsFile " +
		s.write("known_hosts", known, 0o644) + "\n"
	s.captured = s.write("captured", settings, 0o644)
	s.connected = s.write("connected", settings+"ProxyCommand nc -X connect -x ${http_proxy#http://} %h %p\n", 0o644)
	s.socks = s.write("socks", settings+"ProxyCommand nc -X 5 -x ${http_proxy#http://} %h %p\n", 0o644)
}

// serveSSH starts a server for each connection.
func (s *sshSite) serveSSH(t *testing.T, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		socket, err := c.(*net.TCPConn).File()
		c.Close()
		if err != nil {
			t.Error(err)
			return
		}
		var log bytes.Buffer
		server := exec.Command(sshd, "-i", "-e", "-f", s.config)
		server.Stdin, server.Stdout, server.Stderr = socket, socket, &log
		server.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: guestID, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: guestID, HostID: 0, Size: 1}},
		}
		s.serving.Go(func() {
			defer socket.Close()
			if err := server.Run(); log.Len() > 0 {
				t.Logf("%v: %s", err, log.String())
			}
		})
	}
}

// ways tries a client captured, and by way of programs that know of proxies.
// argv is given the settings of ssh.
func (s *sshSite) ways(t *testing.T, c client, argv func(settings, host string) []string) {
	name := c.name
	try := func(settings string, variables bool) {
		c.name = name + ", " + filepath.Base(settings)
		c.argv = func(host string) []string { return argv(settings, host) }
		s.tries(t, c, variables)
	}
	try(s.captured, false)
	c.fix = `ssh.allowedHosts: "` + refusedHost + `"`
	try(s.connected, true)
	try(s.socks, true)
}

// bySSH grants the host to ssh, and says nothing about commands.
const bySSH = `"rules": [{"host": "` + grantedHost + `", "schemes": ["ssh"], "action": "allow"}]`

func TestSSHAndWhatUsesItReachGrantedHosts(t *testing.T) {
	testenv.Requires(t, testenv.Program("scp"), testenv.Program("sftp"), testenv.Program("rsync"), testenv.Program("git"))
	atSSHSite(t, func(t *testing.T, s *sshSite) {
		s.write("here", "some text\n", 0o644)
		s.ways(t, client{name: "ssh", network: bySSH, works: prints("hello guest\n")}, func(settings, host string) []string {
			return []string{"ssh", "-F", settings, host, "echo hello $(id -un)"}
		})
		for name, script := range map[string]string{
			"scp":   `scp -q -F "$0" here "$1:there" && scp -q -F "$0" "$1:there" back`,
			"sftp":  `printf 'put here there\nget there back\n' | sftp -q -F "$0" -b - "$1"`,
			"rsync": `rsync -e "ssh -F $0" here "$1:there" && rsync -e "ssh -F $0" "$1:there" back`,
		} {
			s.ways(t, client{name: name, network: bySSH, works: s.leaves(map[string]string{"back": "some text\n"})}, func(settings, host string) []string {
				return []string{"sh", "-c", script, settings, host}
			})
		}
		s.repository(t)
		s.ways(t, client{name: "git", network: bySSH, works: s.leaves(map[string]string{"copy/here": "some text\n"})}, func(settings, host string) []string {
			os.RemoveAll(filepath.Join(s.dir, "copy"))
			s.git(t, s.guestHome, "init", "-q", "--bare", "-b", "main", "repository.git")
			script := `export GIT_SSH_COMMAND="ssh -F $0"; git push -q "$1:repository.git" main && git clone -q "$1:repository.git" copy`
			return []string{"sh", "-c", script, settings, host}
		})
	})
}

// repository makes the project one, with a commit.
func (s *sshSite) repository(t *testing.T) {
	t.Helper()
	for _, argv := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "here"},
		{"-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-qm", "here"},
	} {
		s.git(t, s.dir, argv...)
	}
}

func TestRemotesByTheirGroupOnAnyPortOfSSH(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"), testenv.Program("curl"))
	atSSHSite(t, func(t *testing.T, s *sshSite) {
		s.write("here", "some text\n", 0o644)
		s.repository(t)
		s.git(t, s.guestHome, "init", "-q", "--bare", "-b", "main", "repository.git")
		url := "ssh://" + grantedHost + ":2222" + s.guestHome + "/repository.git"
		s.git(t, s.dir, "remote", "add", "origin", url)
		s.vars["GIT_SSH_COMMAND"] = "ssh -F " + s.captured
		policy := s.policy(`"allowedDomains": ["@git-remotes"]`)
		if got := s.under(policy, "git", "push", "-q", "origin", "main"); got.status != 0 {
			t.Errorf("%+v", got)
		}
		got := s.under(policy, "curl", "-sS", "--max-time", "20", "http://"+grantedHost+":2222/")
		if !strings.Contains(got.stdout+got.stderr, "not for this protocol") {
			t.Errorf("another protocol: %+v", got)
		}
		s.heard()
		for _, argv := range [][]string{
			{"ssh", "-F", s.captured, grantedHost, "true"}, // port 22 is not that of the remote
			{"git", "push", "-q", strings.Replace(url, grantedHost, refusedHost, 1), "main"},
		} {
			if got := s.under(policy, argv...); got.status == 0 || !strings.Contains(got.stderr, "denied: connect ") {
				t.Errorf("%q: %+v", argv, got)
			}
			s.wasNotDisturbed(t)
		}
	})
}

func TestSSHIsHeldToItsHostsAndCommands(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"), testenv.Program("scp"), testenv.Program("rsync"))
	atSSHSite(t, func(t *testing.T, s *sshSite) {
		s.write("here", "some text\n", 0o644)
		s.repository(t)
		s.git(t, s.guestHome, "clone", "-q", "--bare", s.dir, "repository.git")
		s.vars["GIT_SSH_COMMAND"] = "ssh -F " + s.captured
		alias := s.write("alias", "Host "+grantedHost+"\nHostName "+refusedHost+"\nInclude "+s.captured+"\n", 0o644)
		proxy := fmt.Sprintf("127.0.0.1:%d", spec.GateProxyPort)
		s.ssh = `"allowedHosts": ["*.example"], "deniedHosts": ["` + refusedHost + `"], "allowedCommands": ["echo", "rsync", "git-upload-pack"]`
		for _, c := range []struct {
			name   string
			argv   []string
			denied string // what is said of it; empty: it is allowed
		}{
			{"a listed command", []string{"ssh", "-F", s.captured, grantedHost, "echo", "hello"}, ""},
			{"a listed one of rsync's", []string{"rsync", "-e", "ssh -F " + s.captured, "here", grantedHost + ":there"}, ""},
			{"a listed one of git's", []string{"git", "clone", "-q", grantedHost + ":repository.git", "copy"}, ""},
			{"a command that is not listed", []string{"ssh", "-F", s.captured, grantedHost, "touch", "x"}, "ssh.allowedCommands"},
			{"one behind a listed one", []string{"ssh", "-F", s.captured, grantedHost, "echo; touch x"}, "ssh.allowedCommands"},
			{"one of scp's", []string{"scp", "-F", s.captured, "here", grantedHost + ":there"}, "ssh.allowedCommands"},
			{"one of git's", []string{"git", "push", "-q", grantedHost + ":repository.git", "main:other"}, "ssh.allowedCommands"},
			{"a denied host", []string{"ssh", "-F", s.captured, refusedHost, "echo", "hello"}, "ssh.deniedHosts"},
			{"a denied host by an option", []string{"ssh", "-F", s.captured, "-o", "HostName=" + refusedHost, grantedHost, "echo", "hello"}, "ssh.deniedHosts"},
			{"a denied host by the settings", []string{"ssh", "-F", alias, grantedHost, "echo", "hello"}, "connect " + refusedHost},
			{"a denied host by another program", []string{"nc", "-w", "20", refusedHost, "22"}, "connect " + refusedHost},
			{"a denied host by a proxy", []string{"nc", "-w", "20", "-X", "connect", "-x", proxy, refusedHost, "22"}, "connect " + refusedHost},
			{"another port", []string{"ssh", "-F", s.captured, "-p", "2222", grantedHost, "echo", "hello"}, "connect " + grantedHost + ":2222"},
		} {
			t.Run(c.name, func(t *testing.T) {
				s.heard()
				got := s.under(s.policy(`"transparent": true`), c.argv...)
				if c.denied == "" {
					if got.status != 0 {
						t.Errorf("%+v", got)
					}
					return
				}
				if got.status == 0 || !strings.Contains(got.stderr, c.denied) {
					t.Errorf("status %d, and not a word of %q:\n%s", got.status, c.denied, got.stderr)
				}
				s.wasNotDisturbed(t)
			})
		}
	})
}
