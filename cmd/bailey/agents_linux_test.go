package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// agentDir is where the test run has installed an agent, as npm and Python's
// virtual environments do it.
func agentDir(name string) string { return filepath.Join(os.Getenv("BAILEY_TEST_AGENTS"), name, "bin") }

// requireAgent skips a test where the test run has not installed an agent. The
// larger ones are in long runs only.
func requireAgent(t *testing.T, name string) {
	t.Helper()
	if name != "gemini" && name != "amp" {
		testenv.Requires(t, testenv.Long)
	}
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.File(filepath.Join(agentDir(name), name)))
}

// withAgent puts an agent on the PATH of a bench.
func (b *bench) withAgent(name string) *bench {
	for i, v := range b.env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			b.env[i] = "PATH=" + agentDir(name) + ":" + path
		}
	}
	return b
}

func TestAgentsStart(t *testing.T) {
	for _, name := range []string{"aider", "amp", "claude", "codex", "copilot", "gemini", "opencode"} {
		t.Run(name, func(t *testing.T) {
			requireAgent(t, name)
			b := newBench(t).withAgent(name)
			if got := b.run(name, "--version"); got.status != 0 || !strings.ContainsAny(got.stdout, "0123456789") {
				t.Errorf("--version: %+v", got)
			}
			if got := b.run(name, "--help"); got.status != 0 || !strings.Contains(strings.ToLower(got.stdout+got.stderr), "usage") {
				t.Errorf("--help: %+v", got)
			}
		})
	}
}

// fakeAgent installs a script under an agent's name, as npm installs one.
func (b *bench) fakeAgent(name, script string) {
	b.t.Helper()
	prefix := filepath.Join(b.home, "prefix")
	packages := filepath.Join(prefix, "lib/node_modules/agent")
	for _, dir := range []string{packages, filepath.Join(prefix, "bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(packages, "cli"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		b.t.Fatal(err)
	}
	link := filepath.Join(prefix, "bin", name)
	if err := os.Symlink("../lib/node_modules/agent/cli", link); err != nil {
		b.t.Fatal(err)
	}
	for i, v := range b.env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok && !strings.HasPrefix(path, prefix) {
			b.env[i] = "PATH=" + filepath.Join(prefix, "bin") + ":" + path
		}
	}
}

func TestAnAgentsNameWithoutDashesIsTheAgent(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBench(t)
	got := b.run("gemini")
	got.wantError(t, "gemini is not installed, or not in PATH; to install it: npm install -g @google/gemini-cli")

	b.fakeAgent("gemini", `echo "$@"; echo x >~/.gemini/state && echo kept`)
	b.run("-q", "gemini", "-p", "--", "-q").want(t, 0, "-p -- -q\nkept\n", "")
	if _, err := os.Stat(filepath.Join(b.home, ".gemini/state")); err != nil {
		t.Error(err)
	}
	// As a plain command it is a file in a hidden home directory.
	if got := b.run("--", "gemini"); got.status != 127 {
		t.Errorf("plain: %+v", got)
	}
}

func TestAnAgentCannotChangeWhatRunsNextTime(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	for name, state := range map[string]string{
		"claude": "settings.json settings.local.json hooks/x skills/x/y plugins/x commands/x agents/x local/claude status.sh",
		"codex":  "config.toml hooks.json rules/x skills/x plugins/x notify.py",
		"gemini": "settings.json trustedFolders.json extensions/x policies/x .env hook.js",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fakeAgent(name, `cd ~/.`+name+` || exit
				for f in `+state+`; do mkdir -p "$(dirname $f)"; echo x >$f; echo x >tmp && mv tmp $f; ln -f session $f; done
				echo y >session`)
			for _, before := range []string{"nothing", "settings"} {
				if before == "settings" {
					for f := range strings.FieldsSeq(state) {
						path := filepath.Join(b.home, "."+name, f)
						if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
							t.Fatal(err)
						}
					}
				}
				b.run("-q", name)
				if data, _ := os.ReadFile(filepath.Join(b.home, "."+name, "session")); string(data) != "y\n" {
					t.Errorf("%s: its own state was not written", before)
				}
				for f := range strings.FieldsSeq(state) {
					data, err := os.ReadFile(filepath.Join(b.home, "."+name, f))
					if before == "nothing" && err == nil || before == "settings" && string(data) != "mine" {
						t.Errorf("%s before: %s became %q", before, f, data)
					}
				}
			}
		})
	}
}

