package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

const (
	maxFileSize = 1 << 20
	maxDepth    = 16    // the schema itself is five deep
	maxEntries  = 10000 // of one list; lists are compared with each other
)

// Parse reads one policy file in JSON with comments and trailing commas. The
// policy it returns has passed every check that one file alone allows: keys,
// types, values and the syntax of patterns. Entries with a leading "!" are left
// for Merge. An error is a *Error that names the place; name stands for the
// file in it.
func Parse(name string, data []byte) (*Policy, error) {
	doc, err := ReadDocument(name, data)
	if err != nil {
		return nil, err
	}
	return doc.policy()
}

func (doc *Document) policy() (*Policy, error) {
	var p Policy
	var err error
	if p.Origins, err = doc.Decode(&p); err != nil {
		return nil, err
	}
	return &p, nil
}

// decoder walks the syntax tree and a Go value side by side.
type decoder struct {
	name    string
	data    []byte
	schema  reflect.Type // what the whole file is decoded into
	origins Origins

	// The last place asked for. Places are asked for nearly in order, and a
	// file with many entries must not be counted from its start for each.
	offset int
	last   Pos
}

// field is what the tags say about a value, and where the value stands.
type field struct {
	key   string // dotted, as in "network.rules[2].host"
	tag   reflect.StructTag
	check string // of the tag
	enum  string // of the tag
	inner bool   // inside an entry of a list, where nothing is inherited
}

func (d *decoder) errorf(offset int, format string, args ...any) *Error {
	p := d.pos(offset)
	return &Error{File: p.File, Line: p.Line, Column: p.Column, Msg: fmt.Sprintf(format, args...)}
}

func (d *decoder) pos(offset int) Pos {
	if offset < d.offset || d.last.Line == 0 {
		d.offset, d.last = 0, Pos{d.name, 1, 1}
	}
	between := d.data[d.offset:offset]
	if i := bytes.LastIndexByte(between, '\n'); i >= 0 {
		d.last.Line += bytes.Count(between, []byte("\n"))
		d.last.Column = 1
		between = between[i+1:]
	}
	d.last.Column += utf8.RuneCount(between)
	d.offset = offset
	return d.last
}

// checkBytes refuses what the parser below should never see: it recurses at
// each bracket, and takes any bytes in a string.
func (d *decoder) checkBytes() error {
	if len(d.data) > maxFileSize {
		return &Error{File: d.name, Msg: fmt.Sprintf("file is larger than %v", Size(maxFileSize))}
	}
	if msg := foreignEncoding(d.data); msg != "" {
		return d.errorf(0, "%s", msg)
	}
	for i := 0; i < len(d.data); {
		r, n := utf8.DecodeRune(d.data[i:])
		if r == utf8.RuneError && n == 1 {
			return d.errorf(i, "invalid UTF-8")
		}
		i += n
	}
	if i := deepBracket(d.data); i >= 0 {
		return d.errorf(i, "nested more than %d deep", maxDepth)
	}
	return nil
}

// foreignEncoding says what a file begins like if that is not UTF-8. A policy
// begins with a bracket or a blank, which in UTF-16 is a byte and a zero.
func foreignEncoding(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return "the file begins with a byte order mark; save it as UTF-8 without one"
	case len(b) < 2:
		return ""
	case b[0] == 0xff && b[1] == 0xfe, b[0] == 0xfe && b[1] == 0xff, b[0] == 0 && b[1] != 0, b[0] != 0 && b[1] == 0:
		return "the file is encoded in UTF-16; save it as UTF-8"
	}
	return ""
}

// deepBracket returns the offset of the first bracket that opens level
// maxDepth+1, or -1. Brackets in strings and comments do not count.
func deepBracket(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '/':
			var end string
			switch {
			case bytes.HasPrefix(b[i:], []byte("//")):
				end = "\n"
			case bytes.HasPrefix(b[i:], []byte("/*")):
				end = "*/"
			default:
				continue
			}
			n := bytes.Index(b[i+2:], []byte(end))
			if n < 0 {
				return -1
			}
			i += 2 + n + len(end) - 1
		}
	}
	return -1
}

// syntaxError names the mistake for which the parser refused the file. Its own
// words are for one that it alone knows.
func (d *decoder) syntaxError(err error) error {
	if e := (&syntax{decoder: d}).policy(); e != nil {
		return e
	}
	return &Error{File: d.name, Msg: plain.Text(shorten(err.Error()))}
}

