package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// childVariable makes the test program a server that is meant to be killed.
const childVariable = "BAILEY_TEST_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		fmt.Fprintln(os.Stderr, serveChild(text))
		os.Exit(1)
	}
	if text := os.Getenv(frailVariable); text != "" {
		fmt.Fprintln(os.Stderr, serveFrail(text))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// order is a request to the child, and its answer.
type order struct {
	Number                        int
	Verb, Sandbox, Codebase, Text string
	Failed                        string
}

// serveChild carries out orders, each as soon as it comes.
func serveChild(text string) error {
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	db, err := store.Open(context.Background(), c.Dir+"/db")
	if err != nil {
		return err
	}
	c.Store = db
	s, err := Open(context.Background(), c)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	answer := func(o order) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(o) // nobody may be there any more
	}
	answer(order{})
	for lines := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := lines.Decode(&o); err != nil {
			return err
		}
		go func() {
			if err := s.obey(&o); err != nil {
				o.Failed = err.Error()
			}
			answer(o)
		}()
	}
}

func (s *Server) obey(o *order) (err error) {
	switch o.Verb {
	case "create":
		var sb *baileyv1.Sandbox
		sb, err = s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{
			Labels: map[string]string{"client": o.Text}, Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: o.Codebase},
		})
		o.Sandbox = sb.GetId()
	case "destroy":
		_, err = s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: o.Sandbox})
	case "stop":
		_, err = s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: o.Sandbox, Grace: durationpb.New(0)})
	case "start":
		_, err = s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: o.Sandbox})
	case "write":
		_, err = s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: o.Sandbox, Path: "file", Content: []byte(o.Text)})
	case "edit":
		_, err = s.WriteFile(ann, &baileyv1.WriteFileRequest{CodebaseId: o.Codebase, Path: "shared", Content: []byte(o.Text)})
	case "apply":
		path := applied(o.Sandbox)
		_, err = s.WriteFile(ann, &baileyv1.WriteFileRequest{SandboxId: o.Sandbox, Path: path, Content: []byte(o.Text)})
		if err == nil {
			_, err = s.ApplySandbox(ann, &baileyv1.ApplySandboxRequest{SandboxId: o.Sandbox, Paths: []string{path}})
		}
	case "run":
		_, err = s.RunExec(ann, &baileyv1.RunExecRequest{SandboxId: o.Sandbox, Command: &baileyv1.Command{Shell: "echo " + o.Text + " >> log"}})
	}
	return err
}

// applied is the file that a sandbox applies to its codebase.
func applied(id string) string { return "of-" + id }

// child is a server in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan order // nil after its end
}

func startChild(t *testing.T, c Config) *child {
	t.Helper()
	c.Store, c.Log = nil, nil
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	k := &child{cmd: exec.Command(os.Args[0]), waiting: make(map[int]chan order)}
	k.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	k.cmd.Stderr = os.Stderr
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan order, 1)
	k.waiting[0] = ready
	go k.listen(out)
	if _, ok := <-ready; !ok {
		t.Fatal("the child has not started")
	}
	return k
}

func (k *child) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var o order
		if json.Unmarshal(lines.Bytes(), &o) != nil {
			break
		}
		k.mu.Lock()
		w := k.waiting[o.Number]
		delete(k.waiting, o.Number)
		k.mu.Unlock()
		if w != nil {
			w <- o
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.waiting {
		close(w)
	}
	k.waiting = nil
}

// do has an order carried out. If it is not known whether it was, ok is false.
func (k *child) do(o order) (answer order, ok bool) {
	w := make(chan order, 1)
	k.mu.Lock()
	if k.waiting == nil {
		k.mu.Unlock()
		return o, false
	}
	k.last++
	o.Number = k.last
	k.waiting[o.Number] = w
	k.mu.Unlock()
	line, err := json.Marshal(o)
	if err == nil {
		k.mu.Lock()
		_, _ = k.in.Write(append(line, '\n')) // if it is gone, nobody answers
		k.mu.Unlock()
	}
	answer, ok = <-w
	return answer, ok
}

