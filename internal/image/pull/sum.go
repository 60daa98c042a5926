package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// sum is the digest of what is written to it, as images name it.
type sum struct{ hash.Hash }

func newSum() sum { return sum{sha256.New()} }

func (s sum) hash() v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s.Sum(nil))} }
