package native

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestSandboxStandsWithoutWhatTheKernelCannotTell(t *testing.T) {
	capture := &LaunchError{Wall: WallCapture, Errno: unix.EPROTONOSUPPORT}
	for _, c := range []struct {
		gate *spec.Gate
		err  error
		want bool
	}{
		{nil, capture, false},
		{&spec.Gate{}, errors.New("another"), false},
		{&spec.Gate{}, &LaunchError{Wall: WallNetwork}, false},
		{&spec.Gate{}, capture, true},
		{&spec.Gate{Silent: true}, capture, false},
		{&spec.Gate{Transparent: true, Must: true}, capture, true},
		{&spec.Gate{Transparent: true, Must: true, Silent: true}, capture, false},
		{&spec.Gate{Transparent: true, Silent: true}, capture, true},
	} {
		if got := isOptional(&spec.Spec{Gate: c.gate}, c.err); got != c.want {
			t.Errorf("%+v, %v: got %v", c.gate, c.err, got)
		}
	}
	for _, silent := range []bool{false, true} {
		s := gated(t, "pass")
		s.Gate.Silent = silent
		p, listeners, collect := startGated(t, s)
		p.Wait()
		collect()
		for _, role := range []config.Role{config.RolePeers, config.RoleRejected} {
			if (len(listeners[role]) > 0) == silent {
				t.Errorf("silent %v: %d sockets for %s", silent, len(listeners[role]), role)
			}
		}
		if len(listeners[config.RoleTCP]) == 0 {
			t.Errorf("silent %v: nothing is captured", silent)
		}
	}
}
