package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

const schemaAddress = "https://raw.githubusercontent.com/bailey-sandbox/bailey/main/docs/schema/bailey.schema.json"

// Render writes a translation as a policy file, in which each entry says where
// it is from. The policy that is read from it is the translation's.
func (t *Translation) Render(file string) []byte {
	w := &writer{t: t, file: file}
	w.comment("Imported from " + file + ", settings of " + string(t.Tool) + ".")
	if len(t.Stricter) > 0 {
		w.comment("Stricter than there: " + strings.Join(t.Stricter, ", ") + ".")
	}
	if len(t.Lost) > 0 {
		w.comment("Not carried:")
		for _, n := range t.Lost {
			w.comment("  " + n.What + w.place(n.Pos) + ": " + n.Why)
		}
	}
	p := t.Policy
	p.Schema = schemaAddress
	w.object(reflect.ValueOf(p), "", 0)
	w.b.WriteString("\n")
	return []byte(w.b.String())
}

// writer writes JSON with comments.
type writer struct {
	b    strings.Builder
	t    *Translation
	file string
}

// comment writes a line, from which no text of the file can break out.
func (w *writer) comment(text string) { w.b.WriteString("// " + plain.Text(text) + "\n") }

func (w *writer) line(depth int, text, from string) {
	w.b.WriteString(strings.Repeat("  ", depth) + text + ",")
	if from != "" {
		w.b.WriteString(" // " + plain.Text(from))
	}
	w.b.WriteString("\n")
}

// place names a place, shortly if it is in the file that was imported.
func (w *writer) place(pos policy.Pos) string {
	switch {
	case pos.File == "":
		return ""
	case isTemplate(pos.File):
		return ", " + pos.File
	case pos.File == w.file:
		return fmt.Sprintf(", line %d", pos.Line)
	}
	return fmt.Sprintf(", %s:%d", filepath.Base(pos.File), pos.Line)
}

// from says where an entry is from.
func (w *writer) from(key, entry string) string {
	o := policy.Origin{Key: key, Entry: entry}
	return strings.TrimPrefix(strings.TrimPrefix(", "+w.t.Reasons[o]+w.place(w.t.Policy.Origins[o]), ", , "), ", ")
}

// object writes the keys of a struct that say something.
func (w *writer) object(v reflect.Value, at string, depth int) {
	w.b.WriteString("{\n")
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "-" && !v.Field(i).IsZero() {
			key := strings.TrimPrefix(at+"."+name, ".")
			w.value(v.Field(i), key, fmt.Sprintf("%q: ", name), depth+1)
		}
	}
	w.b.WriteString(strings.Repeat("  ", depth) + "}")
}

func (w *writer) value(v reflect.Value, key, label string, depth int) {
	indent := strings.Repeat("  ", depth)
	switch list := v.Interface().(type) {
	case policy.StringList:
		w.line(depth, label+text(list), "")
		return
	case []string:
		w.b.WriteString(indent + label + "[\n")
		for _, e := range list {
			w.line(depth+1, text(e), w.from(key, e))
		}
		w.b.WriteString(indent + "],\n")
		return
	case map[string]string:
		w.b.WriteString(indent + label + "{\n")
		for _, name := range slices.Sorted(maps.Keys(list)) {
			w.line(depth+1, text(name)+": "+text(list[name]), w.from(key, name))
		}
		w.b.WriteString(indent + "},\n")
		return
	case []policy.NetworkRule:
		w.b.WriteString(indent + label + "[\n")
		for i := range list {
			w.line(depth+1, text(list[i]), w.from(key, fmt.Sprint(i)))
		}
		w.b.WriteString(indent + "],\n")
		return
	}
	if v.Kind() == reflect.Struct {
		w.b.WriteString(indent + label)
		w.object(v, key, depth)
		w.b.WriteString(",\n")
		return
	}
	w.line(depth, label+text(v.Interface()), w.from(key, ""))
}

// text is a value as JSON in one line.
func text(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Every value of a policy has a JSON form.
		panic(err)
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if strings.HasPrefix(s, "{") {
		s = strings.NewReplacer(`":"`, `": "`, `":[`, `": [`, `","`, `", "`, `],"`, `], "`).Replace(s)
	}
	return s
}
