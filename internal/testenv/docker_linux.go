package testenv

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// dockerDir begins the name of an engine's directory.
const dockerDir = "dockerd"

// Dockerd starts a Docker engine of the test's own, with nothing of the machine's, and
// returns where it listens, for DOCKER_HOST. It has gVisor as well where runsc is in PATH.
// Only root can start one, and nothing is left of it after the test.
func Dockerd(t testing.TB) (address string) {
	t.Helper()
	Requires(t, Root, Program("dockerd"))
	// Not the test's own directory, whose name is too long for a socket in it.
	dir, err := os.MkdirTemp("", dockerDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	group := "bailey-test-" + strconv.Itoa(os.Getpid())
	c := exec.Command("dockerd", "--config-file", dockerConfig(t, dir), "--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid",
		"-H", "unix://"+dir+"/sock", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs", "--cgroup-parent=/"+group)
	log, err := os.Create(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/ready", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	c.Env = append(os.Environ(), "NOTIFY_SOCKET="+dir+"/ready")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // how it ended is in its log
		_ = ready.Close()
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		<-ended
		unmountBelow(dir)
		removeGroups(group)
	})
	if !isReady(ready) {
		text, _ := os.ReadFile(dir + "/log")
		t.Fatalf("dockerd ended:\n%s", text)
	}
	return "unix://" + dir + "/sock"
}

// isReady waits for what a service tells systemd.
func isReady(from *net.UnixConn) bool {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return false
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return true
		}
	}
}

// dockerConfig writes the configuration that cannot be said by flags.
func dockerConfig(t testing.TB, dir string) string {
	t.Helper()
	type runtime struct {
		Path string   `json:"path"`
		Args []string `json:"runtimeArgs"`
	}
	runtimes := map[string]runtime{}
	if path, err := exec.LookPath("runsc"); err == nil {
		runtimes["runsc"] = runtime{path, []string{"--oci-seccomp", "--network=none", "--host-uds=open"}}
	}
	text, err := json.Marshal(map[string]any{"runtimes": runtimes})
	if err != nil {
		t.Fatal(err)
	}
	file := dir + "/daemon.json"
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// unmountBelow takes down the namespaces that an engine leaves mounted.
func unmountBelow(dir string) {
	table, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
}

// removeGroups removes the control groups that an engine leaves, which are empty.
func removeGroups(name string) {
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		dirs, _ := filepath.Glob(pattern + name)
		for _, dir := range dirs {
			_ = os.Remove(dir)
		}
	}
}