// model is what a client knows of a sandbox of its own. What was asked for and
// not acknowledged may be so or not.
type model struct {
	id         string
	running    bool
	unsure     bool // about running
	file, next string
	log        []string
	maybeLog   string
	maybeGone  bool

	out, nextOut string // as they were applied to the codebase
}

// client uses sandboxes and a codebase of its own, at random, until the server is
// killed.
type client struct {
	t     *testing.T
	name  string
	boxes []*model
	count int

	codebase           string
	shared, nextShared string // a file in it
}

func (c *client) work(k *child, acknowledged chan<- struct{}) {
	for c.step(k) {
		acknowledged <- struct{}{}
	}
}

// step does one thing and says whether it was acknowledged.
func (c *client) step(k *child) bool {
	c.count++
	text := fmt.Sprintf("%s-%d", c.name, c.count)
	if len(c.boxes) < 2 {
		o, ok := k.do(order{Verb: "create", Text: c.name, Codebase: c.codebase})
		if ok && c.check(o) {
			c.boxes = append(c.boxes, &model{id: o.Sandbox, running: true})
		}
		return ok
	}
	at := rand.IntN(len(c.boxes))
	m := c.boxes[at]
	switch verb := []string{"run", "run", "write", "write", "edit", "apply", "stop", "destroy"}[rand.IntN(8)]; {
	case verb == "edit":
		c.nextShared = text
		o, ok := k.do(order{Verb: verb, Codebase: c.codebase, Text: text})
		if ok && c.check(o) {
			c.shared = text
		}
		return ok
	case verb == "apply":
		m.nextOut = text
		o, ok := k.do(order{Verb: verb, Sandbox: m.id, Text: text})
		if ok && c.check(o) {
			m.out = text
		}
		return ok
	case verb == "destroy":
		m.maybeGone = true
		o, ok := k.do(order{Verb: verb, Sandbox: m.id})
		if ok && c.check(o) {
			c.boxes = append(c.boxes[:at], c.boxes[at+1:]...)
		}
		return ok
	case !m.running || verb == "stop":
		m.unsure = true
		o, ok := k.do(order{Verb: map[bool]string{true: "stop", false: "start"}[m.running], Sandbox: m.id})
		if ok && c.check(o) {
			m.running, m.unsure = !m.running, false
		}
		return ok
	case verb == "write":
		m.next = text
		o, ok := k.do(order{Verb: verb, Sandbox: m.id, Text: text})
		if ok && c.check(o) {
			m.file = text
		}
		return ok
	}
	m.maybeLog = text
	o, ok := k.do(order{Verb: "run", Sandbox: m.id, Text: text})
	if ok && c.check(o) {
		m.log, m.maybeLog = append(m.log, text), ""
	}
	return ok
}

func (c *client) check(o order) bool {
	if o.Failed != "" {
		c.t.Errorf("%s of %s: %s", o.Verb, o.Sandbox, o.Failed)
	}
	return o.Failed == ""
}

// compare looks whether everything is as it was acknowledged, and takes what was
// not for what it is.
func (c *client) compare(s *site) {
	c.t.Helper()
	c.shared = c.compareShared(s, "shared", c.shared, c.nextShared)
	list, err := s.ListSandboxes(ann, &baileyv1.ListSandboxesRequest{Labels: []string{"client=" + c.name}})
	if err != nil {
		c.t.Fatal(err)
	}
	there := make(map[string]*baileyv1.Sandbox)
	for _, sb := range list.GetSandboxes() {
		there[sb.GetId()] = sb
	}
	var left []*model
	for _, m := range c.boxes {
		sb := there[m.id]
		delete(there, m.id)
		if sb == nil {
			if !m.maybeGone {
				c.t.Errorf("%s is lost", m.id)
			}
			continue
		}
		c.compareOne(s, m, sb)
		left = append(left, m)
	}
	if len(there) > 1 { // one may have been made and not acknowledged
		c.t.Errorf("%d sandboxes that nobody made", len(there))
	}
	for id, sb := range there {
		left = append(left, &model{id: id, running: sb.GetState() == baileyv1.SandboxState_SANDBOX_STATE_RUNNING})
	}
	c.boxes = left
}

