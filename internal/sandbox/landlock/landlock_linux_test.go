package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestMountTableIsRead(t *testing.T) {
	const table = `67 43 0:40 /root / ro,nosuid,nodev,relatime - tmpfs tmpfs rw,mode=755
77 67 254:0 /a\040b /mnt/tab\011here rw,nosuid shared:1 master:2 - ext4 /dev/vda rw,discard
78 67 254:0 / /back\134slash rw - ext4 /dev/vda ro
`
	got, err := parseMounts(strings.NewReader(table))
	want := []place{
		{id: 67, dev: "0:40", root: "/root", target: "/", fs: "tmpfs", options: "rw,mode=755"},
		{id: 77, dev: "254:0", root: "/a b", target: "/mnt/tab\there", fs: "ext4", options: "rw,discard", writable: true},
		{id: 78, dev: "254:0", root: "/", target: `/back\slash`, fs: "ext4", options: "ro"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, bad := range []string{"1 2 3\n", "x 43 0:40 / / rw - a b c\n", "67 43 0:40 / / rw tmpfs tmpfs rw\n"} {
		if _, err := parseMounts(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// sandbox is the mount table of a sandbox, with what the tests below need.
func sandbox(t *testing.T, more ...string) *world {
	t.Helper()
	lines := append([]string{
		"1 0 0:40 /root / ro - tmpfs tmpfs rw",
		"2 1 0:41 / /proc ro - proc proc ro",
		"3 1 0:40 /private/1 /tmp rw - tmpfs tmpfs rw",
		"4 1 0:40 /private/hidden-file /etc/shadow ro - tmpfs tmpfs rw",
		"5 1 0:42 / /cache rw - overlay overlay rw,lowerdir=/proc/self/fd/9,upperdir=/proc/self/fd/8/3",
		"6 1 0:43 / /docker rw - overlay overlay rw,lowerdir=/var/lib/a,upperdir=/var/lib/b",
		"7 1 0:44 / /mem rw - tmpfs tmpfs rw",
		"8 1 254:0 /etc /etc ro - ext4 /dev/vda rw",
	}, more...)
	places, err := parseMounts(strings.NewReader(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{places: places}
	w.classify()
	return w
}

func TestPrivateDirectoriesOfASandboxAreRecognised(t *testing.T) {
	w := sandbox(t)
	for target, want := range map[string]kind{
		"/": skeleton, "/proc": processes, "/tmp": scratch, "/etc/shadow": scratch, "/cache": layered,
		"/docker": ordinary, "/mem": ordinary, "/etc": ordinary,
	} {
		if got := w.at(target); got.target != target || got.kind != want {
			t.Errorf("%s: got %+v, want kind %d", target, got, want)
		}
	}
	// Somebody else's root directory says nothing about the rest.
	host := &world{places: slices.Clone(w.places)}
	for i := range host.places {
		host.places[i].kind = ordinary
	}
	host.places[0].root = "/"
	host.classify()
	if got := host.at("/tmp").kind; got != ordinary {
		t.Errorf("got kind %d for the /tmp of a host", got)
	}
}

func TestWhatIsMountedDecidesWhatIsShared(t *testing.T) {
	s := &spec.Spec{
		Mounts: []spec.Mount{
			{Kind: spec.Private, Target: "/cache", Source: "/cache"},
			{Kind: spec.Private, Target: "/docker", Source: "/docker"},
			{Kind: spec.Bind, Target: "/etc", Source: "/etc"},
			{Kind: spec.Bind, Target: "/tmp/grant", Source: "/tmp/grant"},
			{Kind: spec.Tmpfs, Target: "/mem", Mode: 0o700},
			{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777},
		},
		Landlock: spec.Landlock{Rules: []spec.LandlockRule{{Path: "/etc", Execute: true}}},
	}
	c := &check{
		spec: s, world: sandbox(t, "9 3 254:0 /home /tmp/home rw - ext4 /dev/vda rw"),
		denied: []Denial{{Path: "/tmp/secret"}, {Path: "/tmp/kept", Read: true}},
	}
	for name, want := range map[string]uint64{
		"/":               toList,
		"/run":            toList,
		"/etc":            toRead | toExecute,
		"/tmp":            toRead | toWrite,
		"/tmp/a/b":        toRead | toWrite,
		"/tmp/grant":      toRead | toWrite, // as the rest of what is shared
		"/tmp/home":       0,                // the sandbox around this one shows it, and no rule of ours
		"/tmp/secret":     0,
		"/tmp/secret/key": 0,
		"/tmp/kept":       toRead,
		"/cache":          toRead | toWrite,
		"/docker":         0,
		"/mem":            0,
	} {
		if got := c.want(name); got != want {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
}

func TestOutsideOfASandboxNothingIsTakenAsHeld(t *testing.T) {
	testenv.Requires(t, testenv.Landlock(6))
	s := &spec.Spec{
		Argv: []string{"true"}, Exec: []string{"/bin/true"}, Dir: "/",
		Network: spec.NetworkNone,
		Mounts: []spec.Mount{
			{Kind: spec.Proc, Target: "/proc"},
			{Kind: spec.Tmpfs, Target: "/tmp", Mode: 0o1777, Why: "private /tmp"},
			{Kind: spec.Private, Target: "/var", Source: "/var", Why: "filesystem.privateWrite /var"},
			{Kind: spec.Bind, Target: "/other", Source: "/usr", Why: "filesystem.allowRead /usr"},
		},
		TimeoutMillis: 1000,
	}
	_, err := Prepare(s, Options{Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
	var refused *spec.Refused
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	var keys []string
	for _, r := range refused.Reasons {
		keys = append(keys, strings.TrimSpace(r.Key+" "+r.Value))
	}
	want := []string{"/proc", "private /tmp", "filesystem.privateWrite /var", "filesystem.allowRead /usr", "resources.timeout 1s"}
	if !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
}

func TestProtectionBelowADirectoryThatCouldBeRenamedIsRefused(t *testing.T) {
	s := &spec.Spec{Mounts: []spec.Mount{
		{Kind: spec.Bind, Target: "/p", Source: "/p", Write: true},
		{Kind: spec.Bind, Target: "/p/.git", Source: "/p/.git", Write: true, Why: "pin"},
		{Kind: spec.Bind, Target: "/p/.git/hooks", Source: "/p/.git/hooks", Why: "protected .git/hooks"},
	}}
	project, pin, hooks := "9 1 254:0 /p /p rw - ext4 a rw", "10 9 254:0 /p/.git /p/.git rw - ext4 a rw", "11 9 254:0 /p/.git/hooks /p/.git/hooks ro - ext4 a rw"
	for _, c := range []struct {
		mounts []string
		want   int
	}{{[]string{project, pin, hooks}, 0}, {[]string{project, hooks}, 1}} {
		check := &check{spec: s, world: sandbox(t, c.mounts...)}
		check.pinned()
		if len(check.reasons) != c.want {
			t.Errorf("%q: got %v", c.mounts, check.reasons)
		}
	}
}

func TestProtectedNamesAreListed(t *testing.T) {
	count := func(list string) int { return strings.Count(list, ",") + 1 }
	names, policies := spec.NameLists()[0], spec.NameLists()[1]
	for _, c := range []struct {
		pattern, first string
		names          int
	}{
		{"/p/" + names, "/p/.aider.conf.yml", count(names)},
		{`/with\[brackets\]/` + policies, "/with[brackets]/bailey.json", count(policies)},
		{"/p/.git/hooks", "/p/.git/hooks", 1},
		{"/p/**/*.pem", "", 0},
		{"/*/" + policies, "", 0},
	} {
		paths, ok := literals(&spec.PathRule{Pattern: c.pattern})
		if ok != (c.names > 0) || ok && (len(paths) != c.names || paths[0] != c.first) {
			t.Errorf("%s: got %q, %v", c.pattern, paths, ok)
		}
	}
}

func TestCapabilitiesAreGivenUp(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	capabilities := func() string {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Error(err)
		}
		_, rest, _ := strings.Cut(string(status), "CapEff:\t")
		return strings.TrimLeft(rest[:16], "0")
	}
	var before, after string
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		before = capabilities()
		err := dropCapabilities()
		after = capabilities()
		done <- err
	}()
	if err := <-done; err != nil || before == "" || after != "" {
		t.Errorf("got %q, %v after %q", after, err, before)
	}
}

func TestServiceFromOutsideIsAWayOut(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, c := range []struct {
		table string
		want  bool
	}{
		{"", false},
		{head, false},
		{head + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n", false},
		{head + "   0: 0100007F:1F90 0100007F:03AC 01 00000000:00000000 00:00000000 00000000     0        0 1\n", false},
		{head + "   0: 00000000000000000000000001000000:0000 00000000000000000000000000000000:0000 07 00000000:00000000\n", false},
		{head + "   0: 0100007F:03AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n", true},
		{head + "   0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000\n", true},
		{head + "   0: unknown form\n", true},
	} {
		if got := hasPrivilegedPort(c.table); got != c.want {
			t.Errorf("got %v for\n%s", got, c.table)
		}
	}
}

func TestNetworkBetweenClosedAndOpenIsRefused(t *testing.T) {
	c := &check{spec: &spec.Spec{Network: "gate"}}
	c.network()
	if len(c.reasons) != 1 || c.reasons[0].Key != "network.allowedDomains" {
		t.Errorf("got %v", c.reasons)
	}
}

func TestExposedPortsAreRefused(t *testing.T) {
	s := &spec.Spec{Network: spec.NetworkNone, Expose: []spec.Exposure{{Address: "127.0.0.1", Port: 80, Inside: 80}}}
	for name, refuse := range map[string]func(*check){"nested": (*check).network, "without namespaces": (*check).refuseAlone} {
		c := &check{spec: s}
		refuse(c)
		if len(c.reasons) != 1 || c.reasons[0].Key != "network.exposePorts" {
			t.Errorf("%s: got %v", name, c.reasons)
		}
	}
}

// tree makes files, and directories for names that end in a slash.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// confined runs f on a thread with the rules, which ends with it.
func confined(t *testing.T, rules []rule, f func()) {
	t.Helper()
	abi, _ := native.LandlockABI()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := noNewPrivileges()
		if err == nil {
			err = restrict(&Walls{ABI: abi, Rules: grants(rules), Scopes: scopes}, [3]uint64{})
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestDenialsBelowAGrantHold(t *testing.T) {
	testenv.Requires(t, testenv.Landlock(6))
	root := tree(t, "open", "dir/open", "dir/kept/file", "dir/kept/deep/file", "secret", "dir/hidden/file")
	all := toRead | toWrite | toExecute
	c := &check{world: &world{places: []place{{target: "/", writable: true}}}}
	c.points = []point{
		{path: root, want: all, offered: all},
		{path: root + "/dir/hidden", offered: all},
		{path: root + "/dir/kept", want: toRead | toExecute, offered: all},
		{path: root + "/secret", file: true, offered: all &^ toList},
	}
	c.grant()
	reads := map[string]bool{"open": true, "dir/open": true, "dir/kept/file": true, "dir/kept/deep/file": true}
	writes := map[string]bool{"open": true, "dir/open": true}
	confined(t, c.rules, func() {
		for _, name := range []string{"open", "dir/open", "dir/kept/file", "dir/kept/deep/file", "secret", "dir/hidden/file"} {
			p := point{path: filepath.Join(root, name), file: true}
			if got := canRead(p.path); got != reads[name] {
				t.Errorf("%s can be read: %v", name, got)
			}
			if got := p.tryWrite() == nil; got != writes[name] {
				t.Errorf("%s can be written: %v", name, got)
			}
		}
		for _, move := range [][2]string{{"dir/kept", "dir/moved"}, {"dir", "moved"}, {"dir/kept/file", "file"}, {"secret", "found"}} {
			if err := os.Rename(filepath.Join(root, move[0]), filepath.Join(root, move[1])); err == nil {
				t.Errorf("%s was moved", move[0])
			}
		}
		if err := os.Link(root+"/secret", root+"/linked"); err == nil {
			t.Errorf("the secret got another name")
		}
		if _, err := os.ReadDir(root + "/dir/hidden"); err == nil {
			t.Errorf("what is hidden was listed")
		}
	})
}

func TestTooManyNamesBesideADenialAreRefused(t *testing.T) {
	names := make([]string, maxRules+1)
	for i := range names {
		names[i] = "many/" + strings.Repeat("x", 1+i/50) + string(rune('0'+i%50))
	}
	root := tree(t, append(names, "many/secret")...)
	c := &check{world: &world{places: []place{{target: "/", writable: true}}}}
	c.points = []point{
		{path: root, want: toRead, offered: toRead},
		{path: root + "/many/secret", file: true, offered: toRead, why: "filesystem.denyRead many/secret"},
	}
	c.grant()
	if len(c.reasons) != 1 || c.reasons[0].Value != "many/secret" {
		t.Errorf("got %v", c.reasons)
	}
}

func TestRuleFollowsNoLink(t *testing.T) {
	root := tree(t, "dir/file")
	if err := os.Symlink("dir", root+"/link"); err != nil {
		t.Fatal(err)
	}
	r := rule{path: root + "/dir/file"}
	fd, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	r = rule{path: root + "/link/file"}
	if fd, err := r.open(); err == nil {
		unix.Close(fd)
		t.Errorf("a link was followed")
	}
}

func TestWithoutABrokerLandlockJudgesEverything(t *testing.T) {
	testenv.Requires(t, testenv.Landlock(6))
	ran := false
	brokered, err := powerless(6, func() { ran = true })
	if err != nil || brokered || ran {
		t.Errorf("got %v, %v, ran %v; the tests run in a sandbox of Bailey's, or this is wrong", brokered, err, ran)
	}
	if isRefused(t.TempDir() + "/name") {
		t.Errorf("somebody refuses a name")
	}
}

func TestFilterStaysSorted(t *testing.T) {
	c := &check{spec: &spec.Spec{
		Broker:  &spec.Broker{},
		Network: spec.NetworkNone,
		Seccomp: spec.Seccomp{Families: []string{"unix", "inet", "inet6", "netlink"}},
	}}
	p := c.filter()
	for i := 1; i < len(p.Rules); i++ {
		if p.Rules[i-1].Nr >= p.Rules[i].Nr {
			t.Fatalf("rule %d is about call %d, after one about %d", i, p.Rules[i].Nr, p.Rules[i-1].Nr)
		}
	}
	c.brokered, c.points = true, []point{{path: "/restricted", offered: toRead}}
	for _, r := range c.filter().Rules {
		if (r.Nr == unix.SYS_OPENAT || r.Nr == unix.SYS_TRUNCATE) && !refuses(r, unix.O_RDONLY|unix.O_CREAT) {
			t.Errorf("call %d makes the broker open a file", r.Nr)
		}
		if r.Nr == unix.SYS_OPENAT && refuses(r, unix.O_RDWR|unix.O_CREAT) {
			t.Errorf("nothing can be opened")
		}
	}
	if got := c.families(); !slices.Equal(got, []uint32{seccomp.FamilyNetlink}) {
		t.Errorf("families %v, want netlink alone", got)
	}
	c.spec.Broker.Sockets.All, c.closed = true, true
	if got := len(c.families()); got != 4 {
		t.Errorf("%d families, want all", got)
	}
	c.spec.Broker = nil
	if !c.allowsUnix() {
		t.Errorf("a spec without a broker allows every socket")
	}
}

// refuses says whether the first thing a rule looks at refuses flags of open.
func refuses(r seccomp.Rule, flags uint32) bool {
	refused := seccomp.Fail(uint16(unix.EACCES))
	if len(r.Checks) == 0 {
		return r.Else == refused
	}
	c := r.Checks[0]
	return c.Then == refused && flags&c.Mask == c.Value
}
