package spec

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func compileEnv(t *testing.T, env policy.Env, environ ...string) *Spec {
	t.Helper()
	f := newSystem("/home/u/p/")
	f.host.Environ = environ
	p := basicPolicy()
	p.Env = env
	return mustCompile(t, p, f)
}

func names(s *Spec) []string {
	var out []string
	for _, v := range s.Env {
		name, _, _ := strings.Cut(v, "=")
		out = append(out, name)
	}
	return out
}

func TestEnvironmentIsAnAllowList(t *testing.T) {
	always := []string{"BAILEY", "HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"}
	for _, tc := range []struct {
		env     policy.Env
		entry   string
		enters  bool
		dropped bool
	}{
		{policy.Env{}, "LANG=C", true, false},
		{policy.Env{}, "LC_ALL=C", true, false},
		{policy.Env{}, "GIT_AUTHOR_NAME=A", true, false},
		{policy.Env{}, "GOFLAGS=-mod=mod", true, false},
		{policy.Env{}, "GOOGLE_CLOUD_PROJECT=x", false, false},
		{policy.Env{}, "SSH_AUTH_SOCK=/x", false, false},
		{policy.Env{}, "XDG_RUNTIME_DIR=/run/user/1", false, false},
		{policy.Env{}, "XDG_CONFIG_HOME=/home/u/.c", true, false},
		{policy.Env{}, "LD_PRELOAD=/x.so", false, false},
		{policy.Env{}, "LD_LIBRARY_PATH=/x", true, false},
		{policy.Env{}, "BASH_ENV=/x", false, false},
		{policy.Env{}, "BASH_FUNC_ls%%=() { x; }", false, false},
		{policy.Env{}, "BAILEY_TRACE=/x", false, false},
		{policy.Env{}, "AWS_SECRET_ACCESS_KEY=x", false, false},
		{policy.Env{}, "CARGO_REGISTRY_TOKEN=x", false, true},
		{policy.Env{}, "npm_config_//host/:_authToken=x", false, true},
		{policy.Env{}, "NPM_CONFIG__AUTH=x", false, true},
		{policy.Env{}, "GEM_HOST_API_KEY=x", false, true},
		{policy.Env{}, "BUNDLE_GEMS__EXAMPLE__COM=u:p", false, true},
		{policy.Env{}, "BUNDLE_PATH=/x", true, false},
		{policy.Env{}, "PIP_INDEX_URL=https://u:p@host/simple", false, true},
		{policy.Env{}, "PIP_INDEX_URL=https://host/simple", true, false},
		{policy.Env{}, "NIX_CONFIG=access-tokens = github.com=ghp_0123456789abcdef0123", false, true},
		{policy.Env{}, "NIX_CONFIG=access-tokens = example.com=abc", false, true},
		{policy.Env{Allow: []string{"FOO"}}, "FOO=1", true, false},
		{policy.Env{Allow: []string{"FOO_*"}}, "FOO_BAR=1", true, false},
		{policy.Env{Allow: []string{"GITHUB_TOKEN"}}, "GITHUB_TOKEN=ghp_0123456789abcdef0123", true, false},
		{policy.Env{Allow: []string{"GITHUB_*"}}, "GITHUB_TOKEN=x", false, true},
		{policy.Env{Allow: []string{"X*"}}, "XYZ=sk-ant-api03-abcdef", false, true},
		{policy.Env{Allow: []string{"LD_*", "*"}}, "LD_PRELOAD=/x.so", false, false},
		{policy.Env{Allow: []string{"*"}}, "BASH_FUNC_ls%%=() { x; }", false, false},
		{policy.Env{Deny: []string{"LANG"}}, "LANG=C", false, false},
		{policy.Env{Deny: []string{"L*"}, Allow: []string{"LANG"}}, "LANG=C", false, false},
		{policy.Env{}, "NOVALUE", false, false},
	} {
		s := compileEnv(t, tc.env, tc.entry)
		name, _, _ := strings.Cut(tc.entry, "=")
		if got := slices.Contains(s.Env, tc.entry); got != tc.enters {
			t.Errorf("%s under %+v enters: %v", tc.entry, tc.env, got)
		}
		if got := slices.Contains(s.DroppedEnv, name); got != tc.dropped {
			t.Errorf("%s under %+v reported: %v", tc.entry, tc.env, got)
		}
		for _, n := range names(s) {
			if n != name && !slices.Contains(always, n) {
				t.Errorf("%s came from nowhere", n)
			}
		}
	}
}