// decode fills dst, which must be settable, from v.
func (d *decoder) decode(dst reflect.Value, v hujson.Value, f field) error {
	if v.Value.Kind() == 'n' {
		e := d.errorf(v.StartOffset, "%s is null", f.name())
		e.Hint = "leave the key out to say nothing"
		return e
	}
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch dst.Kind() {
	case reflect.Struct:
		if raw, ok := dst.Addr().Interface().(*hujson.Value); ok {
			*raw = v
			d.record(f.key, "", v.StartOffset)
			return nil
		}
		return d.decodeStruct(dst, v, f)
	case reflect.Slice:
		return d.decodeList(dst, v, f)
	case reflect.Map:
		return d.decodeMap(dst, v, f)
	}
	if err := d.decodeScalar(dst, v, f); err != nil {
		return err
	}
	if !f.inner {
		d.record(f.key, "", v.StartOffset)
	}
	return nil
}

func (d *decoder) record(key, entry string, offset int) {
	o := Origin{key, entry}
	if _, seen := d.origins[o]; !seen {
		d.origins[o] = d.pos(offset)
	}
}

func (f field) name() string {
	if f.key == "" {
		return "the policy"
	}
	return f.key
}

func (d *decoder) mismatch(v hujson.Value, f field, want string) error {
	kind := map[hujson.Kind]string{
		't': "true", 'f': "false", '"': "a string", '0': "a number", '{': "an object", '[': "a list",
	}[v.Value.Kind()]
	return d.errorf(v.StartOffset, "%s is %s, want %s", f.name(), kind, want)
}

func (d *decoder) decodeStruct(dst reflect.Value, v hujson.Value, f field) error {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return d.mismatch(v, f, "an object")
	}
	seen := map[string]int{}
	values := map[string]int{}
	for _, m := range obj.Members {
		name, err := d.text(m.Name)
		if err != nil {
			return err
		}
		if first, dup := seen[name]; dup {
			line := d.pos(first).Line
			return d.errorf(m.Name.StartOffset, "key %s is given twice, first in line %d", quote(name), line)
		}
		seen[name], values[name] = m.Name.StartOffset, m.Value.StartOffset
		i := fieldByKey(dst.Type(), name)
		if i < 0 {
			return d.unknownKey(dst.Type(), m.Name, name, f)
		}
		tag := dst.Type().Field(i).Tag
		sub := field{key: join(f.key, name), tag: tag, check: tag.Get("check"), enum: tag.Get("enum"), inner: f.inner}
		if err := d.decode(dst.Field(i), m.Value, sub); err != nil {
			return err
		}
	}
	for i := range dst.NumField() {
		key, optional := jsonKey(dst.Type().Field(i))
		if _, given := seen[key]; key != "" && !optional && !given {
			return d.errorf(v.StartOffset, "%s lacks the key %q", f.name(), key)
		}
	}
	if c, ok := dst.Interface().(interface{ Check() (string, error) }); ok {
		if key, err := c.Check(); err != nil {
			at, given := values[key]
			if !given {
				at = v.StartOffset
			}
			return d.errorf(at, "%s: %v", join(f.name(), key), err)
		}
	}
	return nil
}

func (d *decoder) decodeList(dst reflect.Value, v hujson.Value, f field) error {
	elements := []hujson.Value{v}
	arr, ok := v.Value.(*hujson.Array)
	if ok {
		elements = arr.Elements
	} else if dst.Type() != reflect.TypeFor[StringList]() {
		return d.mismatch(v, f, "a list")
	}
	if dst.Type() == reflect.TypeFor[StringList]() && len(elements) == 0 {
		return d.errorf(v.StartOffset, `%s is an empty list; leave the key out, or write "none" to build on nothing`, f.name())
	}
	if len(elements) > maxEntries {
		return d.errorf(v.StartOffset, "%s has more than %d entries", f.name(), maxEntries)
	}
	out := reflect.MakeSlice(dst.Type(), len(elements), len(elements))
	for i, e := range elements {
		sub := f
		sub.key, sub.inner = f.key+"["+strconv.Itoa(i)+"]", true
		if err := d.decodeElement(out.Index(i), e, sub, f); err != nil {
			return err
		}
	}
	if len(elements) > 0 {
		dst.Set(out)
	}
	return nil
}

