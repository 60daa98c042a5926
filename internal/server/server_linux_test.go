package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// site is a server in a directory of the test's own, which can be started again.
type site struct {
	*Server
	t      testing.TB
	config Config
	db     *store.DB
}

func newSite(t testing.TB, change func(*Config)) *site {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	s := &site{t: t, config: Config{Dir: filepath.Join(t.TempDir(), "state"), Keeper: testenv.Binary(t, "baileyd"), Orphans: time.Minute}}
	if err := os.Mkdir(s.config.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&s.config)
	}
	s.start()
	t.Cleanup(s.clear)
	return s
}

func (s *site) start() {
	s.t.Helper()
	var err error
	if s.db, err = store.Open(context.Background(), s.config.Dir+"/db"); err != nil {
		s.t.Fatal(err)
	}
	s.config.Store = s.db
	if s.Server, err = Open(context.Background(), s.config); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) stop() {
	s.Server.Close()
	if err := s.db.Close(); err != nil {
		s.t.Error(err)
	}
}

// restart is what kill -9 and another start do, but for the process.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// clear destroys everything, so that the keeper ends.
func (s *site) clear() {
	page, err := s.store.List(context.Background(), store.Query{Kind: store.Sandboxes})
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, r := range page.Records {
		if _, err := s.DestroySandbox(as("root", caller.Admin), &baileyv1.DestroySandboxRequest{SandboxId: r.ID}); err != nil {
			s.t.Error(err)
		}
	}
	s.stop()
}

// as is a context of a request that somebody sent.
func as(owner string, scopes ...caller.Scope) context.Context {
	if scopes == nil {
		scopes = []caller.Scope{caller.Read, caller.Write, caller.Exec}
	}
	return caller.With(context.Background(), caller.Caller{Owner: owner, Scopes: scopes})
}

var ann = as("ann")

func (s *site) create(r *baileyv1.CreateSandboxRequest) string {
	s.t.Helper()
	sb, err := s.CreateSandbox(ann, r)
	if err != nil {
		s.t.Fatal(err)
	}
	return sb.GetId()
}

func (s *site) run(id, line string) *baileyv1.RunExecResponse {
	s.t.Helper()
	r, err := s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: line}})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *site) says(id, line, want string) {
	s.t.Helper()
	r := s.run(id, line)
	if got := string(r.GetStdout()); got != want || r.GetExit().GetCode() != 0 {
		s.t.Errorf("%s: got %q, want %q; stderr %q, %v", line, got, want, r.GetStderr(), r.GetExit())
	}
}

func wantReason(t testing.TB, err error, code connect.Code, reason string) {
	t.Helper()
	if connect.CodeOf(err) != code || problem.Of(err).GetReason() != reason {
		t.Errorf("got %v (%v), want %v (%s)", err, problem.Of(err).GetReason(), code, reason)
	}
}

func TestSandboxIsCreatedUsedAndDestroyed(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Name: "one", Labels: map[string]string{"a": "b"}, Env: map[string]string{"GREETING": "hi"}})
	s.says(id, "pwd; echo $GREETING; touch x; ls", "/workspace\nhi\nx\n")
	s.says(id, "echo ~; touch ~/x", "/tmp\n")
	s.says(id, "echo {a,b}", "a b\n") // bash, where there is one
	r := s.run(id, "echo out; echo err >&2; exit 3")
	if string(r.GetStdout()) != "out\n" || string(r.GetStderr()) != "err\n" || r.GetExit().GetCode() != 3 {
		t.Errorf("got %v", r)
	}
	sb, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_RUNNING || sb.GetName() != "one" || sb.GetOwner() != "ann" {
		t.Errorf("%v, %v", sb, err)
	}
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	_, err = s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	wantReason(t, err, connect.CodeNotFound, "sandbox_not_found")
	if entries, _ := os.ReadDir(s.config.Dir + "/data/workspaces"); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// The server's own environment, files and user are nothing that a sandbox sees.
func TestServerIsInvisibleInside(t *testing.T) {
	t.Setenv("SERVER_SECRET", "topsecret")
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	out := string(s.run(id, "env; ls -a ~ / /root 2>&1; cat "+s.config.Dir+"/db").GetStdout())
	if strings.Contains(out, "topsecret") || strings.Contains(out, "SQLite") {
		t.Errorf("got %s", out)
	}
}

