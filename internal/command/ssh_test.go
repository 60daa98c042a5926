package command

import (
	"fmt"
	"strings"
	"testing"
)

func entries(texts ...string) []Entry {
	var out []Entry
	for _, text := range texts {
		out = append(out, Entry{Text: text})
	}
	return out
}

func TestSSHArgumentsAreReadAsSSHReadsThem(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "",
		"-V":                                "",
		"-Q cipher":                         "",
		"host":                              "host|",
		"host ls -l":                        "host|ls -l",
		"user@host ls":                      "host|ls",
		"a@b@host ls":                       "host|ls",
		"-p 22 host ls":                     "host|ls",
		"-p22 -vvv -tt host ls":             "host|ls",
		"-vp 22 host ls":                    "host|ls",
		"-l user -i key -F conf host ls":    "host|ls",
		"host -p 22 ls -p":                  "host|ls -p",
		"-- host -p 22":                     "host|-p 22",
		"host -- ls -l":                     "host|ls -l",
		"-l user -s -- host sftp":           "host|sftp",
		"-x -oForwardAgent=no -l u host ls": "host|ls",
		"ssh://user@host:2222 ls":           "host|ls",
		"ssh://user@host:2222/ ls":          "host|ls",
		"[::1] ls":                          "::1|ls",
		"user@::1 ls":                       "::1|ls",
		"-J jump host ls":                   "jump host|ls",
		"-J u@a:22,ssh://b:22 host":         "a b host|",
		"-o ProxyJump=none host":            "host|",
		"-o ProxyJump=jump host":            "jump host|",
		"-o hostname=other host ls":         "other|ls",
		"-oHostName=a -oHostName=b host":    "a|",
		"-oHostName=%h.internal host":       "host.internal|",
		"-o RemoteCommand=reboot host":      "host|reboot",
		"-W host:22 jump":                   "jump|",
		"-L 80:x:80 -N host":                "host|",
		"-p":                                "",
	} {
		target := parseSSH(strings.Fields(line))
		got := ""
		if len(target.hosts) > 0 {
			got = strings.Join(target.hosts, " ") + "|" + target.command
		}
		if got != want {
			t.Errorf("ssh %s: got %q, want %q", line, got, want)
		}
	}
	if got := parseSSH([]string{"-o", "HostName other", "host"}); fmt.Sprint(got.hosts) != "[other]" {
		t.Errorf(`-o "HostName other": got %v, want other`, got.hosts)
	}
}

func TestHostsAreCompared(t *testing.T) {
	for _, c := range []struct {
		pattern, host string
		want          bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "EXAMPLE.com.", true},
		{"example.com", "xexample.com", false},
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "xexample.com", false},
		{"*.example.com", ".example.com", false},
		{"*", "anything", true},
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "3221225985", true},
		{"192.0.2.1", "0xc0000201", true},
		{"192.0.2.1", "192.0.513", true},
		{"192.0.2.1", "0300.0.2.1", true},
		{"192.0.2.1", "192.0.2.11", false},
		{"::1", "[::1]", true},
		{"::1", "0:0:0:0:0:0:0:1", true},
		{"127.0.0.1", "127.1", true},
	} {
		if got := hostMatches(c.pattern, c.host); got != c.want {
			t.Errorf("%s, %s: got %v, want %v", c.pattern, c.host, got, c.want)
		}
	}
}

