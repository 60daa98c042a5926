package learn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Merge adds a proposal to the text of a policy file, whose comments and layout
// stay as they are. What the file lists already is not listed again. The result
// is a policy that package policy reads.
func (p *Proposal) Merge(file string, data []byte, n Names) ([]byte, error) {
	return edit(file, data, func(top *hujson.Object) error {
		for _, l := range p.lists(n) {
			array, err := listAt(file, top, l.section, l.key)
			if err == nil {
				err = appendEntries(array, l.entries)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// edit changes a policy file, which must be one before and after that.
func edit(file string, data []byte, change func(top *hujson.Object) error) ([]byte, error) {
	if _, err := policy.Parse(file, data); err != nil {
		return nil, err
	}
	v, err := hujson.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	top, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New(file + ": is not an object")
	}
	if err := change(top); err != nil {
		return nil, err
	}
	merged := v.Pack()
	if _, err := policy.Parse(file, merged); err != nil {
		return nil, fmt.Errorf("the merged policy is not one: %w", err)
	}
	return merged, nil
}

// listAt returns the list of a key in a section, which is added if it is not there.
func listAt(file string, top *hujson.Object, section, key string) (*hujson.Array, error) {
	object, ok := member(top, section, "  ", &hujson.Object{}).(*hujson.Object)
	if !ok {
		return nil, errors.New(file + ": " + section + " is not an object")
	}
	array, ok := member(object, key, "    ", &hujson.Array{}).(*hujson.Array)
	if !ok {
		return nil, errors.New(file + ": " + section + "." + key + " is not a list")
	}
	return array, nil
}

// member returns the value of a key, which is added with the given one if it is
// not there. Indent is for a key whose object has no other.
func member(o *hujson.Object, key, indent string, value hujson.ValueTrimmed) hujson.ValueTrimmed {
	for i := range o.Members {
		if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok && name.String() == key {
			return o.Members[i].Value.Value
		}
	}
	if len(o.Members) > 0 {
		indent = indentOf(o.Members[0].Name.BeforeExtra, indent)
	}
	before := carryOver(&o.AfterExtra, strings.TrimSuffix(indent, "  "))
	o.Members = append(o.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra(before + "\n" + indent), Value: hujson.String(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
	})
	switch value := value.(type) {
	case *hujson.Object:
		value.AfterExtra = hujson.Extra("\n" + indent)
	case *hujson.Array:
		value.AfterExtra = hujson.Extra("\n" + indent)
	}
	return value
}

// appendEntries adds what an array does not have yet.
func appendEntries(a *hujson.Array, entries []entry) error {
	for _, e := range entries {
		v, err := hujson.Parse([]byte(e.text))
		if err != nil {
			return err
		}
		if !holds(a, v) {
			appendValue(a, v.Value, e.comment)
		}
	}
	return nil
}

// appendValue adds a value to an array, on a line of its own, with a comment
// above it.
func appendValue(a *hujson.Array, value hujson.ValueTrimmed, comment string) {
	indent := elementIndent(a)
	if len(a.Elements) > 0 && strings.TrimSpace(string(a.Elements[0].BeforeExtra)) == "" {
		a.Elements[0].BeforeExtra = hujson.Extra("\n" + indent)
	}
	before := carryOver(&a.AfterExtra, strings.TrimSuffix(indent, "  "))
	if comment != "" {
		before += "\n" + indent + "// " + comment
	}
	a.Elements = append(a.Elements, hujson.Value{BeforeExtra: hujson.Extra(before + "\n" + indent), Value: value})
}

func elementIndent(a *hujson.Array) string {
	const usual = "      "
	if len(a.Elements) == 0 {
		return usual
	}
	return indentOf(a.Elements[0].BeforeExtra, usual)
}

// holds says whether an array has a value, however it is written there.
func holds(a *hujson.Array, value hujson.Value) bool {
	plainly := func(v hujson.Value) string {
		if text, ok := v.Value.(hujson.Literal); ok && text.Kind() == '"' {
			return quote(text.String())
		}
		v = v.Clone()
		v.BeforeExtra, v.AfterExtra = nil, nil
		v.Minimize()
		return v.String()
	}
	text := plainly(value)
	return slices.ContainsFunc(a.Elements, func(e hujson.Value) bool { return plainly(e) == text })
}

// carryOver takes the comments from before a closing bracket, where they belong
// to what stands there now, and leaves the bracket on a line of its own.
func carryOver(extra *hujson.Extra, indent string) string {
	comments := strings.TrimRight(string(*extra), " \t\r\n")
	*extra = hujson.Extra("\n" + indentOf(*extra, indent))
	return comments
}

// indentOf returns the blanks before a value that begins a line.
func indentOf(before hujson.Extra, fallback string) string {
	text := string(before)
	i := strings.LastIndexByte(text, '\n')
	if i < 0 || strings.TrimLeft(text[i+1:], " \t") != "" {
		return fallback
	}
	return text[i+1:]
}
