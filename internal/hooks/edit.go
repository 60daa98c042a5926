package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

var errForeign = errors.New("there is another file in the place of the plugin; move it away")

// Install returns the text of an agent's file with the hook in it. Everything
// else in it stays as it is, byte by byte; a hook that is there already stays
// where it is, and names this program afterwards.
func (t Target) Install(data []byte, self string) ([]byte, error) {
	if t == OpenCode {
		if len(data) > 0 && !isPlugin(data) {
			return nil, errForeign
		}
		return plugin(self), nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte(t.empty())
	}
	root, top, err := parse(data)
	if err != nil {
		return nil, err
	}
	hooks, err := objectIn(top, "hooks")
	if err != nil {
		return nil, err
	}
	for _, e := range t.entries(self) {
		list, err := listIn(hooks, e.event)
		if err != nil {
			return nil, err
		}
		if t.renew(list, self) {
			continue
		}
		value, err := literal(e.value, "      ")
		if err != nil {
			return nil, err
		}
		prepend(list, value)
	}
	return root.Pack(), nil
}

// Uninstall returns the text of an agent's file without the hook, or nil if
// nothing else was in it.
func (t Target) Uninstall(data []byte) ([]byte, error) {
	if t == OpenCode {
		if len(data) > 0 && !isPlugin(data) {
			return nil, errForeign
		}
		return nil, nil
	}
	root, top, err := parse(data)
	if err != nil {
		return nil, err
	}
	hooks, ok := find(top, "hooks").(*hujson.Object)
	if !ok {
		return data, nil
	}
	removed := false
	for _, e := range t.entries("") {
		list, ok := find(hooks, e.event).(*hujson.Array)
		if !ok || !t.removeFrom(list) {
			continue
		}
		removed = true
		if len(list.Elements) == 0 && !hasComment(list.AfterExtra) {
			removeMember(hooks, e.event)
		}
	}
	if removed && len(hooks.Members) == 0 && !hasComment(hooks.AfterExtra) {
		removeMember(top, "hooks")
	}
	text := root.Pack()
	if removed && t.isEmpty(text) {
		return nil, nil
	}
	return text, nil
}

// isEmpty says whether a file holds nothing but what Install puts around hooks.
func (t Target) isEmpty(text []byte) bool {
	bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
	return bare(string(text)) == bare(t.empty()) || bare(string(text)) == "{}"
}

func parse(data []byte) (*hujson.Value, *hujson.Object, error) {
	root, err := hujson.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	top, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil, nil, errors.New("it is not an object")
	}
	return &root, top, nil
}

// commandsOf returns the members that hold commands of an entry in a list of
// hooks: its own, or those of the hooks in it.
func commandsOf(v *hujson.Value) []*hujson.Value {
	entry, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	var out []*hujson.Value
	if c := findValue(entry, "command"); c != nil {
		out = append(out, c)
	}
	if inner, ok := find(entry, "hooks").(*hujson.Array); ok {
		for i := range inner.Elements {
			out = append(out, commandsOf(&inner.Elements[i])...)
		}
	}
	return out
}

func (t Target) isOwn(v *hujson.Value) bool {
	text, ok := v.Value.(hujson.Literal)
	return ok && text.Kind() == '"' && t.isOurs(text.String())
}

// renew makes a hook that is there already name this program, and says whether
// there was one.
func (t Target) renew(list *hujson.Array, self string) bool {
	found := false
	for i := range list.Elements {
		for _, c := range commandsOf(&list.Elements[i]) {
			if !t.isOwn(c) {
				continue
			}
			found = true
			if have, ok := c.Value.(hujson.Literal); ok && have.String() != t.command(self) {
				c.Value = hujson.String(t.command(self))
			}
		}
	}
	return found
}

// removeFrom takes our hooks out of a list, also out of entries that hold others,
// and says whether there were any.
func (t Target) removeFrom(list *hujson.Array) bool {
	removed := false
	for i := len(list.Elements) - 1; i >= 0; i-- {
		entry, ok := list.Elements[i].Value.(*hujson.Object)
		if !ok {
			continue
		}
		if c := findValue(entry, "command"); c != nil && t.isOwn(c) {
			removeElement(list, i)
			removed = true
			continue
		}
		inner, ok := find(entry, "hooks").(*hujson.Array)
		if !ok || !t.removeFrom(inner) {
			continue
		}
		removed = true
		if len(inner.Elements) == 0 && !hasComment(inner.AfterExtra) {
			removeElement(list, i)
		}
	}
	return removed
}

