package limits

import (
	"reflect"
	"testing"
)

func TestLayoutsAreRead(t *testing.T) {
	for _, c := range []struct {
		name, mountinfo, cgroup string
		want                    []hierarchy
	}{
		{
			"version 2, a user's session",
			"24 30 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n25 30 0:23 / /proc rw - proc proc rw\n",
			"0::/user.slice/user-1000.slice/session-3.scope\n",
			[]hierarchy{{unified: true, mount: "/sys/fs/cgroup", own: "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"}},
		},
		{
			"both versions",
			"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n" +
				"36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n",
			"4:memory:/job\n1:cpu,cpuacct:/\n9:name=systemd:/s\n0::/\n",
			[]hierarchy{
				{controllers: []string{"rw", "cpu", "cpuacct"}, mount: "/sys/fs/cgroup/cpu,cpuacct", own: "/sys/fs/cgroup/cpu,cpuacct"},
				{controllers: []string{"rw", "memory"}, mount: "/sys/fs/cgroup/memory", own: "/sys/fs/cgroup/memory/job"},
				{controllers: []string{"rw", "xattr", "name=systemd"}, mount: "/sys/fs/cgroup/systemd", own: "/sys/fs/cgroup/systemd/s"},
				{unified: true, mount: "/sys/fs/cgroup/unified", own: "/sys/fs/cgroup/unified", readOnly: true},
			},
		},
		{
			"a container that sees its own part",
			"36 31 0:33 /docker/ab /cg\\040roups/memory ro - cgroup cgroup rw,memory\n",
			"4:memory:/docker/ab/inner\n",
			[]hierarchy{{controllers: []string{"rw", "memory"}, mount: "/cg roups/memory", own: "/cg roups/memory/inner", readOnly: true}},
		},
		{
			"a group that the mount does not show",
			"36 31 0:33 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n24 30 0:22 / /c rw - cgroup2 c rw\n",
			"4:memory:/docker/abc\n0::/../other\n",
			nil,
		},
		{"nothing", "", "0::/\n", nil},
		{"broken lines", "x\n1 2 - cgroup2\n1 2 3 4 5 6 - cgroup2 a\n", "::\n0\n", nil},
	} {
		if got := parseLayout(c.mountinfo, c.cgroup); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestFieldsAreRead(t *testing.T) {
	const events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
	if n, ok := field(events, "oom_kill"); n != 2 || !ok {
		t.Errorf("got %d, %v; want 2", n, ok)
	}
	if n, ok := field(events, "oom_ki"); ok {
		t.Errorf("got %d for a name that is not there", n)
	}
	if n, ok := number("max\n"); ok {
		t.Errorf("got %d for no limit", n)
	}
	if n, ok := number("4096\n"); n != 4096 || !ok {
		t.Errorf("got %d, %v; want 4096", n, ok)
	}
}

func TestTransfersAreAddedUp(t *testing.T) {
	for _, c := range []struct {
		text          string
		read, written int64
	}{
		{"254:0 rbytes=4096 wbytes=10 rios=1 wios=0 dbytes=7 dios=0\n8:0 rbytes=4 wbytes=5\n", 4100, 15},
		{"254:0 Read 4096\n254:0 Write 1\n254:0 Sync 9\n254:0 Total 4097\n8:0 Read 1\nTotal 4098\n", 4097, 1},
		{"", 0, 0},
	} {
		if r, w := transferred(c.text); r != c.read || w != c.written {
			t.Errorf("%q: got %d, %d; want %d, %d", c.text, r, w, c.read, c.written)
		}
	}
}
