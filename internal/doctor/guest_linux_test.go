package doctor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// guestInit is process 1 of a virtual machine. Its first root directory is one that
// nothing can be pivoted away from, so everything is moved to another.
const guestInit = `#!/bin/busybox sh
if [ ! -e /moved ]; then
  /bin/busybox mkdir /new && /bin/busybox mount -t tmpfs -o mode=755 none /new
  /bin/busybox cp -a /bin /etc /init /home /new/ && : >/new/moved
  exec /bin/busybox switch_root /new /init
fi
busybox mkdir -p /proc /sys /dev /tmp /root /work
busybox mount -t proc none /proc; busybox mount -t sysfs none /sys; busybox mount -t devtmpfs none /dev
busybox mkdir -p /dev/pts /dev/shm; busybox mount -t devpts none /dev/pts; busybox mount -t tmpfs none /tmp; busybox chmod 1777 /tmp /work
busybox mount -t securityfs none /sys/kernel/security
export PATH=/bin HOME=/root; cd /work
for user in root u; do
  busybox su -s /bin/sh $user -c 'echo; echo BEGIN $0; bailey doctor --json; echo; echo END $0 $?; bailey -q -- sh -c "echo a >$0.txt && cat $0.txt"' $user
done
busybox poweroff -f
`

// The kernel of Debian 12 has the second interface of Landlock, and none of what
// came later.
func TestOldKernelIsDiagnosed(t *testing.T) {
	kernel := os.Getenv("BAILEY_TEST_KERNEL")
	if kernel == "" {
		kernel = filepath.Join(testenv.ModuleRoot(t), ".cache/kernel/vmlinuz")
	}
	testenv.Requires(t, testenv.Long, testenv.NoRace, testenv.Program("qemu-system-x86_64"), testenv.File(kernel))
	qemu := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "768", "-smp", "2", "-nodefaults", "-no-reboot",
		"-display", "none", "-serial", "stdio", "-kernel", kernel, "-initrd", guestImage(t), "-append", "console=ttyS0 quiet panic=-1")
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := qemu.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := strings.ReplaceAll(string(out), "\r", "")
	for _, user := range []string{"root", "u"} {
		_, after, _ := strings.Cut(text, "\nBEGIN "+user+"\n")
		report, rest, found := strings.Cut(after, "\nEND "+user+" 0\n")
		var d diagnosed
		if err := json.Unmarshal([]byte(report), &d.Report); !found || err != nil {
			t.Fatalf("%s: %v\n%s", user, err, text)
		}
		if !strings.HasPrefix(d.Kernel, "6.1.") || !d.Full || d.runtimes() != "native" {
			t.Errorf("%s: kernel %s, full %v, runtimes %q", user, d.Kernel, d.Full, d.runtimes())
		}
		if failed := d.failed(); !slices.Contains(failed, "Landlock with scopes") {
			t.Errorf("%s: failed: %q", user, failed)
		}
		if c := d.check(t, "Landlock with scopes"); !strings.Contains(c.Fix, "use Linux 6.12 or newer") {
			t.Errorf("%s: %+v", user, c)
		}
		if c := d.check(t, "Landlock"); c.Found != "interface 2" {
			t.Errorf("%s: %+v", user, c)
		}
		if !strings.HasPrefix(rest, "a\n") {
			t.Errorf("%s: nothing ran: %.200s", user, rest)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// guestImage is an initramfs of busybox and the programs of Bailey's.
func guestImage(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "etc", "home"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copies := map[string]string{"bin/busybox": busybox(t)}
	for _, program := range []string{"bailey", "baileyd", "bailey-gate"} {
		copies["bin/"+program] = testenv.Binary(t, program)
	}
	for name, from := range copies {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, name), string(data), 0o755)
	}
	for _, applet := range []string{"sh", "busybox", "echo", "cat"} {
		_ = os.Symlink("busybox", filepath.Join(root, "bin", applet)) // busybox itself is there
	}
	writeFile(t, filepath.Join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home:/bin/sh\n", 0o644)
	writeFile(t, filepath.Join(root, "init"), guestInit, 0o755)
	image := filepath.Join(t.TempDir(), "initramfs")
	pack := exec.Command("/bin/busybox", "sh", "-c", `cd "$0" && busybox find . | busybox cpio -o -H newc >"$1"`, root, image)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return image
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