func TestOtherSecretsStayHiddenFromAgents(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBench(t)
	for _, file := range []string{".ssh/id_ed25519", ".aws/credentials", ".codex/auth.json", ".config/gh/hosts.yml", ".netrc"} {
		path := filepath.Join(b.home, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.env = append(b.env, "OPENAI_API_KEY=sk-0123456789abcdefghijkl", "ANTHROPIC_API_KEY=sk-ant-0123456789", "GITHUB_TOKEN=ghp_0123456789abcdefghij")
	b.fakeAgent("claude", `env; cat ~/.ssh/* ~/.aws/* ~/.codex/* ~/.config/gh/* ~/.netrc 2>/dev/null`)
	got := b.run("claude")
	for _, secret := range []string{"secret\n", "secretsecret", "sk-0123456789", "sk-ant-0123456789", "ghp_"} {
		if strings.Contains(got.stdout, secret) {
			t.Errorf("%q is visible: %s", secret, got.stdout)
		}
	}
	if !strings.Contains(got.stdout, "ANTHROPIC_API_KEY=bailey-adds-it-outside\n") || strings.Contains(got.stderr, "ANTHROPIC_API_KEY") {
		t.Errorf("its own key: %+v", got)
	}
}

// What holds here stays in force; the agent's own part is added, as by flags.
func TestAgentsAddToThePolicyThatHolds(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBench(t)
	b.fakeAgent("claude", `exec 2>/dev/null; touch file && echo project; touch ~/.claude/x && echo state; cat hidden`)
	b.write("hidden", "hidden\n", 0o644)
	b.run("-q", "claude").want(t, 0, "project\nstate\nhidden\n", "")
	b.run("-q", "-t", "git-readonly", "claude").want(t, 0, "state\nhidden\n", "")
	b.run("-q", "--policy", `{"filesystem": {"denyRead": ["hidden"]}}`, "claude").want(t, 1, "project\nstate\n", "")

	chain := func(args ...string) []string {
		var list []string
		got := b.run(append(append([]string{"-d"}, args...), "claude")...)
		for line := range strings.Lines(got.stderr) {
			if _, link, ok := strings.Cut(line, "policy: "); ok {
				list = append(list, strings.TrimSpace(strings.ReplaceAll(link, b.dir, ".")))
			}
		}
		return list
	}
	if got, want := chain(), []string{"preset default", "preset code", "preset claude", "flags command line"}; !slices.Equal(got, want) {
		t.Errorf("without a file: %q", got)
	}
	// A file that came with the code takes away, also here, but not the state.
	b.write("bailey.jsonc", `{"filesystem": {"denyRead": ["hidden"]}}`, 0o644)
	b.run("-q", "claude").want(t, 1, "project\nstate\n", "")
	want := []string{"preset default", "preset code", "preset default (not trusted: only takes away)", "file ./bailey.jsonc (not trusted: only takes away)", "preset claude", "flags command line"}
	if got := chain(); !slices.Equal(got, want) {
		t.Errorf("with a file: %q", got)
	}
}

// model is a server that plays the hosts of models. It asks for a command to be
// run, and then for nothing more.
type model struct {
	command string // what the agent is asked to run
	heard   func(text string)
}

// serveModel starts a model at an address of its own, for the given hosts, and
// makes the gate believe it.
func (w *world) serveModel(t *testing.T, m *model, names ...string) {
	t.Helper()
	config, authority := certify(t, names)
	file := filepath.Join(w.home, "models.pem")
	if err := os.WriteFile(file, authority, 0o644); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock() // the name server reads them after it has taken a note
	for _, name := range names {
		hosts[name+"."] = [4]byte{127, 0, 0, 2}
	}
	w.mu.Unlock()
	go http.Serve(tls.NewListener(w.listen(t, "127.0.0.2:443"), config), m)
	w.env = append(w.env, "SSL_CERT_FILE="+file)
}

// take returns what was noted in a list since the last time.
func (w *world) take(list *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := *list
	*list = nil
	return taken
}

// certify makes an authority and has it sign for the hosts: some programs refuse
// an authority that speaks for itself.
func certify(t *testing.T, names []string) (config *tls.Config, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "models"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: names[0]}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names,
	}
	signed := func(template *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	config = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{signed(leaf)}, PrivateKey: key}}}
	return config, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed(root)})
}

