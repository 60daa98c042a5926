package native

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Whatever was foreseen, what holds is the Spec.
func TestForeseenNetworkIsTheSpecs(t *testing.T) {
	ports := []config.Ports{{From: 7000, To: 8000}}
	for name, test := range map[string]struct {
		foreseen *spec.Spec
		again    bool // from the beginning
	}{
		"as it is": {&spec.Spec{Network: spec.NetworkGate, Gate: &spec.Gate{Transparent: true, Must: true, Local: ports}}, false},
		"nothing":  {&spec.Spec{Network: spec.NetworkNone}, false},
		"other ports": {&spec.Spec{Network: spec.NetworkGate, Gate: &spec.Gate{
			Transparent: true, Must: true, Local: []config.Ports{{From: 1, To: 2}},
		}}, true},
		"without capture": {&spec.Spec{Network: spec.NetworkGate, Gate: &spec.Gate{Local: ports}}, true},
		"exposed ports":   {&spec.Spec{Network: spec.NetworkNone, Expose: []spec.Exposure{{Address: "127.0.0.1", Inside: 80}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := gated(t, `
for host, port in [("192.0.2.7", 443), ("127.0.0.1", 7777)]:
    s = socket.create_connection((host, port)); print(s.recv(10).decode(), flush=True)
try: socket.socket().bind(("127.0.0.1", 80)); print("bound")
except OSError as e: print(e.strerror)
`, ports...)
			p, collect := startAfter(t, s, test.again, func(e *Embryo) { e.Foresee(test.foreseen) })
			for _, l := range p.Listeners {
				defer l.File.Close()
				if l.Role != config.RoleTCP {
					continue
				}
				listener := listener(t, l.File)
				for range 2 {
					c, err := listener.Accept()
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprint(c, "gate")
					c.Close()
				}
				break // of IPv6 there are none
			}
			p.Wait()
			if got := collect(); got != "gate\ngate\nPermission denied\n" {
				t.Errorf("inside: %q", got)
			}
		})
	}
}

func TestWhatWasForeseenAndFailsIsNamed(t *testing.T) {
	s := gated(t, "")
	s.Gate.Silent = true
	for range 4000 { // more than a message can hold
		s.Gate.Local = append(s.Gate.Local, config.Ports{From: 1, To: 2})
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e, err := Begin(Options{Streams: nulls(t)})
	if err != nil {
		t.Fatal(err)
	}
	e.Foresee(s)
	_, err = e.Start(s)
	var launch *LaunchError
	if !errors.As(err, &launch) || launch.Wall != WallCapture || launch.Errno == unix.Errno(0) {
		t.Errorf("got %v", err)
	}
}

// startAfter starts a sandbox of which something was done ahead, and checks
// whether that was of use or it began again.
func startAfter(t *testing.T, s *spec.Spec, again bool, ahead func(*Embryo)) (p *Process, collect func() string) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	streams, collect := outputTo(t)
	e, err := Begin(Options{Streams: streams})
	if err != nil {
		t.Fatal(err)
	}
	first := e.proc.Pid
	ahead(e)
	if p, err = e.Start(s); err != nil {
		t.Fatal(err)
	}
	closeStreams(streams)
	if (p.Pid != first) != again {
		t.Errorf("process %d was begun, and %d is it", first, p.Pid)
	}
	return p, collect
}

// Whatever was drafted, what holds is the Spec.
func TestDraftedMountsAreTheSpecs(t *testing.T) {
	requireSandbox(t)
	for name, test := range map[string]struct {
		draft func(*spec.Spec)
		again bool
	}{
		"as it is":         {func(*spec.Spec) {}, false},
		"one fewer":        {func(s *spec.Spec) { s.Mounts = s.Mounts[:len(s.Mounts)-1] }, true},
		"another":          {func(s *spec.Spec) { m := &s.Mounts[len(s.Mounts)-1]; m.Write = !m.Write }, true},
		"another network":  {func(s *spec.Spec) { s.Network = spec.NetworkHost }, false},
		"another identity": {func(s *spec.Spec) { s.Identity.UID++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := shell(t, "echo inside")
			draft := *s
			draft.Mounts = slices.Clone(s.Mounts)
			test.draft(&draft)
			p, collect := startAfter(t, s, test.again, func(e *Embryo) { e.Draft(&draft) })
			if state, out := p.Wait(), collect(); state.Wait != 0 || out != "inside\n" {
				t.Errorf("%+v, %q", state, out)
			}
		})
	}
}
