package server

import (
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
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

// spareCount is how many wait.
func (s *Server) spareCount() int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.waiting()
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

// withMemory is a server with a pool on a machine that has as much memory left as somebody
// says.
func withMemory(t *testing.T, free func() int64) *site {
	t.Helper()
	return newSite(t, func(c *Config) {
		withPool(c)
		c.Memory = func() (int64, bool) { return free(), true }
	})
}

func TestSparesMakeRoomWhereMemoryIsShort(t *testing.T) {
	var free atomic.Int64
	free.Store(8 << 30)
	s := withMemory(t, free.Load)
	s.create(&baileyv1.CreateSandboxRequest{})
	s.create(&baileyv1.CreateSandboxRequest{})
	if len(s.spares()) == 0 {
		t.Fatal("there are no spares")
	}
	s.pool.look()
	if len(s.spares()) == 0 {
		t.Error("spares ended where there is memory")
	}
	free.Store(2*reserveMemory - 1)
	s.pool.look()
	if got := s.spares(); len(got) != 0 {
		t.Errorf("%v wait where memory is short", got)
	}
	for range 2 {
		if _, was := s.isSpare(&baileyv1.CreateSandboxRequest{}); was {
			t.Error("a spare was made where memory is short")
		}
	}
	free.Store(reserveMemory - 1)
	_, err := s.CreateSandbox(ann, &baileyv1.CreateSandboxRequest{})
	wantReason(t, err, connect.CodeResourceExhausted, "memory_exhausted")
	free.Store(8 << 30)
	s.create(&baileyv1.CreateSandboxRequest{}) // what was asked for before is forgotten
	s.create(&baileyv1.CreateSandboxRequest{})
	if _, was := s.isSpare(&baileyv1.CreateSandboxRequest{}); !was {
		t.Error("no spare was made once there was memory again")
	}
}

func TestSparesEndBeforeASandboxIsRefused(t *testing.T) {
	var s *site
	var short atomic.Bool
	s = withMemory(t, func() int64 {
		if short.Load() && s.spareCount() > 0 {
			return reserveMemory - 1
		}
		return 8 << 30
	})
	s.create(&baileyv1.CreateSandboxRequest{})
	s.create(&baileyv1.CreateSandboxRequest{})
	before := s.spares()
	if len(before) == 0 {
		t.Fatal("there are no spares")
	}
	short.Store(true)
	id := s.create(&baileyv1.CreateSandboxRequest{Env: map[string]string{"ANOTHER": "kind"}})
	s.says(id, "echo here", "here\n")
	s.pool.work.Wait()
	state, err := s.remote.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range state.Boxes {
		if before[b.Name] != 0 {
			t.Errorf("the spare %s still stands", b.Name)
		}
	}
}

// A sandbox of the pool has a name before a request has one for it. Even so a request that
// is sent again after the end of the server gets one sandbox, and nothing is left of another.
func TestKeyedSandboxOfThePoolIsMadeOnce(t *testing.T) {
	for _, f := range []fatal{fatalAnswer, fatalObject} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, withPool)
			s.stop()
			armed := s.config.Dir + "/armed"
			w := startFrailArmed(t, s.config, f, armed)
			create := func(w *wired, key string) (*baileyv1.Sandbox, error) {
				return w.sandboxes.CreateSandbox(keyed(key), &baileyv1.CreateSandboxRequest{})
			}
			var want []string
			for _, key := range []string{"a", "b"} {
				sb, err := create(w, key)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, sb.GetId())
			}
			w.hears(t, "spare")
			if err := os.WriteFile(armed, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := create(w, "c"); connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("from a server that died: %v", err)
				_ = w.cmd.Process.Kill()
			}
			_ = w.cmd.Wait() // it was killed
			w = startFrail(t, s.config, nothing)
			for range 2 {
				sb, err := create(w, "c")
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, sb.GetId())
			}
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
			s.start()
			slices.Sort(want)
			s.hasOnly(slices.Compact(want), 3)
		})
	}
}

// hasOnly says whether there are these sandboxes, so many, and nothing of others.
func (s *site) hasOnly(ids []string, n int) {
	s.t.Helper()
	list, err := s.store.List(ann, store.Query{Kind: store.Sandboxes})
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := s.remote.State()
	if err != nil {
		s.t.Fatal(err)
	}
	var records, boxes []string
	for _, r := range list.Records {
		records = append(records, r.ID)
	}
	for _, b := range state.Boxes {
		boxes = append(boxes, b.Name)
	}
	slices.Sort(records)
	slices.Sort(boxes)
	if len(ids) != n || !slices.Equal(records, ids) || !slices.Equal(boxes, ids) {
		s.t.Errorf("answered were %v, there are records of %v, and %v stand; want %d", ids, records, boxes, n)
	}
}

func TestBatchNeedsNoTemplate(t *testing.T) {
	s := newSite(t, withPool)
	batch, err := s.BatchCreateSandboxes(ann, &baileyv1.BatchCreateSandboxesRequest{Count: 2})
	if err != nil || len(batch.GetSandboxes()) != 2 || len(batch.GetFailures()) > 0 {
		t.Fatalf("%v, %v", batch, err)
	}
}
