package limits

import (
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// startBus starts the reference implementation.
func startBus(t *testing.T) (socket string) {
	t.Helper()
	testenv.Requires(t, testenv.Program("dbus-daemon"))
	socket = filepath.Join(t.TempDir(), "bus")
	daemon := exec.Command("dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:path="+socket)
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil { // it listens when it tells its address
		t.Fatal(err)
	}
	return socket
}

func TestTheBusUnderstands(t *testing.T) {
	b, err := dialBus(startBus(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	reply, err := b.call(message{path: "/org/freedesktop/DBus", dest: busName, face: busName, member: "GetNameOwner", signature: "s", body: marshal(busName)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (&decoder{data: reply.body}).text(); got != busName || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, busName)
	}
	// There is no systemd on it. That the bus knows what was wanted shows that it
	// has read the whole request: it closes the connection on one that is broken.
	err = b.startScope("bailey-1.scope", []uint32{1, 2, 3})
	if err == nil || !strings.Contains(err.Error(), systemdName) {
		t.Errorf("got %v, want an answer that nobody has the name %s", err, systemdName)
	}
	request := message{path: systemdPath, dest: busName, face: managerFace, member: "StartTransientUnit", signature: "ssa(sv)a(sa(sv))", body: scopeRequest("u.scope", []uint32{1, 2, 3})}
	if _, err := b.call(request); err == nil || !strings.Contains(err.Error(), "StartTransientUnit") {
		t.Errorf("got %v, want an answer that there is no such method", err)
	}
}

func TestABusThatIsNotThereIsAnError(t *testing.T) {
	if _, err := dialBus(filepath.Join(t.TempDir(), "bus")); err == nil {
		t.Error("got a connection to nothing")
	}
}

func TestMessagesAreAsTheBusWantsThem(t *testing.T) {
	m := message{path: "/a", dest: "b.c", face: "d.e", member: "F", signature: "s", body: marshal("xyz")}
	const want = "6c010001080000000700000047000000" + // order, kind, flags, version, body, serial, fields
		"01016f00020000002f61000000000000" + // path
		"0601730003000000622e630000000000" + // destination
		"0201730003000000642e650000000000" + // interface
		"03017300010000004600000000000000" + // member
		"0801670001730000" + // signature
		"0300000078797a00"
	if got := hex.EncodeToString(m.encode(7)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMessagesComeBack(t *testing.T) {
	m := message{path: "/a", dest: "b.c", face: "d.e", member: "JobRemoved", signature: "uoss"}
	whole := m.encode(1)
	var got message
	if err := got.readFields(whole[16:]); err != nil {
		t.Fatal(err)
	}
	if got.member != m.member || got.signature != m.signature {
		t.Errorf("got %+v", got)
	}
}

func TestRequestsNameEveryProcess(t *testing.T) {
	d := &decoder{data: scopeRequest("bailey-1.scope", []uint32{1, 70000})}
	for _, want := range []string{"bailey-1.scope", "fail"} {
		if got, err := d.text(); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	length, err := d.uint32()
	if err != nil {
		t.Fatal(err)
	}
	end := d.at + int(length)
	d.align(8)
	end += d.at - (end - int(length))
	properties := map[string]any{}
	for d.align(8); d.at < end; d.align(8) {
		name, kind := readText(t, d), readSignature(t, d)
		switch kind {
		case "s":
			properties[name] = readText(t, d)
		case "b":
			properties[name] = readNumber(t, d)
		case "au":
			list := make([]uint32, readNumber(t, d)/4)
			for i := range list {
				list[i] = readNumber(t, d)
			}
			properties[name] = list
		}
	}
	if pids, _ := properties["PIDs"].([]uint32); !slices.Equal(pids, []uint32{1, 70000}) || properties["Delegate"] != uint32(1) {
		t.Errorf("got %v", properties)
	}
}

func readText(t *testing.T, d *decoder) string {
	t.Helper()
	s, err := d.text()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readSignature(t *testing.T, d *decoder) string {
	t.Helper()
	s, err := d.signature()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readNumber(t *testing.T, d *decoder) uint32 {
	t.Helper()
	n, err := d.uint32()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func FuzzFields(f *testing.F) {
	m := message{path: "/a", dest: "b.c", face: "d.e", member: "F", signature: "s"}
	f.Add(m.encode(1)[16:])
	f.Add([]byte{5, 1, 'u', 0, 1, 0, 0, 0})
	f.Add([]byte{8, 1, 'g', 0, 255})
	f.Fuzz(func(_ *testing.T, data []byte) {
		var m message
		_ = m.readFields(data) // must not panic, nor run for long
		d := &decoder{data: data}
		for {
			if _, err := d.text(); err != nil {
				return
			}
		}
	})
}
