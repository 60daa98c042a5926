package keeper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestClientGivesUpOnAStoppedKeeper(t *testing.T) {
	pid := startKeeper(t)
	s := compiled(t, "true")
	before, err := Own().dial(true)
	if err != nil {
		t.Fatal(err)
	}
	defer before.close()
	greeted := Connect()
	if !greeted.conn.isReady() {
		t.Fatal("the keeper does not greet")
	}
	patient := silence
	silence = 100 * time.Millisecond
	goOn := func() {
		silence = patient
		signal(t, pid, unix.SIGCONT)
	}
	t.Cleanup(goOn)
	signal(t, pid, unix.SIGSTOP)
	if _, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil); err != nil { // until all of it has stopped
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, request := range map[string]func() error{
		"list": func() error { _, err := List(); return err },
		"run": func() error {
			_, err := Connect().Start(runOf("dev", s), s, [3]*os.File{null, null, null}, nil, nil)
			return err
		},
		"stop": func() error { return End(Stop{Names: []string{"dev"}}) },
		"logs": func() error { return Read(Logs{Name: "dev", Follow: true}, os.Stderr) },
		"keep": func() error { _, err := Keep("dev", s, 0); return err },
		"run, greeted before it stopped": func() error {
			cmd, err := greeted.Start(runOf("dev", s), s, [3]*os.File{null, null, null}, nil, nil)
			if err != nil {
				return err
			}
			defer cmd.Close()
			cmd.Wait()
			return cmd.Err
		},
		"what was asked of it before it stopped": func() error {
			_, err := before.exchange(askList, nil)
			return err
		},
	} {
		err := request()
		if !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
			t.Errorf("%s: got %v, want that process %d does not answer", name, err, pid)
		}
	}
	goOn()
	if _, err := List(); err != nil {
		t.Errorf("when it goes on: %v", err)
	}
}

// A request may take longer than the keeper may be silent.
func TestClientWaitsForABusyKeeper(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "sh", "-c", "trap '' TERM; echo ready; sleep 1000")
	run := runOf("dev", s)
	run.Detach = true
	leave(t, run, s)
	if err := Read(Logs{Name: "dev", Follow: true}, once{}); !errors.Is(err, errEnough) {
		t.Fatalf("got %v", err)
	}
	patient := silence
	silence = 50 * time.Millisecond
	t.Cleanup(func() { silence = patient })
	if err := End(Stop{Names: []string{"dev"}, Grace: 4 * silence}); err != nil {
		t.Error(err)
	}
}

// once is a writer for who wants to know only that something was written.
type once struct{}

var errEnough = errors.New("enough")

func (once) Write([]byte) (int, error) { return 0, errEnough }

func signal(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}
