package sandbox

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"strconv"
	"unicode/utf16"
)

// javaPassword is the one that every installation of Java has for certificates:
// it keeps nothing secret, and who gives none need not know it.
const javaPassword = "changeit"

// javaStore is a bundle of certificates in the format that every Java reads: a
// keystore of the type JKS, in numbers of network order:
//
//	magic version count
//	{ 2 alias milliseconds type length certificate } …
//	SHA-1 of the password, of a constant and of everything above
//
// Strings begin with their length, in two bytes.
func javaStore(bundle []byte) []byte {
	const magic, version, trusted, constant = 0xfeedfeed, 2, 2, "Mighty Aphrodite"
	be := binary.BigEndian
	text := func(b []byte, s string) []byte { return append(be.AppendUint16(b, uint16(len(s))), s...) }
	var entries []byte
	count := uint32(0)
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		entries = be.AppendUint32(entries, trusted)
		entries = text(entries, "bailey-"+strconv.Itoa(int(count)))
		entries = be.AppendUint64(entries, 0) // its date is of no interest
		entries = text(entries, "X.509")
		entries = be.AppendUint32(entries, uint32(len(block.Bytes)))
		entries = append(entries, block.Bytes...)
	}
	store := be.AppendUint32(be.AppendUint32(be.AppendUint32(nil, magic), version), count)
	store = append(store, entries...)
	sum := sha1.New()
	for _, unit := range utf16.Encode([]rune(javaPassword)) {
		sum.Write(be.AppendUint16(nil, unit))
	}
	sum.Write([]byte(constant))
	sum.Write(store)
	return sum.Sum(store)
}
