package oci

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// harmless are fields in which a change opens nothing, and why.
var harmless = map[string]string{
	"Version":                       "a runtime that does not know it refuses",
	"Process.Terminal":              "the command's terminal is one of the runtime's making",
	"Process.ConsoleSize":           "a size",
	"Process.User.Umask":            "the command can set it",
	"Process.Args[]":                "the first process and its walls are held; what else it is told is the command",
	"Process.Args[+]":               "the same",
	"Linux.Seccomp.DefaultErrnoRet": "which error a refused call gets",
	"Process.Args[ twice]":          "the same",
	"Mounts[].Options[ twice]":      "it says the same",
	"Linux.MaskedPaths[+]":          "one more is hidden",
	"Linux.MaskedPaths[ twice]":     "it is hidden",
	"Linux.ReadonlyPaths[+]":        "one more is read-only",
	"Linux.ReadonlyPaths[ twice]":   "it is read-only",
	"Linux.CgroupsPath":             "another name of the same kind",
}

// change is a change of one field, and how to make it.
type change struct {
	path string
	make func(*specs.Spec)
}

// changes are one of each field that a configuration can have, whether or not it has it:
// flags turned, numbers and texts made others, lists longer and shorter, what is missing
// there.
func changes(c *specs.Spec) (list []change) {
	var walk func(path string, at func(*specs.Spec) reflect.Value, t reflect.Value)
	walk = func(path string, at func(*specs.Spec) reflect.Value, v reflect.Value) {
		add := func(suffix string, make func(reflect.Value)) {
			list = append(list, change{path + suffix, func(c *specs.Spec) { make(at(c)) }})
		}
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() {
				add("", func(v reflect.Value) { v.Set(reflect.New(v.Type().Elem())) })
				return
			}
			add("=nil", func(v reflect.Value) { v.SetZero() })
			walk(path, func(c *specs.Spec) reflect.Value { return at(c).Elem() }, v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), func(c *specs.Spec) reflect.Value { return at(c).Field(i) }, v.Field(i))
			}
		case reflect.Slice:
			add("[+]", func(v reflect.Value) { v.Set(reflect.Append(v, another(v.Type().Elem()))) })
			if v.Len() == 0 {
				return
			}
			add("[-]", func(v reflect.Value) { v.Set(v.Slice(1, v.Len())) })
			for i := range walked(v) {
				add(fmt.Sprintf("[%d twice]", i), func(v reflect.Value) { v.Set(reflect.Append(v, v.Index(i))) })
				walk(fmt.Sprintf("%s[%d]", path, i), func(c *specs.Spec) reflect.Value { return at(c).Index(i) }, v.Index(i))
			}
		case reflect.Map:
			add("", func(v reflect.Value) {
				v.Set(reflect.MakeMap(v.Type()))
				v.SetMapIndex(another(v.Type().Key()), another(v.Type().Elem()))
			})
		default:
			add("", func(v reflect.Value) { v.Set(other(v)) })
		}
	}
	walk("", func(c *specs.Spec) reflect.Value { return reflect.ValueOf(c).Elem() }, reflect.ValueOf(c).Elem())
	return list
}

// walked is how many elements of a list are looked into: all mounts, and a few of what is
// compared as a whole.
func walked(list reflect.Value) int {
	if list.Type() == reflect.TypeFor[[]specs.Mount]() {
		return list.Len()
	}
	return min(list.Len(), 4)
}

// another is a value of a type that is not its zero.
func another(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if k := t.Field(i).Type.Kind(); k == reflect.String || k == reflect.Uint32 {
				v.Field(i).Set(other(v.Field(i)))
			}
		}
		return v
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		return v
	}
	return other(v)
}

// other is another value of the same kind.
func other(v reflect.Value) reflect.Value {
	n := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Bool:
		n.SetBool(!v.Bool())
	case reflect.String:
		n.SetString(v.String() + "x")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n.SetUint(v.Uint() + 1)
	case reflect.Float32, reflect.Float64:
		n.SetFloat(v.Float() + 1)
	default:
		panic("no other " + v.Type().String())
	}
	return n
}

// opensNothing goes by the name of a field, whatever its place in a list.
func opensNothing(path string) bool {
	for name := range harmless {
		if bare(path) == name || strings.HasPrefix(bare(path), name+"=") || strings.HasPrefix(bare(path), name+".") {
			return true
		}
	}
	return false
}

// bare is a path without the numbers in it.
func bare(path string) string {
	return number.ReplaceAllString(path, "[$1]")
}

// number matches that of an element, and what is done to it.
var number = regexp.MustCompile(`\[\d+( twice)?\]`)

func TestAChangeOfAnyFieldIsRefused(t *testing.T) {
	original, err := json.Marshal(configure(t))
	if err != nil {
		t.Fatal(err)
	}
	seen, passed, refused := map[string]bool{}, map[string]bool{}, map[string]error{}
	for _, c := range changes(configure(t)) {
		config := configure(t)
		c.make(config)
		changed, err := json.Marshal(config)
		if err != nil || string(changed) == string(original) {
			continue // a runtime would see no difference
		}
		seen[bare(c.path)] = true
		err = checkExample(t, config)
		switch {
		case err == nil && !opensNothing(c.path):
			t.Errorf("%s: a change passed", c.path)
		case err != nil && opensNothing(c.path):
			refused[bare(c.path)] = err
		case err == nil:
			passed[bare(c.path)] = true
		}
	}
	for path, err := range refused {
		if !passed[path] && !strings.Contains(path, "=") {
			t.Errorf("%s is said to be harmless, and is refused: %v", path, err)
		}
	}
	for _, must := range []string{"Linux.NetDevices", "Mounts[].UIDMappings[+]", "Process.Cwd", "Linux.Seccomp.Syscalls[-]", "Mounts[ twice]"} {
		if !seen[must] {
			t.Errorf("%s was not tried", must)
		}
	}
}

func TestAMountThatHasSomethingOfAnotherIsRefused(t *testing.T) {
	original := configure(t)
	_, sources, err := Compose(example(), exampleOptions())
	if err != nil {
		t.Fatal(err)
	}
	exchanges := map[string]func(a, b *specs.Mount){
		"source":          func(a, b *specs.Mount) { a.Source = b.Source },
		"type and source": func(a, b *specs.Mount) { a.Type, a.Source = b.Type, b.Source },
		"destination":     func(a, b *specs.Mount) { a.Destination = b.Destination },
		"place":           func(a, b *specs.Mount) { *a, *b = *b, *a },
	}
	for name, exchange := range exchanges {
		for i, a := range original.Mounts {
			for j, b := range original.Mounts {
				changed := *original
				changed.Mounts = slices.Clone(original.Mounts)
				exchange(&changed.Mounts[i], &changed.Mounts[j])
				if reflect.DeepEqual(changed.Mounts, original.Mounts) {
					continue
				}
				if err := Check(&changed, sources, example(), exampleOptions()); err == nil {
					t.Errorf("the %s of %s passed for that of %s", name, b.Destination, a.Destination)
				}
			}
		}
	}
}
