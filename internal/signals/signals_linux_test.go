package signals

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSignalsReachTheOtherProcess(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM} {
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		pidfd, err := unix.PidfdOpen(child.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		before := swap(sig, nil)
		Forward(pidfd, sig)
		if err := unix.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		child.Wait()
		swap(sig, &before)
		unix.Close(pidfd)
		if ws := child.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != sig {
			t.Errorf("%v: the other process ended with %v", sig, child.ProcessState)
		}
	}
}

func TestIgnoredSignalsAreNotForwarded(t *testing.T) {
	signal.Ignore(unix.SIGHUP)
	defer signal.Reset(unix.SIGHUP)
	Forward(-1, unix.SIGHUP)
	if got := swap(unix.SIGHUP, nil); got.handler != ignored {
		t.Errorf("handler is %#x", got.handler)
	}
}

func TestWithDefaultPutsTheActionBack(t *testing.T) {
	before := swap(unix.SIGUSR1, nil)
	WithDefault(unix.SIGUSR1, func() {
		if got := swap(unix.SIGUSR1, nil); got.handler != 0 {
			t.Errorf("handler is %#x, want the default", got.handler)
		}
	})
	if after := swap(unix.SIGUSR1, nil); after != before {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

func TestStopsOfChildrenSendNoSignal(t *testing.T) {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, unix.SIGCHLD)
	defer signal.Stop(heard)
	before := swap(unix.SIGCHLD, nil)
	defer swap(unix.SIGCHLD, &before)
	for _, ignore := range []bool{false, true} {
		child := exec.Command("sh", "-c", "kill -STOP $$; exec sleep 60")
		if ignore {
			IgnoreStops()
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(child.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("stop of the child: %v, status %#x", err, status)
		}
		if !ignore {
			<-heard // or the test is about nothing
		} else if len(heard) > 0 {
			t.Error("a stopped child was told of")
		}
		child.Process.Kill()
		child.Wait()
		<-heard // of its end
	}
}
