package notation

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// IsNumber says whether a resolver might take a name that ends in this label, in
// small letters, for an IPv4 address.
func IsNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// punycodePrefix begins labels that stand for others in Unicode.
const punycodePrefix = "xn--"

// CheckPunycode refuses a label that begins with xn-- and stands for no name. The
// gate knows more: which characters are in no name. Those match nothing.
func CheckPunycode(label string) error {
	encoded, ok := strings.CutPrefix(strings.ToLower(label), punycodePrefix)
	if !ok {
		return nil
	}
	runes, ok := decodePunycode(encoded)
	if ok {
		ok = false
		for _, r := range runes {
			if r >= utf8.RuneSelf && r < firstVisible {
				return errPunycode
			}
			ok = ok || r >= utf8.RuneSelf
		}
	}
	if !ok {
		return errPunycode
	}
	return nil
}

// firstVisible is the first character after ASCII that is no control character.
const firstVisible = 0xa0

var errPunycode = errors.New("a label that begins with xn-- stands for a name in Unicode, and this one stands for none; copy the name from where it is used")

// Parameters of punycode (RFC 3492, section 5).
const (
	base, tMin, tMax = 36, 1, 26
	skew, damp       = 38, 700
	initialBias      = 72
	initialN         = 128
)

// decodePunycode is the decoding procedure of RFC 3492, section 6.2. The order of
// the characters is of no interest here, so they are returned in that of their
// insertion.
func decodePunycode(s string) (runes []rune, ok bool) {
	rest := s
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		runes, rest = []rune(s[:i]), s[i+1:]
	}
	n, at, bias := initialN, 0, initialBias
	for rest != "" {
		before, weight := at, 1
		for k := base; ; k += base {
			if rest == "" {
				return nil, false
			}
			digit, isDigit := punycodeDigit(rest[0])
			rest = rest[1:]
			if !isDigit || digit > (utf8.MaxRune*64-at)/weight {
				return nil, false
			}
			at += digit * weight
			threshold := min(max(k-bias, tMin), tMax)
			if digit < threshold {
				break
			}
			weight *= base - threshold
			if weight > utf8.MaxRune*64 {
				return nil, false
			}
		}
		length := len(runes) + 1
		bias = adapt(at-before, length, before == 0)
		n += at / length
		at %= length
		if !utf8.ValidRune(rune(n)) {
			return nil, false
		}
		runes = append(runes, rune(n))
		at++
	}
	return runes, true
}

func punycodeDigit(c byte) (int, bool) {
	switch {
	case c >= 'a' && c <= 'z':
		return int(c - 'a'), true
	case c >= '0' && c <= '9':
		return int(c-'0') + 26, true
	}
	return 0, false
}

func adapt(delta, length int, first bool) int {
	if first {
		delta /= damp
	} else {
		delta /= 2
	}
	delta += delta / length
	k := 0
	for ; delta > (base-tMin)*tMax/2; k += base {
		delta /= base - tMin
	}
	return k + (base-tMin+1)*delta/(delta+skew)
}