func (m *model) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.heard(r.Method + " " + r.Host + r.URL.Path + " key=" + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key") +
		" authorization=" + r.Header.Get("Authorization") + "\n" + string(body))
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages"):
		m.anthropic(rw, body)
	case strings.HasSuffix(r.URL.Path, "/responses") && r.Method == http.MethodPost:
		m.openAI(rw, body)
	case strings.Contains(r.URL.Path, "enerateContent"):
		m.gemini(rw, r, body)
	default:
		http.Error(rw, `{"error": {"message": "there is nothing else here"}}`, http.StatusNotFound)
	}
}

// tool finds the first of these tools that a request offers, or "" if a command
// has been run already.
func tool(body []byte, names ...string) string {
	for _, done := range []string{`"tool_result"`, `"function_call_output"`, `"custom_tool_call_output"`, `"functionResponse"`} {
		if strings.Contains(string(body), done) {
			return ""
		}
	}
	for _, name := range names {
		if strings.Contains(string(body), `"name":"`+name+`"`) {
			return name
		}
	}
	return ""
}

func events(rw http.ResponseWriter, list ...any) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, e := range list {
		data, _ := json.Marshal(e)
		var kind struct{ Type string }
		_ = json.Unmarshal(data, &kind)
		if kind.Type != "" {
			fmt.Fprintf(rw, "event: %s\n", kind.Type)
		}
		fmt.Fprintf(rw, "data: %s\n\n", data)
	}
}

type object = map[string]any

func (m *model) anthropic(rw http.ResponseWriter, body []byte) {
	content, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "the model says hello"}, "end_turn"
	if name := tool(body, "Bash", "bash"); name != "" {
		args, _ := json.Marshal(object{"command": m.command, "description": "look around"})
		content = object{"type": "tool_use", "id": "toolu_1", "name": name, "input": object{}}
		delta, reason = object{"type": "input_json_delta", "partial_json": string(args)}, "tool_use"
	}
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []any{},
		"stop_reason": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !strings.Contains(strings.ReplaceAll(string(body), " ", ""), `"stream":true`) {
		message["content"], message["stop_reason"] = []any{object{"type": "text", "text": "the model says hello"}}, "end_turn"
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(message)
		return
	}
	events(
		rw, object{"type": "message_start", "message": message},
		object{"type": "content_block_start", "index": 0, "content_block": content},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": reason}, "usage": object{"output_tokens": 1}},
		object{"type": "message_stop"},
	)
}

func (m *model) openAI(rw http.ResponseWriter, body []byte) {
	item := object{
		"type": "message", "role": "assistant", "id": "m1",
		"content": []any{object{"type": "output_text", "text": "the model says hello"}},
	}
	if name := tool(body, "exec"); name != "" {
		// A program in JavaScript, which has the tools that are meant.
		args, _ := json.Marshal(object{"cmd": m.command})
		item = object{"type": "custom_tool_call", "call_id": "c1", "name": name, "input": "text(await tools.exec_command(" + string(args) + "))"}
	}
	events(
		rw, object{"type": "response.created", "response": object{"id": "r1"}},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": object{
			"id": "r1", "usage": object{
				"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
				"input_tokens_details": nil, "output_tokens_details": nil,
			},
		}},
	)
}

func (m *model) gemini(rw http.ResponseWriter, r *http.Request, body []byte) {
	part := object{"text": "the model says hello"}
	if name := tool(body, "run_shell_command"); name != "" {
		part = object{"functionCall": object{"name": name, "args": object{"command": m.command, "description": "look around"}}}
	}
	answer := object{"candidates": []any{object{
		"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0,
	}}, "usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
	if strings.Contains(r.URL.Path, ":stream") {
		events(rw, answer)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(answer)
}

func TestAnAgentsKeyIsAddedOutside(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		const key = "sk-ant-api03-0123456789abcdef"
		var heard []string
		w.serveModel(t, &model{heard: func(text string) { w.note(&heard, text) }}, "api.anthropic.com", "console.anthropic.com")
		w.fakeAgent("claude", `for host in api console; do
			curl -sS -d '{}' -H "x-api-key: $ANTHROPIC_API_KEY" https://$host.anthropic.com/v1/messages; done`)
		policy := `{"network": {"allowedCIDRs": ["127.0.0.0/8"]}}`
		w.env = append(w.env, "ANTHROPIC_API_KEY="+key)
		if got := w.run("--policy", policy, "claude"); !strings.Contains(got.stdout, "the model says hello") {
			t.Errorf("%+v", got)
		}
		want := []string{
			"POST api.anthropic.com/v1/messages key=" + key + " authorization=\n{}",
			"POST console.anthropic.com/v1/messages key=bailey-adds-it-outside authorization=\n{}",
		}
		if got := w.take(&heard); !slices.Equal(got, want) {
			t.Errorf("with a key the hosts heard %q", got)
		}
		// Without one nothing is added, and TLS is not opened.
		w.env = w.env[:len(w.env)-1]
		w.env = append(w.env, "SSL_CERT_FILE="+filepath.Join(w.home, "models.pem"))
		w.run("--policy", policy, "--allow-read", filepath.Join(w.home, "models.pem"), "--env", "SSL_CERT_FILE", "claude")
		if got := w.take(&heard); len(got) != 2 || !strings.Contains(got[0], "key= ") {
			t.Errorf("without a key the hosts heard %q", got)
		}
	})
}

