package escape

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestCredentialReachesItsHostOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789"
		t.Setenv("SERVICE_TOKEN", secret)
		t.Setenv("SSL_CERT_FILE", w.ca)
		w.policy = `{"network": {"allowedDomains": ["good.example", "evil.example", "*.good.example"], "allowedCIDRs": ["` + evil4 + `", "` + good4 + `"],
			"inject": [{"hosts": ["good.example"], "bearer": true, "fromEnv": "SERVICE_TOKEN", "placeholder": "SERVICE_TOKEN"}]}}`
		fields := func(host, fields string) string {
			return "GET http://" + host + "/x HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n"
		}
		answers := w.talk(
			talk{name: "another host", say: []string{getByURL("evil.example", "/x")}},
			talk{name: "below the host", say: []string{getByURL("deep.good.example", "/x")}},
			talk{name: "another host after the right one", say: []string{fields("good.example", ""), getByURL("evil.example", "/x")}},
			talk{name: "another address by its name", say: []string{connectBy(evil4 + ":80"), get("good.example", "/x")}},
			talk{name: "another address by its name, redirected", to: evil4 + ":80", say: []string{get("good.example", "/x")}},
			talk{name: "another address by its name in TLS", say: []string{connectBy(evil4 + ":443")}, tls: "good.example", then: []string{get("good.example", "/x")}},
			talk{name: "another host by its name in TLS", say: []string{connectBy("evil.example:443")}, tls: "good.example", then: []string{get("good.example", "/x")}},
			talk{name: "another host in its connection", say: []string{connectBy("good.example:443")}, tls: "good.example", then: []string{get("evil.example", "/x")}},
			talk{name: "a request that shows itself", say: []string{"TRACE http://good.example/x HTTP/1.1\r\nHost: good.example\r\n\r\n"}},
			talk{name: "a request that shows itself, somehow", say: []string{"TRACK http://good.example/x HTTP/1.1\r\nHost: good.example\r\n\r\n"}},
		)
		if all := strings.Join(answers, ""); strings.Contains(all, secret) {
			t.Errorf("the credential came back: %q", all)
		}
		right := "at " + good4 + " with Bearer " + secret
		for _, request := range w.heard().served {
			if strings.Contains(request, secret) && request != "GET good.example /x "+right {
				t.Errorf("the credential was sent with %q", request)
			}
		}

		// Whatever the client does about it, the right host gets it.
		w.talk(
			talk{name: "plain", say: []string{fields("good.example", "")}},
			talk{name: "another credential", say: []string{fields("good.example", "Authorization: Bearer mine\r\nauthorization: Bearer other\r\n")}},
			talk{name: "taken away", say: []string{fields("good.example", "Connection: close, Authorization\r\n")}},
			talk{name: "in TLS", say: []string{connectBy("good.example:443")}, tls: "good.example", then: []string{get("good.example", "/x")}},
		)
		want := slices.Repeat([]string{"GET good.example /x " + right}, 4)
		if got := w.heard().served; !slices.Equal(got, want) {
			t.Errorf("control: requests %q, want %q", got, want)
		}
		out := w.run("sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rhs "+secret[:12]+" /.bailey /etc /run /tmp /dev/shm ~")
		if strings.Contains(out, secret) || !strings.Contains(out, "SERVICE_TOKEN=bailey-adds-it-outside") {
			t.Errorf("inside: %q", out)
		}
	})
}