func TestSSHRules(t *testing.T) {
	listed := &SSH{
		AllowedHosts: entries("*.example.com", "host"), DeniedHosts: entries("prod.example.com"),
		AllowedCommands: entries("ls", "cat", "tail -n", "git-upload-pack", "find", "systemctl status", "/opt/x/run"),
		DeniedCommands:  entries("cat /etc/shadow"),
	}
	all := &SSH{AllowedHosts: entries("*"), AllowAll: true, DeniedCommands: entries("rm -rf", "sh"), InheritDeny: true}
	for _, c := range []struct {
		ssh  *SSH
		argv string
		want bool
	}{
		{listed, "host", true},
		{listed, "a.example.com", true},
		{listed, "user@a.example.com", true},
		{listed, "prod.example.com", false},
		{listed, "PROD.example.com.", false},
		{listed, "elsewhere", false},
		{listed, "-o HostName=elsewhere host", false},
		{listed, "-J elsewhere host", false},
		{listed, "-J host a.example.com", true},
		{listed, "host ls -l /tmp", true},
		{listed, "host /bin/ls", true},
		{listed, "host /tmp/ls", false},
		{listed, "host 'ls; rm x'", false},
		{listed, "host 'ls | cat'", true},
		{listed, "host 'ls && cat x || ls'", true},
		{listed, "host 'ls $(rm x)'", false},
		{listed, "host 'ls `rm x`'", false},
		{listed, "host 'ls $HOME *.log'", true},
		{listed, "host '$X'", false},
		{listed, "host 'ls > x'", false},
		{listed, "host '> x'", false},
		{listed, "host 'ls > /dev/null 2>&1'", true},
		{listed, "host ls '>' x", false},
		{listed, "host 'cat \"a file\"'", true},
		{listed, "host 'LD_PRELOAD=x ls'", false},
		{listed, "host cat /etc/shadow", false},
		{listed, "host 'cat  \"/etc/shadow\"'", false},
		{listed, "host tail -n 5 x", true},
		{listed, "host tail x", false},
		{listed, "host 'tail $X 5'", false},
		{listed, "host find . -name x", true},
		{listed, "host 'find . -exec rm {} \\;'", false},
		{listed, "host 'find . -exec ls {} \\;'", true},
		{listed, "host 'find . -exec $X {} \\;'", false},
		{listed, "host systemctl status x", true},
		{listed, "host systemctl stop x", false},
		{listed, "host /opt/x/run", true},
		{listed, "host run", false},
		{listed, "git@host \"git-upload-pack 'a/b.git'\"", true},
		{listed, "git@host \"git-receive-pack 'a/b.git'\"", false},
		{listed, "-s -- host sftp", false},
		{listed, "-o RemoteCommand=reboot host", false},
		{listed, "host 'ls #'", true},

		{all, "anywhere make", true},
		{all, "anywhere rm -fr x", false},
		{all, "anywhere 'cd x && rm -r -f y'", false},
		{all, "anywhere sudo rm -rf x", false},
		{all, "anywhere bash -c '\"rm -rf x\"'", false},
		{all, "anywhere sh -c ls", false},
		{all, "anywhere git push", false},
		{all, "anywhere 'X=1 git -C y push'", false},
		{all, "anywhere 'if true; then git push; fi'", false},
		{all, "anywhere git pull", true},
		{all, "anywhere shutdown", false},
		{all, "anywhere git push origin docs", true},
		{&SSH{AllowedHosts: entries("*"), AllowAll: true}, "anywhere shutdown", true},
		{&SSH{}, "anywhere", false},
		{&SSH{DeniedHosts: entries("prod")}, "anywhere", false},
		{nil, "anywhere shutdown", true},
	} {
		l := List{Reach: ReachArgv, Defaults: true, Deny: entries("git push"), Allow: entries("git push origin docs"), SSH: c.ssh}
		argv := append([]string{"ssh"}, words(t, c.argv)...)
		if got := l.Compile().Judge(Exec{Path: "/usr/bin/ssh", Argv: argv}); got.Allowed != c.want {
			t.Errorf("ssh %s: got %v, want allowed %v", c.argv, got, c.want)
		}
	}
}

func TestSSHIsKnownUnderEveryName(t *testing.T) {
	r := List{Reach: ReachArgv, SSH: &SSH{}}.Compile()
	for name, e := range map[string]Exec{
		"its own":        {Path: "/usr/bin/ssh", Argv: []string{"ssh", "host"}},
		"argv[0]":        {Path: "/tmp/x", Argv: []string{"ssh", "host"}},
		"real path":      {Path: "/tmp/x", Real: "/usr/bin/ssh", Argv: []string{"x", "host"}},
		"copy":           {Path: "/tmp/x", Real: "/tmp/x", Argv: []string{"x", "host"}, Same: []string{"ssh"}},
		"dynamic loader": {Path: "/lib/ld.so", Argv: []string{"ld.so", "/usr/bin/ssh", "host"}},
	} {
		if v := r.Judge(e); v.Allowed {
			t.Errorf("%s: got allowed, want a refusal", name)
		}
	}
	if v := r.Judge(run("ssh-keygen -l")); !v.Allowed {
		t.Errorf("ssh-keygen: got %v, want allowed", v)
	}
}

func TestARemoteCommandTooLongToReadIsRefused(t *testing.T) {
	long := strings.Repeat("ls;", maxTextBytes)
	for _, c := range []struct {
		ssh  SSH
		want bool
	}{
		{SSH{AllowedHosts: entries("*"), AllowedCommands: entries("ls")}, false},
		{SSH{AllowedHosts: entries("*"), AllowAll: true, DeniedCommands: entries("rm")}, false},
		{SSH{AllowedHosts: entries("*"), AllowAll: true}, true},
	} {
		r := List{Reach: ReachArgv, SSH: &c.ssh}.Compile()
		if got := r.Judge(Exec{Path: "ssh", Argv: []string{"ssh", "host", long}}); got.Allowed != c.want {
			t.Errorf("%+v: got %v, want allowed %v", c.ssh, got, c.want)
		}
	}
}
