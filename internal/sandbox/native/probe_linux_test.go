package native

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probe is what runs inside: it looks at one thing and prints it.
func probe(args []string) error {
	switch args[0] {
	case "fds":
		return probeDescriptors()
	case "args":
		return probeArguments(args[1:])
	case "reopen":
		return probeReopen(args[1], args[2])
	case "orphans":
		return probeOrphans(args[1])
	case "signals":
		return probeSignals(args[1], args[2] == "true")
	case "signals-child":
		return probeSignalsChild(args[1], args[2] == "true")
	case "nothing":
		return nil
	}
	return fmt.Errorf("no such probe: %s", args[0])
}

func probeDescriptors() error {
	// Without the run-time's help, which would open some of its own.
	for fd := range 4096 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			fmt.Println(fd)
		}
	}
	return nil
}

func probeArguments(args []string) error {
	fmt.Println(len(args), digest(args), digest(os.Environ()))
	return nil
}

// digest tells lists apart, also by where one string ends.
func digest(list []string) string {
	h := sha256.New()
	for _, s := range list {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func probeReopen(name, how string) error {
	flags := map[string]int{"read": unix.O_RDONLY, "write": unix.O_WRONLY, "both": unix.O_RDWR, "truncate": unix.O_WRONLY | unix.O_TRUNC}[how]
	fd, err := unix.Open(name, flags, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// probeOrphans makes processes whose parents end before them, and prints how
// many of all that remain are zombies.
func probeOrphans(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for range n {
		shell, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "true & true & exit 0"}, &os.ProcAttr{Files: []*os.File{nil, nil, os.Stderr}})
		if err != nil {
			return err
		}
		if _, err := shell.Wait(); err != nil {
			return err
		}
	}
	// What is left ends by itself and is reaped by process 1: wait until this
	// process and process 1 are alone. On a busy machine that takes a while.
	for deadline := time.Now().Add(time.Minute); ; {
		others, zombies, err := processes()
		if err != nil {
			return err
		}
		if others == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New(strconv.Itoa(zombies) + " zombies")
		}
		runtime.Gosched()
	}
}

func processes() (others, zombies int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		others++
		if stat, err := os.ReadFile("/proc/" + e.Name() + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			zombies++
		}
	}
	return others, zombies, nil
}

// probeSignals says when it and its child, of the same group, got a signal.
func probeSignals(number string, group bool) error {
	got, err := notify(number)
	if err != nil {
		return err
	}
	reply, replyTo, err := os.Pipe()
	if err != nil {
		return err
	}
	order, orderTo, err := os.Pipe()
	if err != nil {
		return err
	}
	child, err := os.StartProcess("/probe", []string{"probe", "signals-child", number, strconv.FormatBool(group)},
		&os.ProcAttr{Files: []*os.File{order, replyTo, os.Stderr}})
	if err != nil {
		return err
	}
	replyTo.Close()
	order.Close()
	buf := make([]byte, 1)
	if _, err := reply.Read(buf); err != nil {
		return err
	}
	fmt.Println("ready")
	<-got
	fmt.Println("command")
	orderTo.Close()
	rest, err := io.ReadAll(reply)
	if err != nil {
		return err
	}
	fmt.Print(string(rest))
	_, err = child.Wait()
	return err
}

func probeSignalsChild(number string, group bool) error {
	got, err := notify(number)
	if err != nil {
		return err
	}
	fmt.Print("r")
	if group {
		<-got
		fmt.Println("child")
		return nil
	}
	// The end of stdin: the command has got it.
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	select {
	case <-got:
		fmt.Println("child")
	default:
	}
	return nil
}

func notify(number string) (<-chan os.Signal, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.Signal(n))
	return got, nil
}