func find(o *hujson.Object, key string) hujson.ValueTrimmed {
	if v := findValue(o, key); v != nil {
		return v.Value
	}
	return nil
}

func findValue(o *hujson.Object, key string) *hujson.Value {
	for i := range o.Members {
		if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok && name.String() == key {
			return &o.Members[i].Value
		}
	}
	return nil
}

// objectIn returns the object of a key, which is made if there is none.
func objectIn(o *hujson.Object, key string) (*hujson.Object, error) {
	if v := find(o, key); v != nil {
		found, ok := v.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", key)
		}
		return found, nil
	}
	made := &hujson.Object{}
	addMember(o, key, made, "  ")
	return made, nil
}

// listIn returns the list of a key in the object of all hooks.
func listIn(o *hujson.Object, key string) (*hujson.Array, error) {
	if v := find(o, key); v != nil {
		found, ok := v.(*hujson.Array)
		if !ok {
			return nil, fmt.Errorf("hooks.%s is not a list", key)
		}
		return found, nil
	}
	made := &hujson.Array{}
	addMember(o, key, made, "    ")
	return made, nil
}

// addMember and prepend put what is new in front, where nothing that stands
// there already has to change: neither a comma nor whose comment is whose.
func addMember(o *hujson.Object, key string, value hujson.ValueTrimmed, indent string) {
	m := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra("\n" + indent), Value: hujson.String(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
	}
	if len(o.Members) == 0 {
		m.Name.BeforeExtra = append(trimBlanks(o.AfterExtra), m.Name.BeforeExtra...)
		o.AfterExtra = hujson.Extra("\n" + indent[2:])
	}
	o.Members = slices.Insert(o.Members, 0, m)
}

func prepend(a *hujson.Array, value hujson.ValueTrimmed) {
	const indent = "      "
	v := hujson.Value{BeforeExtra: hujson.Extra("\n" + indent), Value: value}
	if len(a.Elements) == 0 {
		v.BeforeExtra = append(trimBlanks(a.AfterExtra), v.BeforeExtra...)
		a.AfterExtra = hujson.Extra("\n" + indent[2:])
	}
	a.Elements = slices.Insert(a.Elements, 0, v)
}

// removeElement leaves comments that stand before the element, and the list
// without a comma at its end if it had none.
func removeElement(a *hujson.Array, i int) {
	gone := a.Elements[i]
	last := i == len(a.Elements)-1
	a.Elements = slices.Delete(a.Elements, i, i+1)
	var next, before *hujson.Extra
	if !last {
		next = &a.Elements[i].BeforeExtra
	} else if i > 0 {
		before = &a.Elements[i-1].AfterExtra
	}
	closeGap(gone.BeforeExtra, gone.AfterExtra, next, before, &a.AfterExtra)
}

func removeMember(o *hujson.Object, key string) {
	for i := range o.Members {
		name, ok := o.Members[i].Name.Value.(hujson.Literal)
		if !ok || name.String() != key {
			continue
		}
		gone := o.Members[i]
		last := i == len(o.Members)-1
		o.Members = slices.Delete(o.Members, i, i+1)
		var next, before *hujson.Extra
		if !last {
			next = &o.Members[i].Name.BeforeExtra
		} else if i > 0 {
			before = &o.Members[i-1].Value.AfterExtra
		}
		closeGap(gone.Name.BeforeExtra, gone.Value.AfterExtra, next, before, &o.AfterExtra)
		return
	}
}

// closeGap keeps the comments that stood before something that is gone: before
// what follows it, or at the end of what it was in. There is a comma behind the
// last value if its own tail is not nil, and whoever is last now inherits that.
func closeGap(head, tail hujson.Extra, next, before, end *hujson.Extra) {
	head = trimBlanks(head)
	if hasComment(head) {
		head = append(head, '\n') // it may be one that ends with its line
	}
	switch {
	case next != nil:
		*next = append(head, *next...)
	case before == nil:
		*end = head
	case tail == nil:
		*end = slices.Concat(*before, head, *end)
		*before = nil
	default:
		*end = append(head, *end...)
		if *before == nil {
			*before = hujson.Extra{}
		}
	}
}

func hasComment(e hujson.Extra) bool { return strings.TrimSpace(string(e)) != "" }

// trimBlanks takes the blanks off the end of what stands before a value.
func trimBlanks(e hujson.Extra) hujson.Extra {
	return hujson.Extra(strings.TrimRight(string(e), " \t\r\n"))
}