// Each agent is given a prompt. The model, outside, hears the real key; what the
// agent runs, inside, sees a placeholder.
func TestAgentsWorkWithKeysThatStayOutside(t *testing.T) {
	for _, test := range []struct {
		agent, variable, key, heard string
		hosts, args                 []string
	}{
		{"claude", "ANTHROPIC_API_KEY", "sk-ant-api03-0123456789abcdef", "key=sk-ant-api03-0123456789abcdef ", []string{"api.anthropic.com"}, []string{"-p", "look around", "--allowedTools", "Bash"}},
		{"codex", "CODEX_API_KEY", "sk-proj-0123456789abcdef", "authorization=Bearer sk-proj-0123456789abcdef", []string{"api.openai.com"}, []string{"exec", "--skip-git-repo-check", "look around"}},
		{"gemini", "GEMINI_API_KEY", "AIza0123456789abcdefghijABCDEFGHIJ456789", "key=AIza0123456789abcdefghijABCDEFGHIJ456789 ", []string{"generativelanguage.googleapis.com"}, []string{"--skip-trust", "-y", "-p", "look around"}},
		{"opencode", "ANTHROPIC_API_KEY", "sk-ant-api03-0123456789abcdef", "key=sk-ant-api03-0123456789abcdef ", []string{"api.anthropic.com"}, []string{"run", "-m", "anthropic/claude-sonnet-4-5", "look around"}},
		{"aider", "ANTHROPIC_API_KEY", "sk-ant-api03-0123456789abcdef", "key=sk-ant-api03-0123456789abcdef ", []string{"api.anthropic.com"}, []string{"--model", "anthropic/claude-sonnet-4-5", "--no-git", "--yes-always", "--no-show-model-warnings", "--message", "look around"}},
	} {
		t.Run(test.agent, func(t *testing.T) {
			requireAgent(t, test.agent)
			testenv.Requires(t, testenv.Long, testenv.NoRace)
			inWorld(t, func(t *testing.T, w *world) {
				w.withAgent(test.agent)
				w.env = append(w.env, test.variable+"="+test.key)
				var heard []string
				w.serveModel(t, &model{
					command: "env | grep -a " + test.variable + " >seen; echo from-inside",
					heard:   func(text string) { w.note(&heard, text) },
				}, test.hosts...)
				args := append([]string{"--policy", `{"network": {"allowedCIDRs": ["127.0.0.0/8"]}}`, test.agent}, test.args...)
				got := w.run(args...)
				if got.status != 0 || !strings.Contains(got.stdout, "the model says hello") {
					t.Errorf("%+v", got)
				}
				all := strings.Join(w.take(&heard), "\n")
				if !strings.Contains(all, test.heard) || strings.Contains(all, "bailey-adds-it-outside ") {
					t.Errorf("the model heard %s", all)
				}
				if test.agent == "aider" {
					return // it runs nothing by itself
				}
				seen, _ := os.ReadFile(filepath.Join(w.dir, "seen"))
				if string(seen) != test.variable+"=bailey-adds-it-outside\n" || !strings.Contains(all, "from-inside") {
					t.Errorf("inside %q was seen, and the model heard %s", seen, all)
				}
			})
		})
	}
}

func TestEveryAgentHasAPreset(t *testing.T) {
	for _, name := range policy.PresetNames() {
		if policy.IsAgent(name) != isAgent(name) {
			t.Errorf("%s: the policies and the command disagree on whether it is an agent", name)
		}
		if isAgent(name) && findAgent(name).install == "" {
			t.Errorf("%s: how is it installed?", name)
		}
	}
}
