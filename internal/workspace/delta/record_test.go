package delta

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() Record {
	return Record{
		Name: "calm-oak", Owner: 1000, Created: time.Unix(1, 5).UTC(), Started: time.Unix(2, 0).UTC(),
		Target: "/w\xff\n", State: Kept, Stack: []Lower{{Layer: "a-1"}, {Dir: "/home/u/p\nq\xfe"}}, Sealing: "b2", Resetting: true, Base: []string{"a-1", "c3"}, Source: "/home/u/s\n\xfd",
	}
}

func TestRecordComesBackAsItWas(t *testing.T) {
	want := sample()
	got, err := parseRecord(want.append(nil))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestEveryPartOfARecordIsRefused(t *testing.T) {
	whole := sample()
	data := whole.append(nil)
	for n := range len(data) {
		if _, err := parseRecord(data[:n]); err == nil {
			t.Fatalf("%d of %d bytes are taken for a record", n, len(data))
		}
	}
}

func TestRecordThatLeadsElsewhereIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"name":             func(r *Record) { r.Name = "../x" },
		"hidden name":      func(r *Record) { r.Name = ".x" },
		"empty name":       func(r *Record) { r.Name = "" },
		"long name":        func(r *Record) { r.Name = strings.Repeat("x", 65) },
		"layer":            func(r *Record) { r.Stack[0].Layer = "../../etc" },
		"base":             func(r *Record) { r.Base[0] = "../x" },
		"source":           func(r *Record) { r.Source = "s" },
		"source of what":   func(r *Record) { r.Base = nil },
		"sealing":          func(r *Record) { r.Sealing = "a/b" },
		"relative":         func(r *Record) { r.Stack[1].Dir = "p" },
		"directory on top": func(r *Record) { r.Stack[0], r.Stack[1] = r.Stack[1], r.Stack[0] },
		"nothing below":    func(r *Record) { r.Stack = nil },
		"state":            func(r *Record) { r.State = "odd" },
	} {
		r := sample()
		change(&r)
		if _, err := parseRecord(r.append(nil)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzRecord(f *testing.F) {
	r := sample()
	f.Add(r.append(nil))
	f.Add([]byte(header + "end\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		again, err := parseRecord(r.append(nil))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v came back as %+v, %v", r, again, err)
		}
	})
}