func TestEnvironmentAlwaysHas(t *testing.T) {
	s := compileEnv(t, policy.Env{Set: map[string]string{"EXTRA": "1", "LD_PRELOAD": "/lib/x.so", "BAILEY": "0"}},
		"PATH=:/usr/bin:rel:/bin/:./x", "USER=ann", "SHELL=/bin/zsh", "TMPDIR=/home/u/tmp", "PWD=/elsewhere", "HOME=/other", "BAILEY=7")
	want := []string{
		"BAILEY=1", "EXTRA=1", "HOME=/home/u", "LD_PRELOAD=/lib/x.so", "LOGNAME=ann", "PATH=/usr/bin:/bin/", "PWD=/home/u/p",
		"SHELL=/bin/zsh", "TMPDIR=/tmp", "USER=ann",
	}
	if !slices.Equal(s.Env, want) {
		t.Errorf("got %q, want %q", s.Env, want)
	}
	if len(s.OmittedEnv) > 0 {
		t.Errorf("not let in, it says, are %q", s.OmittedEnv)
	}
	if s := compileEnv(t, policy.Env{}); !slices.Contains(s.Env, "PATH="+defaultPath) {
		t.Errorf("without PATH: %q", s.Env)
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"GITHUB_TOKEN": true, "Db_Password": true, "NODE_AUTH_TOKEN": true, "MY_API_KEY": true, "X_PRIVATE_KEY": true, "APIKEY": true,
		"UV_PUBLISH_PASSWORD": true, "AWS_SESSION_TOKEN": true, "A-COOKIE": true, "GRADLE_ENCRYPTION_KEY": true, "TOKEN": true,
		"PGPASSWORD": true, "MYSQL_PWD": true, "HOMEBREW_PW": true, "SSHPASS": true, "CARGO_PAT": true, "OPENAI_KEY": true, "AZURE_STORAGE_KEY": true,
		"AZURE_STORAGE_CONNECTION_STRING": true, "PWD": false, "OLDPWD": false, "PUBLIC_KEY": false, "KEY": false, "KEY_PATH": false, "CONNECTION": false,
		"GIT_AUTHOR_NAME": false, "KEYBOARD": false, "SORT_KEY": false, "PASSAGE": false, "TOKENIZER": false, "AUTHOR": false, "LESSKEY": false,
		"PYTHONPATH": false, "": false, "__": false, "MONKEY_API": false,
	} {
		if got := isSecretName(name); got != want {
			t.Errorf("%s is a secret: %v, want %v", name, got, want)
		}
	}
}

const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"

func TestSecretShapes(t *testing.T) {
	for _, s := range shapes {
		for _, value := range []string{s.prefix + strings.Repeat("A", s.min), "x=" + s.prefix + strings.Repeat("A", s.min) + ";"} {
			if got := SecretShape(value); got != s.name {
				t.Errorf("%s is %q, want %q", value, got, s.name)
			}
		}
		if short := s.prefix + strings.Repeat("A", s.min-1); SecretShape(short) != "" {
			t.Errorf("%s is too short for a %s", short, s.name)
		}
	}
	for value, want := range map[string]string{
		"-----BEGIN OPENSSH PRIVATE KEY-----\nx": "private key",
		"-----BEGIN CERTIFICATE-----\nx":         "",
		jwt:                                      "JSON web token",
		"Bearer " + jwt:                          "JSON web token",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0":  "",
		"SG.0123456789abcdef01.0123456789abcdef": "SendGrid key",
		"postgres://u:p@h/db":                    "password in a URL",
		"a https://u:p%40x@h b":                  "password in a URL",
		"https://h/a:b@c":                        "",
		"https://u@h/":                           "password in a URL", // often a token
		"git+HTTP://u:@h/":                       "password in a URL",
		"https://@h/":                            "",
		"ssh://git@h/":                           "",
		"postgres://u@h/db":                      "",
		"http://[::1]:80/":                       "",
		"/opt/sk-my-directory-with-a-long-name":  "",
		"xghp_0123456789abcdef0123":              "",
		"npm_config_registry":                    "",
		"":                                       "",
	} {
		if got := SecretShape(value); got != want {
			t.Errorf("%q is %q, want %q", value, got, want)
		}
	}
}

func TestEnvironmentIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for _, name := range usualNames {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/environment.md does not name %s", name)
		}
	}
	for _, prefix := range usualPrefixes {
		if !strings.Contains(doc, "`"+prefix+"*`") {
			t.Errorf("docs/environment.md does not name %s*", prefix)
		}
	}
	for _, s := range shapes {
		if !strings.Contains(doc, "`"+s.prefix+"`") {
			t.Errorf("docs/environment.md does not name the shape %s", s.prefix)
		}
	}
	if !slices.IsSorted(usualNames) {
		t.Error("usualNames is not sorted")
	}
}

func FuzzEnvShapes(f *testing.F) {
	f.Add("PIP_INDEX_URL", "https://u:p@h")
	f.Add("X_TOKEN", jwt)
	f.Add("npm_config_//a/:_authToken", "-----BEGIN  PRIVATE KEY")
	f.Add("e", "eyJ.eyJ.")
	f.Fuzz(func(t *testing.T, name, value string) {
		isSecretName(name)
		// What is a secret alone is one within a longer value.
		if SecretShape(value) != "" && SecretShape("a "+value) == "" {
			t.Errorf("%q is missed after a blank", value)
		}
	})
}

func TestUserWithoutVariablesHasTheNameOfTheAccount(t *testing.T) {
	for passwd, want := range map[string]string{
		"root:x:0:0::/root:/bin/sh\nann:x:1000:1000:Ann,,,:/home/u:/bin/sh\nother:x:1000:1:::\n": "ann",
		"root:x:0:0::/root:/bin/sh\n1000\nx:1000\n":                                              "1000",
		"": "1000",
	} {
		f := newSystem("/home/u/p/", "/etc/passwd="+passwd)
		s, err := Compile(basicPolicy(), f, Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"USER=", "LOGNAME="} {
			if !slices.Contains(s.Env, name+want) {
				t.Errorf("%q: got %q, want %s%s", passwd, s.Env, name, want)
			}
		}
	}
}

func TestVariablesAreExplainedByWhatDecides(t *testing.T) {
	s := &Spec{Env: []string{"SERVICE=bailey-adds-it-outside", "HOME=/home/u", "TERM=xterm"}}
	p := &policy.Policy{Env: policy.Env{Deny: []string{"TERM"}}, Network: policy.Network{Inject: []policy.Injection{{Placeholder: "SERVICE"}}}}
	for _, c := range []struct {
		name, value string
		want        Variable
	}{
		{"SERVICE", "ghp_x", Variable{Set: true, Rule: "network.inject, to a placeholder"}},
		{"HOME", "/home/u", Variable{Enters: true, Rule: "it is one of those that enter by themselves"}},
		{"HOME", "/elsewhere", Variable{Set: true, Rule: "every sandbox has it, with a value of its own"}},
		{"TERM", "xterm", Variable{Set: true, Rule: "every sandbox has it, with a value of its own"}},
		{"LC_ALL", "C", Variable{Enters: true, Rule: "it is one of those that enter by themselves"}},
		{"LC_ALL", "ghp_0123456789abcdefghij", Variable{Rule: "it looks like a secret", Fix: "--env LC_ALL"}},
	} {
		if got := s.Variable(p, c.name, c.value); got != c.want {
			t.Errorf("%s=%s: got %+v, want %+v", c.name, c.value, got, c.want)
		}
	}
	image := &Spec{Image: new(Image)}
	if got := image.Variable(&policy.Policy{}, "LC_ALL", "C"); got.Enters || got.Rule != "env.allow does not list it" {
		t.Errorf("in an image: %+v", got)
	}
}
