package server

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// spares are the sandboxes that wait, once all that are being made are.
func (s *site) spares() map[string]int {
	s.pool.work.Wait()
	return s.waiting()
}

// waiting are the sandboxes that wait now.
func (s *site) waiting() map[string]int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	pids := make(map[string]int)
	for _, st := range s.pool.stocks {
		for _, r := range st.ready {
			pids[r.standing.Name] = r.standing.Pid
		}
	}
	return pids
}

// isSpare creates a sandbox and says whether it was a spare.
func (s *site) isSpare(r *baileyv1.CreateSandboxRequest) (id string, was bool) {
	s.t.Helper()
	before := s.spares()
	id = s.create(r)
	_, was = before[id]
	return id, was
}

func withPool(c *Config) { c.Pool = 3 }

func TestSparesAreMadeForWhatIsAskedForAgain(t *testing.T) {
	s := newSite(t, withPool)
	c := s.codebaseOf(map[string]string{"a": "one\n"})
	request := func() *baileyv1.CreateSandboxRequest {
		return &baileyv1.CreateSandboxRequest{Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: c}, Env: map[string]string{"X": "x"}}
	}
	for i, want := range []bool{false, false, true, true} {
		id, was := s.isSpare(request())
		if was != want {
			t.Errorf("sandbox %d was a spare: %t", i, was)
		}
		s.says(id, "cat a; echo $X; echo mine > a; touch b", "one\nx\n")
	}
	named := request()
	named.Name, named.Labels, named.IdleTimeout, named.Ttl = "n", map[string]string{"l": "v"}, durationpb.New(1e12), durationpb.New(1e12)
	id, was := s.isSpare(named)
	sb, err := s.GetSandbox(ann, &baileyv1.GetSandboxRequest{SandboxId: id})
	if err != nil || !was || sb.GetName() != "n" || sb.GetLabels()["l"] != "v" || sb.GetOwner() != "ann" || sb.GetExpireTime() == nil || sb.GetRuntime() != "native" {
		t.Errorf("a spare: %t, %v, %v", was, sb, err)
	}
	s.says(id, "cat a; ls", "one\na\n") // nothing of those before

	other := request()
	other.Env["X"] = "y"
	if _, was := s.isSpare(other); was {
		t.Error("a sandbox with another environment was a spare")
	}
	s.fillCodebase(c, map[string]string{"a": "two\n"})
	id, was = s.isSpare(request())
	if was {
		t.Error("a spare of an earlier version of the codebase was given away")
	}
	s.says(id, "cat a", "two\n")
	if n := len(s.spares()); n > 3 {
		t.Errorf("%d spares, of at most 3", n)
	}
}

func TestNothingIsLeftOfSpares(t *testing.T) {
	s := newSite(t, withPool)
	ids := map[string]bool{s.create(&baileyv1.CreateSandboxRequest{}): true, s.create(&baileyv1.CreateSandboxRequest{}): true}
	for id, pid := range s.spares() {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for s.waiting()[id] != 0 {
			runtime.Gosched() // until it is noticed
		}
	}
	s.pool.drain()
	s.pool.work.Wait()
	list, err := s.store.List(ann, store.Query{Kind: store.Sandboxes})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Records {
		ids[r.ID] = true
	}
	state, err := s.remote.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range state.Boxes {
		if !ids[b.Name] {
			t.Errorf("%s stands and belongs to nothing", b.Name)
		}
	}
	files, err := s.files.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !ids[f.Name] {
			t.Errorf("files of %s are left", f.Name)
		}
	}
}
