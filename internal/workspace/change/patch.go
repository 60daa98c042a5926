package change

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// maxPatched is the size up to which a file can be part of a patch, which has all
// of it in one piece.
const maxPatched = 64 << 20

// writePatch writes a patch, the part of each file as show makes it. Removals stand
// first, so that a file can take the place of a directory. Nothing is written where
// a file is too large.
func writePatch(w io.Writer, from opener, list []Change, show func([]byte) []byte) error {
	sorted := slices.DeleteFunc(slices.Clone(list), func(c Change) bool { return inGit(c.Path) })
	slices.SortStableFunc(sorted, func(a, b Change) int { return rank(&a) - rank(&b) })
	for i := range sorted {
		if err := patchable(&sorted[i]); err != nil {
			return err
		}
	}
	for i := range sorted {
		text, err := patch(from, &sorted[i])
		if err != nil {
			return err
		}
		if _, err := w.Write(show(text)); err != nil {
			return err
		}
	}
	return nil
}

// patchable refuses a file that is too large for a patch.
func patchable(c *Change) error {
	for _, e := range []*Entry{c.Old, c.New} {
		if e != nil && e.Type == File && c.Kind != Mode && e.Size > maxPatched {
			return tooLarge(c)
		}
	}
	return nil
}

func tooLarge(c *Change) error {
	return fmt.Errorf("%s has more than %d MiB, which is too large for a patch; name the paths that shall be in it, or carry everything over with apply",
		plain.Word(c.Path), maxPatched>>20)
}

func rank(c *Change) int {
	if c.Kind == Deleted {
		return 0
	}
	return 1
}

func patch(from opener, c *Change) ([]byte, error) {
	old, now, err := sidesOf(from, c, maxPatched)
	if errors.Is(err, errLarge) {
		return nil, tooLarge(c)
	}
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if old.mode != "" && now.mode != "" && (old.mode == "120000") != (now.mode == "120000") {
		// To git that is one file removed and another made.
		writeOne(&b, c.Path, &old, &side{})
		old = side{}
	}
	writeOne(&b, c.Path, &old, &now)
	return b.Bytes(), nil
}

func writeOne(b *bytes.Buffer, p string, old, now *side) {
	if old.mode == now.mode && bytes.Equal(old.data, now.data) {
		return
	}
	b.WriteString("diff --git " + gitName("a/"+p) + " " + gitName("b/"+p) + "\n")
	mode := now.mode
	switch {
	case old.mode == "":
		b.WriteString("new file mode " + now.mode + "\n")
		mode = ""
	case now.mode == "":
		b.WriteString("deleted file mode " + old.mode + "\n")
	case old.mode != now.mode:
		b.WriteString("old mode " + old.mode + "\nnew mode " + now.mode + "\n")
		mode = ""
	}
	if old.mode != "" && now.mode != "" && bytes.Equal(old.data, now.data) {
		return
	}
	if now.mode == "" {
		mode = ""
	}
	if mode != "" {
		mode = " " + mode
	}
	b.WriteString("index " + blobID(old) + ".." + blobID(now) + mode + "\n")
	if old.isText() && now.isText() {
		writeHunks(b, p, old, now)
		return
	}
	b.WriteString("GIT binary patch\n")
	writeLiteral(b, now.data)
	writeLiteral(b, old.data)
}

// blobID is what git calls a file's content.
func blobID(s *side) string {
	if s.mode == "" {
		return strings.Repeat("0", 2*sha1.Size)
	}
	h := sha1.New()
	_, _ = fmt.Fprintf(h, "blob %d\x00", len(s.data))
	_, _ = h.Write(s.data)
	return hex.EncodeToString(h.Sum(nil))
}

// writeLiteral writes a whole content as git's binary patches have it: deflated,
// in lines of at most 52 bytes, each with its length in front.
func writeLiteral(b *bytes.Buffer, data []byte) {
	var deflated bytes.Buffer
	z := zlib.NewWriter(&deflated)
	_, _ = z.Write(data) // to memory
	_ = z.Close()
	fmt.Fprintf(b, "literal %d\n", len(data))
	for chunk := range slices.Chunk(deflated.Bytes(), 52) {
		length := byte('A' + len(chunk) - 1)
		if len(chunk) > 26 {
			length = byte('a' + len(chunk) - 27)
		}
		b.WriteByte(length)
		for word := range slices.Chunk(chunk, 4) {
			writeBase85(b, word)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

const base85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

func writeBase85(b *bytes.Buffer, word []byte) {
	var n uint32
	for i := range 4 {
		n <<= 8
		if i < len(word) {
			n |= uint32(word[i])
		}
	}
	var out [5]byte
	for i := 4; i >= 0; i-- {
		out[i], n = base85[n%85], n/85
	}
	b.Write(out[:])
}

// gitName quotes a name as git does: not at all, or all that is not printable
// ASCII as octal numbers.
func gitName(name string) string {
	if !slices.ContainsFunc([]byte(name), needsQuote) {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case needsQuote(c):
			octal := strconv.FormatUint(uint64(c), 8)
			b.WriteString(`\` + strings.Repeat("0", 3-len(octal)) + octal)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

func needsQuote(c byte) bool { return c < 0x20 || c >= 0x7f || c == '"' || c == '\\' }
