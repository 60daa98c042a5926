package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Marshal renders a policy as JSON that Parse reads back to an equal value.
// An empty indent gives one line.
func Marshal(p Policy, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	// A policy is read by people, and never embedded in HTML.
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(p); err != nil {
		// Every type below a Policy has a JSON form, so this is a new field
		// without one.
		panic(err)
	}
	return b.Bytes()
}

// StringList is written as one string or as a list of them.
type StringList []string

// MarshalJSON writes a single entry as a plain string.
func (l StringList) MarshalJSON() ([]byte, error) {
	if len(l) == 1 {
		return json.Marshal(l[0])
	}
	return json.Marshal([]string(l))
}

// Size is a number of bytes: an integer, or a string such as "512M" or "2GiB".
// K, M, G and T are powers of 1024, with or without "iB".
type Size int64

const sizeUnits = "KMGT"

var errSize = errors.New(`want a positive number of bytes, or a string such as "512M" or "2GiB"`)

// ParseSize reads a size as it is written in a policy file.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "KMGTiB")
	unit := s[len(digits):]
	shift := 0
	if unit != "" {
		i := strings.IndexByte(sizeUnits, unit[0])
		if i < 0 || unit[1:] != "" && unit[1:] != "iB" {
			return 0, errSize
		}
		shift = 10 * (i + 1)
	}
	n, err := parseDigits(digits)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, errSize
	}
	return Size(n << shift), nil
}

// parseDigits reads a plain decimal integer, without the sign and underscores
// that strconv would let through.
func parseDigits(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, 64)
}

// String writes the size in its largest whole unit.
func (s Size) String() string {
	n, unit := int64(s), ""
	for i := 0; i < len(sizeUnits) && n != 0 && n%1024 == 0; i++ {
		n, unit = n/1024, sizeUnits[i:i+1]
	}
	return strconv.FormatInt(n, 10) + unit
}

// MarshalJSON writes a string with a unit, or a plain number of bytes.
func (s Size) MarshalJSON() ([]byte, error) {
	text := s.String()
	if _, err := parseDigits(text); err == nil {
		return []byte(text), nil
	}
	return json.Marshal(text)
}

// Duration is a time: a whole number of seconds, or a string such as "10m" or
// "1h30m".
type Duration time.Duration

var errDuration = errors.New(`want a positive number of seconds, or a string such as "10m" or "1h30m"`)

// ParseDuration reads a duration as it is written in a policy file.
func ParseDuration(s string) (Duration, error) {
	if n, err := parseDigits(s); err == nil {
		if n == 0 || n > int64(math.MaxInt64/time.Second) {
			return 0, errDuration
		}
		return Duration(n) * Duration(time.Second), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errDuration
	}
	return Duration(d), nil
}

// String writes the duration without trailing zero units: "10m", not "10m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}

// Pos is a place in a policy file.
type Pos struct {
	File   string
	Line   int
	Column int
}

func (p Pos) String() string {
	if p.Line == 0 {
		return plain.Text(p.File)
	}
	return plain.Text(p.File) + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// Origin names one thing a file says. For a list of strings Entry is the entry,
// for a map it is the key, for a list of rules the rule's index, and for a
// single value it is empty.
type Origin struct {
	Key   string
	Entry string
}

// Origins maps what was said to where it was said.
type Origins map[Origin]Pos

// Place is where a key says value: the place of that entry, or of the key if it has
// a single value, or without a value the first of its entries. It is zero for what no
// file says.
func (o Origins) Place(key, value string) Pos {
	for _, entry := range []string{value, ""} {
		if pos, ok := o[Origin{key, entry}]; ok {
			return pos
		}
	}
	if value != "" {
		return Pos{}
	}
	first, _ := firstPlace(o, key)
	return first
}