// decodeElement decodes one entry of the list that f describes, and records
// where it stands.
func (d *decoder) decodeElement(dst reflect.Value, v hujson.Value, sub, f field) error {
	if err := d.decode(dst, v, sub); err != nil {
		return err
	}
	if f.inner {
		return nil
	}
	if dst.Kind() == reflect.String {
		d.record(f.key, dst.String(), v.StartOffset)
		return nil
	}
	i := strings.LastIndexByte(sub.key, '[')
	d.record(f.key, strings.TrimSuffix(sub.key[i+1:], "]"), v.StartOffset)
	return nil
}

// decodeMap decodes env.set, the one map of the schema.
func (d *decoder) decodeMap(dst reflect.Value, v hujson.Value, f field) error {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return d.mismatch(v, f, "an object")
	}
	out := reflect.MakeMap(dst.Type())
	for _, m := range obj.Members {
		name, err := d.text(m.Name)
		if err != nil {
			return err
		}
		if err := check(f.check, name); err != nil {
			return d.errorf(m.Name.StartOffset, "%s: %s: %v", f.name(), quote(name), err)
		}
		key := reflect.ValueOf(name)
		if out.MapIndex(key).IsValid() {
			return d.errorf(m.Name.StartOffset, "key %s is given twice", quote(name))
		}
		if m.Value.Value.Kind() != '"' {
			return d.mismatch(m.Value, field{key: join(f.key, name)}, "a string")
		}
		value, err := d.text(m.Value)
		if err != nil {
			return err
		}
		if strings.ContainsRune(value, 0) {
			return d.errorf(m.Value.StartOffset, "%s: NUL byte in string", shorten(join(f.key, name)))
		}
		out.SetMapIndex(key, reflect.ValueOf(value))
		d.record(f.key, name, m.Name.StartOffset)
	}
	if out.Len() > 0 {
		dst.Set(out)
	}
	return nil
}

func (d *decoder) decodeScalar(dst reflect.Value, v hujson.Value, f field) error {
	if dst.Kind() == reflect.String {
		return d.decodeString(dst, v, f)
	}
	switch dst.Interface().(type) {
	case Size:
		return decodeQuantity(d, dst, v, f, ParseSize)
	case Duration:
		return decodeQuantity(d, dst, v, f, ParseDuration)
	case bool:
		if k := v.Value.Kind(); k != 't' && k != 'f' {
			return d.mismatch(v, f, "true or false")
		}
		dst.SetBool(v.Value.Kind() == 't')
		return nil
	}
	return d.decodeNumber(dst, v, f)
}

// decodeQuantity reads a number or a string with a unit.
func decodeQuantity[T ~int64](d *decoder, dst reflect.Value, v hujson.Value, f field, parse func(string) (T, error)) error {
	k := v.Value.Kind()
	if k != '"' && k != '0' {
		return d.mismatch(v, f, "a number or a string")
	}
	s, err := d.text(v)
	if err != nil {
		return err
	}
	n, err := parse(s)
	if err != nil {
		return d.errorf(v.StartOffset, "%s: %v", f.name(), err)
	}
	dst.SetInt(int64(n))
	return nil
}

func (d *decoder) decodeString(dst reflect.Value, v hujson.Value, f field) error {
	number := (f.check == "port" || f.check == "exposure") && v.Value.Kind() == '0'
	if v.Value.Kind() != '"' && !number {
		return d.mismatch(v, f, "a string")
	}
	s, err := d.text(v)
	if err != nil {
		return err
	}
	entry := s
	if removable(f) {
		entry = strings.TrimPrefix(s, "!")
	}
	if f.enum != "" {
		err = checkEnum(entry, strings.Split(f.enum, ","))
	} else {
		err = check(f.check, entry)
	}
	if err != nil && f.check == checkedProxy {
		return d.errorf(v.StartOffset, "%s: %v", f.name(), err)
	}
	if err != nil {
		return d.errorf(v.StartOffset, "%s: %s: %v", f.name(), quote(s), err)
	}
	dst.SetString(s)
	return nil
}

// removable reports whether a leading "!" takes back an inherited entry: in a
// list of strings that is itself not part of a rule.
func removable(f field) bool {
	return strings.Count(f.key, "[") == 1 && strings.HasSuffix(f.key, "]") && !strings.HasPrefix(f.key, "extends[")
}

// otherNames are what values are called elsewhere: runtimes by their programs.
var otherNames = map[string]string{"runsc": "gvisor", "bubblewrap": "bwrap", "dockerd": "docker", "docker-runsc": "docker+runsc", "sandbox-exec": "seatbelt"}