// The directory may be in one that policies grant, as /opt/bailey is.
func TestServersDirectoryIsInNoGrant(t *testing.T) {
	s := newSite(t, func(c *Config) {
		c.Secrets = []string{filepath.Dir(c.Dir) + "/key"}
		for _, name := range []string{"key", "beside"} {
			if err := os.WriteFile(filepath.Dir(c.Dir)+"/"+name, []byte(name+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := os.WriteFile(s.config.Dir+"/data/note", []byte("note\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(s.config.Dir)
	sb, err := s.CreateSandbox(admin, &baileyv1.CreateSandboxRequest{Owner: "ann", Policy: `{"filesystem": {"allowRead": ["` + dir + `", "` + s.config.Dir + `/data", "` + dir + `/key"]}}`})
	if err != nil {
		t.Fatal(err)
	}
	s.says(sb.GetId(), "cd "+dir+"; ls -A state; cat key state/data/note 2>/dev/null; cat beside", "beside\n")
}

// What root alone can read is not for clients of a server of root's.
func TestClientsDoNotReadWhatIsRootsAlone(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	dir, err := os.MkdirTemp("/opt", "closed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, mode := range map[string]os.FileMode{"open": 0o644, "own": 0o600, "group": 0o640, "closed/open": 0o644, "entered/own": 0o600} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755), os.WriteFile(dir+"/"+name, []byte(name+"\n"), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"": 0o755, "closed": 0o750, "entered": 0o711} {
		if err := os.Chmod(dir+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	const line = "; cat own group closed/open entered/own 2>/dev/null; cat open"
	s.says(id, "cd "+dir+line, "open\n")
	sb, err := s.CreateSandbox(admin, &baileyv1.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.says(sb.GetId(), "cd "+dir+line, "own\ngroup\nclosed/open\nentered/own\nopen\n")
	if paths, whole := closedBelow(dir, 3); whole {
		t.Errorf("of some of a directory's files: %q", paths)
	}
}

func TestManyClosedFilesAreHiddenByTheirDirectories(t *testing.T) {
	few := []string{"/opt/a/x", "/opt/a/y"}
	if got := byDirectory(few, "/opt"); !slices.Equal(got, few) {
		t.Errorf("few: %q", got)
	}
	many := []string{"/opt/x"}
	for i := range closedMounts {
		many = append(many, fmt.Sprint("/opt/a/", i))
	}
	if got := byDirectory(many, "/opt"); !slices.Equal(got, []string{"/opt/a", "/opt/x"}) {
		t.Errorf("many: %q", got)
	}
}

// What a policy of a client grants is bounded by what the server does.
func TestPoliciesOfClientsAreBounded(t *testing.T) {
	s := newSite(t, nil)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("topsecret"), 0o644); err != nil {
		t.Fatal(err)
	}
	granting := `{"filesystem": {"allowRead": ["` + filepath.Dir(secret) + `"], "allowWrite": ["` + filepath.Dir(secret) + `"]}}`
	_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Policy: granting})
	wantReason(t, err, connect.CodePermissionDenied, "policy_not_permitted")
	// Earlier versions took it, and what they made can be started.
	id := s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true})
	if _, err := store.Update(ann, s.store, store.Sandboxes, id, func(r *store.Record) error {
		k, err := load(r)
		k.request.Policy = granting
		return errors.Join(err, k.save())
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if out := s.run(id, "cat "+secret+"; echo x > "+secret); strings.Contains(string(out.GetStdout()), "topsecret") {
		t.Errorf("a client has read a file of the host: %s", out)
	}
	if data, _ := os.ReadFile(secret); string(data) != "topsecret" {
		t.Errorf("a client has written a file of the host: %q", data)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	for _, bad := range []string{
		`{"network": {"allowedDomains": ["example.com"], "inject": [{"hosts": ["example.com"], "bearer": true, "fromCommand": ["touch", "` + ran + `"]}]}}`,
		`{"network": {"allowedDomains": ["example.com"], "inject": [{"hosts": ["example.com"], "bearer": true, "fromFile": "` + secret + `"}]}}`,
		`{"network": {"allowedDomains": ["example.com"], "upstreamProxy": "http://127.0.0.1:9"}}`,
		`{"network": {"httpProxyPort": 9}}`,
		`{"network": {"rules": [{"host": "example.com", "action": "allow", "inspect": true}]}}`,
		`{"network": {"socksProxyPort": 9}}`,
		`{"network": {"allowedDomains": ["169.254.169.254"]}}`,
		`{"network": {"rules": [{"host": "127.0.0.1", "ports": ["6379"], "schemes": ["tcp"], "action": "allow"}]}}`,
	} {
		_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Policy: bad})
		if code := connect.CodeOf(err); code != connect.CodePermissionDenied && code != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a client has run a program of the host")
	}
	for _, bad := range []string{`{"nonsense": 1}`, `{"extends": "/etc/passwd"}`, `{"extends": "@user"}`} {
		_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Policy: bad})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_policy")
	}
}

// What a client asks for and is not granted is not taken in silence.
func TestClientsAreToldWhatTheyAreNotGranted(t *testing.T) {
	for text, key := range map[string]string{
		`{"filesystem": {"allowRead": ["/root"]}}`:                                "filesystem.allowRead",
		`{"filesystem": {"allowRead": ["/"]}}`:                                    "filesystem.allowRead",
		`{"filesystem": {"allowRead": ["/home/*/x"]}}`:                            "filesystem.allowRead",
		`{"filesystem": {"allowRead": ["../root"]}}`:                              "filesystem.allowRead",
		`{"filesystem": {"allowRead": ["/etc/shadow"]}}`:                          "filesystem.allowRead",
		`{"filesystem": {"allowWrite": ["/etc"]}}`:                                "filesystem.allowWrite",
		`{"filesystem": {"allowWrite": ["/nowhere"]}}`:                            "filesystem.allowWrite",
		`{"filesystem": {"privateWrite": ["/usr"]}}`:                              "filesystem.privateWrite",
		`{"filesystem": {"defaultDenyRead": false}}`:                              "filesystem.defaultDenyRead",
		`{"network": {"allowedDomains": ["*"], "allowedCIDRs": ["127.0.0.0/8"]}}`: "network.allowedCIDRs",
		`{"network": {"allowLocalOutbound": true}}`:                               "network.allowLocalOutbound",
		`{"network": {"allowLocalOutboundPorts": ["5432"]}}`:                      "network.allowLocalOutboundPorts",
		`{"network": {"allowLocalBinding": true}}`:                                "network.allowLocalBinding",
		`{"network": {"allowUnixSockets": ["/run/docker.sock"]}}`:                 "network.allowUnixSockets",
		`{"network": {"exposePorts": ["8080"]}}`:                                  "network.exposePorts",
		`{"network": {"allowedDomains": ["a.example"], "defaultAction": "ask"}}`:  "network.defaultAction",
		`{"devices": {"mode": "host"}}`:                                           "devices.mode",
		`{"devices": {"allow": ["/dev/kvm"]}}`:                                    "devices.allow",
		`{"ssh": {"allowedHosts": ["host.example"]}}`:                             "ssh.allowedHosts",
		`{"command": {"allow": ["sudo"]}}`:                                        "command.allow",

		`{}`: "", `nonsense`: "", // compile says so
		`{"extends": "code", "filesystem": {"allowRead": ["/usr/lib", "/etc/*.conf", "~/.cache", "src", "/proc"], "allowWrite": [".", "out", "/workspace/x", "/tmp", "/dev/null"]}}`: "",
		`{"filesystem": {"denyRead": ["/etc"], "denyWrite": ["/workspace/x"], "defaultDenyRead": true, "allowGitConfig": true}}`:                                                     "",
		`{"network": {"allowedDomains": ["*", "a.example"], "deniedDomains": ["b.example"], "allowLocalBinding": false, "transparent": true, "egress": "socket"}}`:                   "",
		`{"network": {"rules": [{"host": "a.example", "action": "allow"}, {"host": "*", "action": "deny"}]}, "command": {"deny": ["git push"]}, "devices": {"mode": "minimal"}}`:     "",
	} {
		if got := problem.Of(withinBound(text)).GetMetadata()["key"]; got != key {
			t.Errorf("%s: got %q, want %q: %v", text, got, key, withinBound(text))
		}
	}
	for _, name := range policy.PresetNames() { // what every client may say is no more
		if err := withinBound(`{"extends": "` + name + `"}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Numbers that are none are refused rather than read as if nothing was said.
func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for _, ports := range [][]int32{{70000}, {-1}, {8080, 0}} {
		_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Ports: ports})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_ports")
	}
	_, err := s.ForkSandbox(ann, &baileyv1.ForkSandboxRequest{SandboxId: id, Count: -1})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_count")
	_, err = s.UnexposePort(ann, &baileyv1.UnexposePortRequest{SandboxId: id, Port: 5555})
	wantReason(t, err, connect.CodeNotFound, "port_not_found")
	for _, list := range []func(size int32, token string) error{
		func(n int32, at string) error {
			_, err := s.ListSandboxes(ann, &baileyv1.ListSandboxesRequest{PageSize: n, PageToken: at})
			return err
		},
		func(n int32, at string) error {
			_, err := s.ListCodebases(ann, &baileyv1.ListCodebasesRequest{PageSize: n, PageToken: at})
			return err
		},
		func(n int32, at string) error {
			_, err := s.ListSnapshots(ann, &baileyv1.ListSnapshotsRequest{SandboxId: id, PageSize: n, PageToken: at})
			return err
		},
		func(n int32, at string) error {
			_, err := s.ListExecs(ann, &baileyv1.ListExecsRequest{SandboxId: id, PageSize: n, PageToken: at})
			return err
		},
		func(n int32, at string) error {
			_, err := s.ListFiles(ann, &baileyv1.ListFilesRequest{SandboxId: id, PageSize: n, PageToken: at})
			return err
		},
	} {
		wantReason(t, list(-1, ""), connect.CodeInvalidArgument, "invalid_page_size")
		wantReason(t, list(1, "zzz"), connect.CodeInvalidArgument, "invalid_page_token")
	}
}

// An error names what the client has to change.
func TestErrorsNameTheField(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for _, env := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A B": "x"}} {
		_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Env: env})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_env")
	}
	for _, rule := range []*baileyv1.PathRule{{Pattern: "a", Permission: "reed"}, {Pattern: "", Permission: "read"}, {Pattern: "[", Permission: "read"}} {
		_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{Rules: []*baileyv1.PathRule{rule}})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_rules")
		_, err = s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: id, Rules: &baileyv1.PathRules{Rules: []*baileyv1.PathRule{rule}}})
		wantReason(t, err, connect.CodeInvalidArgument, "invalid_rules")
	}
	_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{CreateOnly: true, Policy: `{"resources": {"memory": "4K"}}`})
	if err == nil || !strings.Contains(err.Error(), ": resources.memory 4K: ") || strings.Contains(err.Error(), "--policy") {
		t.Errorf("got %v", err)
	}
	_, err = s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "true", Cwd: "/nope"}})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_cwd")
	_, err = s.CreateSession(ann, &baileyv1.CreateSessionRequest{SandboxId: id, Cwd: "/nope"})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_cwd")
}

// With the scope admin, the gate has credentials that are the server's own, and opens TLS
// with an authority of the server's.
func TestCredentialsOfTheServersAreForAdministrators(t *testing.T) {
	t.Setenv("UPSTREAM_TOKEN", "s3cret")
	t.Setenv("PATH", filepath.Dir(testenv.Binary(t, "bailey-gate"))+":"+os.Getenv("PATH"))
	s := newSite(t, nil)
	heard := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get("Authorization")
	}))
	defer upstream.Close()
	_, port, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	inject := `{"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "127.0.0.1", "ports": ["` + port + `"], "action": "allow"}],
		"inject": [{"hosts": ["127.0.0.1"], "bearer": true, "fromEnv": "UPSTREAM_TOKEN", "optional": true}]}`
	opened := `{"rules": [{"host": "example.com", "action": "allow", "inspect": true}]}`

	own := s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true, Policy: `{"network": {"allowedDomains": ["example.com"]}}`})
	for _, network := range []string{strings.Replace(inject, `, "optional": true`, "", 1), opened} {
		_, err := s.UpdateSandbox(ann, &baileyv1.UpdateSandboxRequest{SandboxId: own, Network: &network})
		wantReason(t, err, connect.CodePermissionDenied, "policy_not_permitted")
	}
	if _, err := os.Stat(s.config.Dir + "/authority"); err == nil {
		t.Error("an authority was made for who may not use one")
	}
	sb, err := s.CreateSandbox(admin, &baileyv1.CreateSandboxRequest{Policy: `{"network": ` + inject + `}`})
	if err != nil {
		t.Fatal(err)
	}
	s.says(sb.GetId(), "env | grep -c s3cret; test -s $SSL_CERT_FILE && echo certificates", "0\ncertificates\n")
	s.run(sb.GetId(), "p=${HTTP_PROXY##*@}; p=${p#http://}; p=${p%/}; exec 3<>/dev/tcp/${p%:*}/${p##*:}; printf 'GET http://127.0.0.1:"+port+"/ HTTP/1.1\r\nHost: 127.0.0.1:"+port+"\r\n\r\n' >&3; head -n 1 <&3")
	select {
	case got := <-heard:
		if got != "Bearer s3cret" {
			t.Errorf("the upstream heard %q", got)
		}
	default:
		t.Error("the request did not arrive")
	}
	if _, err := s.CreateSandbox(admin, &baileyv1.CreateSandboxRequest{CreateOnly: true, Policy: `{"network": ` + opened + `}`}); err != nil {
		t.Error(err)
	}
}

// The machine's own network has its loopback, with the ports of other owners, and all
// that only the machine can reach.
func TestNetworkOfAClientIsNotTheMachines(t *testing.T) {
	s := newSite(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, test := range []struct {
		name, policy string
		who          context.Context
		reaches      bool
	}{
		{"a client", `{"network": {"allowedDomains": ["*"]}}`, ann, false},
		{"a client with a preset", `{"extends": "full-access"}`, ann, false},
		{"an administrator", `{"network": {"allowedDomains": ["*"]}}`, admin, true},
	} {
		sb, err := s.CreateSandbox(test.who, &baileyv1.CreateSandboxRequest{Policy: test.policy})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		s.run(sb.GetId(), "exec 3<>/dev/tcp/127.0.0.1/"+port)
		if reached := cameBefore(t, l); reached != test.reaches {
			t.Errorf("%s: reaches the machine's loopback: %v", test.name, reached)
		}
	}
}

// cameBefore says whether somebody connected to a listener before this.
func cameBefore(t *testing.T, l net.Listener) bool {
	t.Helper()
	own, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for others := false; ; others = true {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		from := c.RemoteAddr().String()
		c.Close()
		if from == own.LocalAddr().String() {
			return others
		}
	}
}

// Things of somebody else do not exist.
func TestOwnersDoNotSeeEachOther(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	bob := as("bob")
	if l, err := s.ListSandboxes(bob, &baileyv1.ListSandboxesRequest{}); err != nil || len(l.GetSandboxes()) > 0 {
		t.Errorf("%v, %v", l, err)
	}
	for name, try := range map[string]func(context.Context) error{
		"get": func(c context.Context) error {
			_, err := s.GetSandbox(c, &baileyv1.GetSandboxRequest{SandboxId: id})
			return err
		},
		"stop": func(c context.Context) error {
			_, err := s.StopSandbox(c, &baileyv1.StopSandboxRequest{SandboxId: id})
			return err
		},
		"destroy": func(c context.Context) error {
			_, err := s.DestroySandbox(c, &baileyv1.DestroySandboxRequest{SandboxId: id})
			return err
		},
		"exec": func(c context.Context) error {
			_, err := s.RunExec(c, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{"true"}}})
			return err
		},
		"stat": func(c context.Context) error {
			_, err := s.StatFile(c, &baileyv1.StatFileRequest{SandboxId: id})
			return err
		},
		"stats": func(c context.Context) error {
			_, err := s.GetStats(c, &baileyv1.GetStatsRequest{SandboxId: id})
			return err
		},
		"session": func(c context.Context) error {
			_, err := s.CreateSession(c, &baileyv1.CreateSessionRequest{SandboxId: id})
			return err
		},
		"execs": func(c context.Context) error {
			_, err := s.ListExecs(c, &baileyv1.ListExecsRequest{SandboxId: id})
			return err
		},
	} {
		if err := try(bob); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s by another owner: %v", name, err)
		}
		if err := try(as("ann", caller.Scope("nothing"))); name != "get" && name != "stat" && name != "stats" && name != "execs" && connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s without a scope: %v", name, err)
		}
	}
	s.says(id, "echo still there", "still there\n")
}

func TestStoppedSandboxKeepsItsFiles(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "echo kept > note; echo gone > /tmp/note", "")
	sb, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)})
	if err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_STOPPED {
		t.Fatalf("%v, %v", sb, err)
	}
	_, err = s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "true"}})
	wantReason(t, err, connect.CodeFailedPrecondition, "sandbox_not_running")
	f, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{SandboxId: id, Path: "note"})
	if err != nil || string(f.GetContent()) != "kept\n" {
		t.Errorf("while it is stopped: %v, %v", f, err)
	}
	if _, err := s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: id, Path: "more", Content: []byte("x")}); err != nil {
		t.Error(err)
	}
	if sb, err = s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Fatalf("%v, %v", sb, err)
	}
	s.says(id, "cat note more; ls /tmp", "kept\nx")
}

// A server that was killed at any moment comes back to its sandboxes, and to what
// runs in them.
func TestServerGoesOnAfterARestart(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	s.says(id, "echo here > /tmp/note", "")
	e, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "echo before; read x; echo after $x", OpenStdin: true}})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "echo short; exit 4"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: ended.GetId()}); err != nil {
		t.Fatal(err)
	}
	s.restart()
	s.says(id, "cat /tmp/note", "here\n")
	if _, err := s.WriteStdin(ann, &baileyv1.WriteStdinRequest{SandboxId: id, ExecId: e.GetId(), Data: []byte("word\n"), Close: true}); err != nil {
		t.Fatal(err)
	}
	out, exit := s.collect(id, e.GetId(), 0)
	if out != "before\nafter word\n" || exit.GetCode() != 0 {
		t.Errorf("got %q, %v", out, exit)
	}
	if out, exit := s.collect(id, ended.GetId(), 2); out != "ort\n" || exit.GetCode() != 4 {
		t.Errorf("of one that had ended: %q, %v", out, exit)
	}
}

// collect reads the output of a command from an offset on, and its end.
func (s *site) collect(id, exec string, from int64) (out string, exit *baileyv1.Exit) {
	s.t.Helper()
	e, err := s.exec(ann, id, exec)
	if err != nil {
		s.t.Fatal(err)
	}
	err = s.stream(ann, e, [2]int64{from, 0}, func(m *baileyv1.ExecOutput) error {
		if c := m.GetOutput(); c.GetStream() == baileyv1.Stream_STREAM_STDOUT {
			if c.GetOffset() != from+int64(len(out)) {
				s.t.Errorf("a piece at %d, after %d", c.GetOffset(), from+int64(len(out)))
			}
			out += string(c.GetData())
		}
		if m.GetExit() != nil {
			exit = m.GetExit()
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out, exit
}

func TestOrphansAreSwept(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	lost := s.create(&baileyv1.CreateSandboxRequest{})
	// As if the server had been killed before it wrote down the one, and after it
	// forgot the other.
	if err := s.store.Commit(ann, store.Delete(&store.Record{Kind: store.Sandboxes, ID: lost})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.spool()+"/ex-nobody.out", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.restart()
	state, err := s.remote.State()
	if err != nil || len(state.Boxes) != 1 || state.Boxes[0].Name != id {
		t.Errorf("%+v, %v", state, err)
	}
	for dir, want := range map[string]int{"/data/workspaces": 1, "/spool": 0} {
		if entries, err := os.ReadDir(s.config.Dir + dir); err != nil || len(entries) != want {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
}

// One record is not the end of all others, and is told by its name.
func TestServerStartsWithRecordsOfAnySize(t *testing.T) {
	s := newSite(t, nil)
	s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true})
	large := s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true, Labels: map[string]string{"a": strings.Repeat("x", 5<<20)}})
	broken := s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true})
	c := s.codebaseOf(map[string]string{"a": "a"})
	for kind, id := range map[store.Kind]string{store.Sandboxes: broken, store.Codebases: c} {
		if _, err := store.Update(ann, s.store, kind, id, func(r *store.Record) error { r.Data = []byte("?"); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	if l, err := s.ListSandboxes(ann, &baileyv1.ListSandboxesRequest{}); err != nil || len(l.GetSandboxes()) != 2 {
		t.Errorf("%d sandboxes, %v", len(l.GetSandboxes()), err)
	}
	if l, err := s.ListCodebases(ann, &baileyv1.ListCodebasesRequest{}); err != nil || len(l.GetCodebases()) != 0 {
		t.Errorf("%v, %v", l, err)
	}
	if _, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: large}); err != nil {
		t.Error(err)
	}
	_, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: broken})
	wantReason(t, err, connect.CodeDataLoss, "record_unreadable")
	if list, err := s.files.Codebases(); err != nil || len(list) != 2 {
		t.Errorf("files of a codebase were removed that nobody removed: %v, %v", list, err)
	}
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: broken}); err != nil {
		t.Error(err)
	}
	if _, err := s.DeleteCodebase(ann, &baileyv1.DeleteCodebaseRequest{CodebaseId: c}); err != nil {
		t.Error(err)
	}
	if list, err := s.files.Codebases(); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

func TestSandboxThatEndsIsSeen(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	state, err := s.remote.State()
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: id, Command: &baileyv1.Command{Argv: []string{"sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(state.Boxes[0].Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w, err := s.WaitExec(ann, &baileyv1.WaitExecRequest{SandboxId: id, ExecId: e.GetId()})
	if err != nil || w.GetExit().GetCode() != 137 || w.GetExit().GetError() == "" {
		t.Errorf("%v, %v", w, err)
	}
	s.Server.Close() // waits for what is written down behind
	s.db.Close()
	s.start()
	sb, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_FAILED || sb.GetStateReason() == "" {
		t.Errorf("%v, %v", sb, err)
	}
}

func TestTwoServersDoNotShareADirectory(t *testing.T) {
	s := newSite(t, nil)
	if other, err := Open(context.Background(), s.config); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("got %v, %v", other, err)
	}
}

func TestPausedSandboxTakesNoCommands(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	// A child that has ended, of a parent that does not want to know, is there for good.
	s.begin1(id, &baileyv1.Command{Argv: []string{"sh", "-c", "(exit) & exec sleep 1000"}})
	s.run(id, "until grep -qs 'State:.Z' /proc/[0-9]*/status; do :; done")
	sb, err := s.PauseSandbox(ann, &baileyv1.PauseSandboxRequest{SandboxId: id})
	if problem.Of(err).GetReason() == "cannot_be_paused" && os.Geteuid() != 0 {
		return // said by name
	}
	if err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Fatalf("%v, %v", sb, err)
	}
	_, err = s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: id, Command: &baileyv1.Command{Shell: "true"}})
	wantReason(t, err, connect.CodeFailedPrecondition, "sandbox_paused")
	s.restart()
	if sb, err = s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id}); err != nil || sb.GetState() != baileyv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Errorf("after a restart: %v, %v", sb, err)
	}
	if _, err := s.ResumeSandbox(ann, &baileyv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	s.says(id, "echo on", "on\n")
}

func TestSandboxesAreListed(t *testing.T) {
	s := newSite(t, nil)
	batch, err := s.BatchCreateSandboxes(ann, &baileyv1.BatchCreateSandboxesRequest{
		Count: 5, Template: &baileyv1.CreateSandboxRequest{Labels: map[string]string{"kind": "batch"}},
	})
	if err != nil || len(batch.GetSandboxes()) != 5 || len(batch.GetFailures()) > 0 {
		t.Fatalf("%v, %v", batch, err)
	}
	s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true})
	for _, test := range []struct {
		request *baileyv1.ListSandboxesRequest
		want    int
	}{
		{&baileyv1.ListSandboxesRequest{}, 6},
		{&baileyv1.ListSandboxesRequest{Labels: []string{"kind=batch"}}, 5},
		{&baileyv1.ListSandboxesRequest{Labels: []string{"kind"}}, 5},
		{&baileyv1.ListSandboxesRequest{Labels: []string{"kind=other"}}, 0},
		{&baileyv1.ListSandboxesRequest{States: []baileyv1.SandboxState{baileyv1.SandboxState_SANDBOX_STATE_CREATED}}, 1},
		{&baileyv1.ListSandboxesRequest{PageSize: 4}, 4},
	} {
		l, err := s.ListSandboxes(ann, test.request)
		if err != nil || len(l.GetSandboxes()) != test.want {
			t.Errorf("%v: %d, %v", test.request, len(l.GetSandboxes()), err)
		}
	}
	_, err = s.ListSandboxes(ann, &baileyv1.ListSandboxesRequest{PageToken: "!"})
	wantReason(t, err, connect.CodeInvalidArgument, "invalid_page_token")
}

func TestQuotaHoldsAtOnce(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Quota.Sandboxes = 3 })
	_, err := s.BatchCreateSandboxes(ann, &baileyv1.BatchCreateSandboxesRequest{Count: 4, Template: &baileyv1.CreateSandboxRequest{}})
	wantReason(t, err, connect.CodeResourceExhausted, "sandboxes_exhausted")
	for range 3 {
		s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true})
	}
	_, err = s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{CreateOnly: true})
	wantReason(t, err, connect.CodeResourceExhausted, "sandboxes_exhausted")
	if _, err := s.CreateSandbox(as("bob"), &baileyv1.CreateSandboxRequest{CreateOnly: true}); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

func TestSandboxEndsWithItsTime(t *testing.T) {
	s := newSite(t, nil)
	for name, r := range map[string]*baileyv1.CreateSandboxRequest{
		"ttl":  {Ttl: durationpb.New(time.Millisecond)},
		"idle": {IdleTimeout: durationpb.New(time.Millisecond)},
	} {
		id := s.create(r)
		deadline := time.Now().Add(30 * time.Second)
		for {
			_, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
			if connect.CodeOf(err) == connect.CodeNotFound {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: it is still there: %v", name, err)
			}
		}
	}
}

// A limit that is taken is held.
func TestLimitsThatAreNoneAreRefused(t *testing.T) {
	s := newSite(t, nil)
	for reason, list := range map[string][]*baileyv1.Resources{
		"invalid_cpu_quota":    {{CpuQuota: -1}, {CpuQuota: 1}, {CpuQuota: minQuota - 1}},
		"invalid_memory_bytes": {{MemoryBytes: -1}},
		"invalid_pids_limit":   {{PidsLimit: -1}},
		"invalid_disk_bytes":   {{DiskBytes: -1}},
		"invalid_open_files":   {{OpenFiles: -1}},
		"invalid_output_bytes": {{OutputBytes: -1}},
	} {
		for _, l := range list {
			_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{CreateOnly: true, Resources: l})
			wantReason(t, err, connect.CodeInvalidArgument, reason)
		}
	}
	_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{CreateOnly: true, Resources: &baileyv1.Resources{MemoryBytes: 1}})
	wantReason(t, err, connect.CodeFailedPrecondition, "cannot_be_held")
	if remedy := problem.Of(err).GetRemedy(); remedy != "resources.memory: give it 1M or more" {
		t.Errorf("remedy: %s", remedy)
	}
	s.create(&baileyv1.CreateSandboxRequest{CreateOnly: true, Resources: &baileyv1.Resources{CpuQuota: minQuota}})
}

func TestMemoryIsReadFromTheKernelsTable(t *testing.T) {
	if n, ok := available("MemTotal: 10 kB\nMemAvailable:   2048 kB\n"); !ok || n != 2<<20 {
		t.Errorf("got %d, %v", n, ok)
	}
	if _, ok := available("MemTotal: 10 kB\n"); ok {
		t.Error("nothing was taken for something")
	}
}
