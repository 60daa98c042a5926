package host

import "testing"

func TestHomeIsFoundInThePasswordFile(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\nbad:x:7\nu:x:7:7::relative:/bin/sh\nu:x:1000:1000:a,b:/home/u:/bin/sh\n"
	for uid, want := range map[int]string{0: "/root", 1000: "/home/u", 7: "", 5: ""} {
		if got := homeIn(passwd, uid); got != want {
			t.Errorf("uid %d: got %q, want %q", uid, got, want)
		}
	}
}
