package learn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Merge adds a proposal to the text of a policy file, whose comments and layout
// stay as they are. What the file lists already is not listed again. The result
// is a policy that package policy reads.
func (p *Proposal) Merge(file string, data []byte, n Names) ([]byte, error) {
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
	for _, l := range p.lists() {
		if len(l.grants) == 0 {
			continue
		}
		filesystem, ok := member(top, "filesystem", "  ", &hujson.Object{}).(*hujson.Object)
		if !ok {
			return nil, errors.New(file + ": filesystem is not an object")
		}
		array, ok := member(filesystem, l.key, "    ", &hujson.Array{}).(*hujson.Array)
		if !ok {
			return nil, errors.New(file + ": filesystem." + l.key + " is not a list")
		}
		appendGrants(array, l.grants, n)
	}
	merged := v.Pack()
	if _, err := policy.Parse(file, merged); err != nil {
		return nil, fmt.Errorf("the merged policy is not one: %w", err)
	}
	return merged, nil
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

// appendGrants adds what an array does not have yet.
func appendGrants(a *hujson.Array, grants []Grant, n Names) {
	indent := "      "
	if len(a.Elements) > 0 {
		indent = indentOf(a.Elements[0].BeforeExtra, indent)
	}
	for i := range grants {
		entry := n.Of(grants[i].Path)
		if holds(a, entry) {
			continue
		}
		if len(a.Elements) > 0 && strings.TrimSpace(string(a.Elements[0].BeforeExtra)) == "" {
			a.Elements[0].BeforeExtra = hujson.Extra("\n" + indent)
		}
		before := carryOver(&a.AfterExtra, strings.TrimSuffix(indent, "  "))
		if text := grants[i].comment(); text != "" {
			before += "\n" + indent + "// " + text
		}
		a.Elements = append(a.Elements, hujson.Value{
			BeforeExtra: hujson.Extra(before + "\n" + indent), Value: hujson.String(entry),
		})
	}
}

func holds(a *hujson.Array, entry string) bool {
	for i := range a.Elements {
		if text, ok := a.Elements[i].Value.(hujson.Literal); ok && text.Kind() == '"' && text.String() == entry {
			return true
		}
	}
	return false
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
