package keeper

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/processes"
)

// firstChild waits until the keeper has begun with something.
func firstChild(pid int) int {
	for {
		if list := processes.Children(pid); len(list) > 0 {
			return list[0]
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSandboxIsBegunWhenItIsAnnounced(t *testing.T) {
	pid := startKeeper(t)
	s := linkTo(t, time.Minute)
	plan := compiled(t, "true")
	const tries = 20 // a machine that is busy may be too slow for the keeper's patience
	for i := range tries {
		name := fmt.Sprint("box-", i)
		s.Expect(name)
		child := firstChild(pid)
		st, err := s.Open(name, plan, 0)
		if err != nil {
			t.Fatal(err)
		}
		if x, out := s.run(Exec{Box: name, ID: name, Argv: []string{"echo", "here"}}); out != "here\n" || unix.WaitStatus(x.Wait).ExitStatus() != 0 {
			t.Errorf("%q, %+v", out, x)
		}
		if st.Pid == child {
			return
		}
		if err := s.Stop(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("of %d sandboxes that were announced none was begun", tries)
}

func TestSandboxThatIsNotAskedForEnds(t *testing.T) {
	pid := startKeeper(t)
	s := linkTo(t, time.Minute)
	for range 2 { // by the same name, and for more than there is place for
		for i := range maxExpected + 2 {
			s.Expect(strconv.Itoa(i))
		}
	}
	firstChild(pid)
	for len(processes.Children(pid)) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	s.open("0") // as if it had not been announced
}