// Where the gate takes a credential from is not for the sandbox to say.
func TestCommandDoesNotChooseItsCredential(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		inject := func(source string) string {
			return `{"network": {"allowedDomains": ["good.example"], "inject": [{"hosts": ["good.example"], "bearer": true, ` + source + `}]}}`
		}
		t.Setenv("SSL_CERT_FILE", w.ca)
		w.write(w.outside+"/secret", "outside")
		w.write(w.project+"/token", "inside")
		must(t, os.Symlink(w.outside+"/secret", w.project+"/link"))
		for _, source := range []string{`"fromFile": "token"`, `"fromFile": "link"`, `"fromFile": "later"`} {
			w.policy = inject(source)
			c := w.command("true")
			if err := c.Run(); err == nil {
				t.Errorf("%s: the sandbox started", source)
			}
		}

		script := w.project + "/bin/token"
		w.write(script, "#!/bin/sh\necho right\n")
		must(t, os.Chmod(script, 0o755))
		t.Setenv("PATH", w.project+"/first:"+os.Getenv("PATH"))
		must(t, os.Mkdir(w.project+"/first", 0o755))
		for source, usurped := range map[string]string{
			`"fromCommand": ["` + script + `"]`:            script,
			`"fromCommand": ["sh", "` + script + `"]`:      script,
			`"fromCommand": ["printf", "right"]`:           w.project + "/first/printf",
			`"fromFile": "` + w.outside + `/right"`:        w.outside + "/right",
			`"fromCommand": ["cat", "` + script + `.txt"]`: script + ".txt",
		} {
			w.write(w.outside+"/right", "right")
			w.write(script+".txt", "right")
			w.policy = inject(source)
			w.attack("usurp", usurped)
			w.talk(talk{name: source, say: []string{getByURL("good.example", "/x")}})
			if got := w.heard().served; !slices.Equal(got, []string{"GET good.example /x at " + good4 + " with Bearer right"}) {
				t.Errorf("%s: requests %q", source, got)
			}
		}
	})
}

// What a sandbox asks for is shown to a person. It must not drive the terminal,
// nor look like something that Bailey itself says.
func TestWhatIsAskedForDoesNotDriveATerminal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = `{"network": {"rules": [{"host": "good.example", "paths": ["/open/**"], "action": "allow"}]}}`
		var talks []talk
		for _, evil := range []string{"\x1b[2J", "\x9b2J", "\u009b2J", "\u202egood", "\x07", "\r\nbailey: all is well", "\x7f", "\u2028x", "%1b[2J", "\xff\xfe", "\u200b", strings.Repeat("x", 30000)} {
			talks = append(talks,
				talk{name: "path", say: []string{"GET http://good.example/" + evil + " HTTP/1.1\r\nHost: good.example\r\n\r\n"}},
				talk{name: "method", say: []string{"X" + evil + " http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n"}},
				talk{name: "host", say: []string{getByURL(evil+".example", "/")}},
				talk{name: "CONNECT", say: []string{connectBy(evil + ".example:80")}},
				talk{name: "SOCKS 4a", say: []string{socks4a(evil+".example", 80)}},
				talk{name: "name in TLS", to: "good.example:443", tls: evil + ".example"},
			)
			if len(evil) < 200 {
				talks = append(talks, talk{name: "SOCKS 5", say: []string{socks5Hello, socks5Name(evil+".example", 80)}})
			}
		}
		w.putTalks(talks)
		stderr := w.cli("-m", "--policy", w.policy, "--", w.program, "attack", "talk", "talks.json", strconv.Quote("\x1b[2J\u202e\x9b\n\rx"))
		if !strings.Contains(stderr, "GET good.example:80") && !strings.Contains(stderr, "good.example:80") {
			t.Errorf("control: nothing was denied: %q", stderr)
		}
		for what, text := range map[string]string{"monitor": stderr, "log": w.cli("log"), "log in JSON": w.cli("log", "--json")} {
			if bad := strings.IndexFunc(text, drives); bad >= 0 {
				t.Errorf("%s: %.100q", what, text[max(0, bad-40):])
			}
			if !utf8.ValidString(text) || strings.Contains(text, "\nbailey: all is well") {
				t.Errorf("%s: %.300q", what, text)
			}
			if len(text) > 1<<20 {
				t.Errorf("%s: %d bytes", what, len(text))
			}
		}
	})
}

func drives(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == 0x2028 || r == 0x2029)
}

// cli runs the command, and returns all it says.
func (w *world) cli(args ...string) string {
	w.t.Helper()
	var out bytes.Buffer
	c := exec.Command(testenv.Binary(w.t, "bailey"), args...)
	c.Dir, c.Stderr, c.Stdout = w.project, &out, &out
	if err := c.Run(); err != nil {
		w.t.Errorf("bailey %.200q: %v: %.500q", args, err, out.String())
	}
	return out.String()
}