func checkEnum(s string, values []string) error {
	for _, v := range values {
		if s == v {
			return nil
		}
	}
	if v := otherNames[s]; slices.Contains(values, v) {
		return errors.New("unknown value; did you mean " + strconv.Quote(v) + "?")
	}
	hint := didYouMean(s, values)
	if hint == "" {
		hint = "want one of " + strings.Join(values, ", ")
	}
	return errors.New("unknown value; " + hint)
}

func (d *decoder) decodeNumber(dst reflect.Value, v hujson.Value, f field) error {
	if v.Value.Kind() != '0' {
		return d.mismatch(v, f, "a number")
	}
	text := string(v.Value.(hujson.Literal))
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return d.errorf(v.StartOffset, "%s: %s is out of range", f.name(), shorten(text))
	}
	whole := dst.Kind() == reflect.Int
	if whole {
		i, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return d.errorf(v.StartOffset, "%s: %s is not a whole number in range", f.name(), shorten(text))
		}
		dst.SetInt(i)
	} else {
		dst.SetFloat(n)
	}
	if low := bound(f, "min", 0); n < low {
		return d.errorf(v.StartOffset, "%s is %s, want at least %v", f.name(), shorten(text), low)
	}
	if high := bound(f, "max", 1<<31-1); n > high {
		return d.errorf(v.StartOffset, "%s is %s, want at most %v", f.name(), shorten(text), high)
	}
	return nil
}

func bound(f field, tag string, otherwise float64) float64 {
	if n, err := strconv.ParseFloat(f.tag.Get(tag), 64); err == nil {
		return n
	}
	return otherwise
}

// text returns the string a literal stands for, or a number's digits. Half a
// surrogate pair would silently become another character, so it is refused.
func (d *decoder) text(v hujson.Value) (string, error) {
	lit := v.Value.(hujson.Literal)
	if lit.Kind() != '"' {
		return string(lit), nil
	}
	if isPlain(lit) {
		return string(lit[1 : len(lit)-1]), nil
	}
	var s string
	if err := json.Unmarshal(lit, &s); err != nil {
		return "", d.errorf(v.StartOffset, "bad string: %v", err)
	}
	const replaced = string(utf8.RuneError)
	meant := strings.Count(string(lit), replaced) + strings.Count(strings.ToLower(string(lit)), `\ufffd`)
	if strings.Count(s, replaced) > meant {
		return "", d.errorf(v.StartOffset, `bad string: \u escape of half a character`)
	}
	return s, nil
}

// isPlain says whether a string stands for what is between its quotes, as nearly
// all do.
func isPlain(lit []byte) bool {
	for _, c := range lit {
		if c == '\\' || c < ' ' {
			return false
		}
	}
	return true
}

// unknownKey says which key was probably meant, and if the key belongs in
// another section, which.
func (d *decoder) unknownKey(t reflect.Type, at hujson.Value, name string, f field) error {
	e := d.errorf(at.StartOffset, "unknown key %s", quote(name))
	if f.key != "" {
		e.Msg += " in " + f.key
	}
	if homes := sectionsOf(d.schema, "", name); len(homes) > 0 {
		e.Hint = "it belongs " + strings.Join(homes, " or ")
		return e
	}
	e.Hint = didYouMean(name, keys(t))
	return e
}

// sectionsOf lists the sections of the schema that have the key.
func sectionsOf(t reflect.Type, at, name string) []string {
	var found []string
	for i := range t.NumField() {
		key, _ := jsonKey(t.Field(i))
		ft := t.Field(i).Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case key == "":
		case key == name && at == "":
			found = append(found, "at the top level")
		case key == name:
			found = append(found, "in "+at)
		case ft.Kind() == reflect.Struct:
			found = append(found, sectionsOf(ft, join(at, key), name)...)
		}
	}
	return found
}

func join(at, key string) string {
	if at == "" || key == "" {
		return at + key
	}
	return at + "." + key
}

// jsonKey returns the key of a field, "" if it has none in the file, and
// whether it may be left out.
func jsonKey(f reflect.StructField) (key string, optional bool) {
	key, option, _ := strings.Cut(f.Tag.Get("json"), ",")
	if key == "-" {
		return "", true
	}
	return key, option != ""
}

func fieldByKey(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if k, _ := jsonKey(t.Field(i)); k != "" && k == key {
			return i
		}
	}
	return -1
}

func keys(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		if k, _ := jsonKey(t.Field(i)); k != "" {
			all = append(all, k)
		}
	}
	return all
}
