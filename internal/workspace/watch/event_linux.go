package watch

import (
	"bytes"
	"encoding/binary"
)

// eachEvent calls f for each event that was read:
//
//	struct inotify_event {
//		int      wd;
//		uint32_t mask;
//		uint32_t cookie;
//		uint32_t len;
//		char     name[];
//	};
func eachEvent(b []byte, f func(number int32, mask uint32, name string)) {
	const nameAt = 16
	ne := binary.NativeEndian
	for len(b) >= nameAt {
		end := nameAt + int(ne.Uint32(b[12:]))
		if end > len(b) {
			return
		}
		name, _, _ := bytes.Cut(b[nameAt:end], []byte{0})
		f(int32(ne.Uint32(b)), ne.Uint32(b[4:]), string(name))
		b = b[end:]
	}
}