// compareShared looks at a file of the codebase, which is as it was acknowledged or
// as it was asked for last.
func (c *client) compareShared(s *site, path, was, next string) string {
	c.t.Helper()
	r, err := s.ReadFile(ann, &baileyv1.ReadFileRequest{CodebaseId: c.codebase, Path: path})
	if connect.CodeOf(err) == connect.CodeNotFound && was == "" {
		return ""
	}
	got := string(r.GetContent())
	if err != nil || got != was && got != next {
		c.t.Errorf("%s in %s is %q (%v), and was written as %q", path, c.codebase, got, err, was)
	}
	return got
}

func (c *client) compareOne(s *site, m *model, sb *baileyv1.Sandbox) {
	c.t.Helper()
	runs := sb.GetState() == baileyv1.SandboxState_SANDBOX_STATE_RUNNING
	if runs != m.running && !m.unsure && !m.maybeGone {
		c.t.Errorf("%s is %v: %s", m.id, sb.GetState(), sb.GetStateReason())
	}
	m.running, m.unsure, m.maybeGone = runs, false, false
	m.out = c.compareShared(s, applied(m.id), m.out, m.nextOut)
	if got, err := s.read(m.id, "file"); connect.CodeOf(err) == connect.CodeNotFound && m.file == "" {
		m.next = ""
	} else if err != nil || got != m.file && got != m.next {
		c.t.Errorf("%s: the file is %q (%v), and was written as %q", m.id, got, err, m.file)
	} else {
		m.file = got
	}
	log, err := s.read(m.id, "log")
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		c.t.Error(err)
	}
	got := strings.Fields(log)
	if n := len(m.log); len(got) > n && got[n] == m.maybeLog {
		m.log = append(m.log, m.maybeLog)
	}
	m.maybeLog = ""
	if strings.Join(got, " ") != strings.Join(m.log, " ") {
		c.t.Errorf("%s: the log is %q, and was written as %q", m.id, got, m.log)
	}
}

// A server that is killed in the middle of work loses nothing that it has
// acknowledged, and leaves nothing that belongs to nobody.
func TestKilledServerLosesNothing(t *testing.T) {
	s := newSite(t, nil)
	clients := []*client{{t: t, name: "a"}, {t: t, name: "b"}, {t: t, name: "c"}}
	for _, c := range clients {
		c.codebase, c.shared = s.codebaseOf(map[string]string{"shared": "first"}), "first"
	}
	for range testenv.Count(4, 500) {
		s.stop()
		k := startChild(t, s.config)
		acknowledged := make(chan struct{})
		var group sync.WaitGroup
		for _, c := range clients {
			group.Go(func() { c.work(k, acknowledged) })
		}
		go func() { group.Wait(); close(acknowledged) }()
		limit := 3 + rand.IntN(20)
		for n := 0; ; n++ {
			if _, ok := <-acknowledged; !ok {
				break
			}
			if n == limit {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = k.cmd.Process.Kill() })
			}
		}
		_ = k.cmd.Wait() // it was killed
		s.start()
		for _, c := range clients {
			c.compare(s)
		}
		s.checkOrphans()
	}
}

// checkOrphans looks for what belongs to no sandbox.
func (s *site) checkOrphans() {
	s.t.Helper()
	page, err := s.store.List(ann, store.Query{Kind: store.Sandboxes})
	if err != nil {
		s.t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, r := range page.Records {
		known[r.ID] = true
	}
	s.mu.Lock()
	for _, v := range s.views { // in which the test has just read
		known[v.name] = true
	}
	s.mu.Unlock()
	entries, err := os.ReadDir(s.config.Dir + "/data/workspaces")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			s.t.Errorf("files of %s", e.Name())
		}
	}
	state, err := s.remote.State()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range state.Boxes {
		if !known[b.Name] {
			s.t.Errorf("processes of %s", b.Name)
		}
	}
	if entries, _ := os.ReadDir(s.spool()); len(entries) > 0 {
		s.t.Errorf("output of %v", entries)
	}
}
