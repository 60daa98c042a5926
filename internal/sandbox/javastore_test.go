package sandbox

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"testing"
)

func TestJavaStoreHoldsEveryCertificate(t *testing.T) {
	bundle := []byte("# a comment\n")
	for _, b := range []pem.Block{{Type: "CERTIFICATE", Bytes: []byte("one")}, {Type: "PRIVATE KEY", Bytes: []byte("none")}, {Type: "CERTIFICATE", Bytes: []byte("second")}} {
		bundle = append(bundle, pem.EncodeToMemory(&b)...)
	}
	got := javaStore(bundle)
	want := []byte("\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x02" +
		"\x00\x00\x00\x02\x00\x08bailey-1\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05X.509\x00\x00\x00\x03one" +
		"\x00\x00\x00\x02\x00\x08bailey-2\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05X.509\x00\x00\x00\x06second")
	var password []byte
	for _, c := range "changeit" {
		password = binary.BigEndian.AppendUint16(password, uint16(c))
	}
	sum := sha1.Sum(append(append(password, "Mighty Aphrodite"...), want...))
	if want = append(want, sum[:]...); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := javaStore(nil); len(got) != 12+sha1.Size {
		t.Errorf("of nothing: %q", got)
	}
}
