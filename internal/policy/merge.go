package policy

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Merge returns base as changed by child. A single value in child replaces that
// of base; lists of strings are appended without repeating an entry, and an
// entry "!x" of child takes x back; lists of rules are appended as they are,
// since their order matters; maps are merged by key. What child does not say
// stays as in base.
//
// The result shares no memory with either, names nothing in extends, and holds
// no "!" entry that was child's.
func Merge(base, child Policy) Policy {
	var out Policy
	origins := mergeOrigins(base, child)
	base.Origins, child.Origins = nil, nil
	mergeInto(reflect.ValueOf(&out).Elem(), reflect.ValueOf(base), reflect.ValueOf(child))
	out.Extends = nil
	out.Origins = origins
	return out
}

func mergeInto(dst, base, child reflect.Value) {
	switch dst.Kind() {
	case reflect.Struct:
		for i := range dst.NumField() {
			mergeInto(dst.Field(i), base.Field(i), child.Field(i))
		}
	case reflect.Pointer:
		mergePointer(dst, base, child)
	case reflect.Slice:
		if dst.Type().Elem().Kind() == reflect.String {
			dst.Set(reflect.ValueOf(mergeList(stringsOf(base), stringsOf(child))).Convert(dst.Type()))
			return
		}
		for _, from := range []reflect.Value{base, child} {
			for i := range from.Len() {
				dst.Set(reflect.Append(dst, clone(from.Index(i))))
			}
		}
	case reflect.Map:
		for _, from := range []reflect.Value{base, child} {
			for it := from.MapRange(); it.Next(); {
				if dst.IsNil() {
					dst.Set(reflect.MakeMap(dst.Type()))
				}
				dst.SetMapIndex(it.Key(), it.Value())
			}
		}
	default:
		dst.Set(base)
		if !child.IsZero() {
			dst.Set(child)
		}
	}
}

func mergePointer(dst, base, child reflect.Value) {
	if base.IsNil() && child.IsNil() {
		return
	}
	dst.Set(reflect.New(dst.Type().Elem()))
	switch {
	case child.IsNil():
		dst.Elem().Set(clone(base.Elem()))
	case base.IsNil() || dst.Elem().Kind() != reflect.Struct:
		dst.Elem().Set(clone(child.Elem()))
	default:
		mergeInto(dst.Elem(), base.Elem(), child.Elem())
	}
}

// clone copies a value and everything it points to.
func clone(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(clone(v.Field(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(clone(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
			if v.Type().Elem().Kind() != reflect.String {
				for i := range v.Len() {
					out.Index(i).Set(clone(v.Index(i)))
				}
			}
		}
	default:
		out.Set(v)
	}
	return out
}

func stringsOf(v reflect.Value) []string {
	return v.Convert(reflect.TypeFor[[]string]()).Interface().([]string)
}

func mergeList(base, child []string) []string {
	if len(base)+len(child) == 0 {
		return nil
	}
	out := make([]string, 0, len(base)+len(child))
	seen := make(map[string]bool, len(base)+len(child))
	for _, entry := range base {
		if !seen[entry] {
			seen[entry] = true
			out = append(out, entry)
		}
	}
	for _, entry := range child {
		if gone, ok := strings.CutPrefix(entry, "!"); ok {
			if seen[gone] {
				delete(seen, gone)
				out = slices.DeleteFunc(out, func(e string) bool { return e == gone })
			}
		} else if !seen[entry] {
			seen[entry] = true
			out = append(out, entry)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// mergeOrigins moves the rules of child behind those of base, as Merge does.
func mergeOrigins(base, child Policy) Origins {
	if len(child.Origins) == 0 {
		return maps.Clone(base.Origins)
	}
	out := make(Origins, len(base.Origins)+len(child.Origins))
	for o, pos := range base.Origins {
		out[o] = pos
	}
	for o, pos := range child.Origins {
		shift := 0
		switch o.Key {
		case "network.rules":
			shift = len(base.Network.Rules)
		case "network.inject":
			shift = len(base.Network.Inject)
		case "workspace.rules":
			shift = len(base.Workspace.Rules)
		}
		if shift > 0 {
			if n, err := strconv.Atoi(o.Entry); err == nil {
				o.Entry = strconv.Itoa(n + shift)
			}
		}
		// An entry that base has already keeps its first place.
		if _, inherited := out[o]; !inherited || o.Entry == "" {
			out[o] = pos
		}
	}
	return out
}

// add gives everything that v says the same place. V is a policy or a part of one,
// and at its key.
func (o Origins) add(v reflect.Value, at string, pos Pos) {
	for i := range v.NumField() {
		key, _ := jsonKey(v.Type().Field(i))
		f := v.Field(i)
		switch {
		case key == "" || f.IsZero():
		case f.Kind() == reflect.Struct:
			o.add(f, join(at, key), pos)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String:
			for _, entry := range stringsOf(f) {
				o[Origin{join(at, key), entry}] = pos
			}
		default:
			o[Origin{join(at, key), ""}] = pos
		}
	}
}

// removal is an entry that a policy takes back.
type removal struct {
	key   string
	entry string // without the "!"
}

// idleRemovals returns what child takes back although neither base nor an
// earlier entry of child granted it.
func idleRemovals(base, child Policy) []removal {
	return idleIn(reflect.ValueOf(base), reflect.ValueOf(child), "")
}

func idleIn(base, child reflect.Value, at string) []removal {
	var idle []removal
	for i := range child.NumField() {
		key, _ := jsonKey(child.Type().Field(i))
		b, c := base.Field(i), child.Field(i)
		switch {
		case key == "":
		case c.Kind() == reflect.Struct:
			idle = append(idle, idleIn(b, c, join(at, key))...)
		case c.Type() == reflect.TypeFor[[]string]():
			have := stringsOf(b)
			for j, entry := range stringsOf(c) {
				gone, ok := strings.CutPrefix(entry, "!")
				if ok && !slices.Contains(have, gone) && !slices.Contains(stringsOf(c)[:j], gone) {
					idle = append(idle, removal{join(at, key), gone})
				}
			}
		}
	}
	return idle
}
