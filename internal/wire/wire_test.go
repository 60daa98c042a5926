package wire

import (
	"bytes"
	"reflect"
	"testing"
)

type inner struct {
	Name  string
	Deep  *inner
	Flags [3]bool
}

type outer struct {
	Yes    bool
	Small  int8
	Big    int64
	Mask   uint32
	Text   string
	Bytes  []byte
	List   []string
	Inners []inner
	Map    map[string]int
	Nil    *int
}

func example() outer {
	return outer{
		Yes: true, Small: -128, Big: 1 << 62, Mask: 1<<32 - 1, Text: "a\x00\xff\n", Bytes: []byte{0, 255},
		List: []string{"", "x"}, Map: map[string]int{"b": 2, "a": 1, "": -3},
		Inners: []inner{{Name: "one", Deep: &inner{Name: "two", Flags: [3]bool{true, false, true}}}, {}},
	}
}

func TestValuesComeBackAsTheyWere(t *testing.T) {
	for _, want := range []outer{{}, example(), {List: []string{}, Bytes: []byte{}, Map: map[string]int{}}} {
		var got outer
		if err := Decode(Append(nil, want), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestTheSameValueHasAlwaysTheSameBytes(t *testing.T) {
	want := Append(nil, example())
	for range 20 {
		if got := Append(nil, example()); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
}

func TestDamagedDataIsRefused(t *testing.T) {
	whole := Append(nil, example())
	for i := range whole {
		var got outer
		if err := Decode(whole[:i], &got); err == nil {
			t.Errorf("the first %d bytes of %d were taken for all", i, len(whole))
		}
	}
	var got outer
	if err := Decode(append(whole, 0), &got); err == nil {
		t.Error("a byte too many was taken")
	}
	var small struct{ N int8 }
	if err := Decode(Append(nil, struct{ N int }{200}), &small); err == nil {
		t.Errorf("200 became %d", small.N)
	}
	var list struct{ L []string }
	if err := Decode([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, &list); err == nil {
		t.Error("a list longer than the data was taken")
	}
}

func TestHiddenFieldsAreAMistake(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a hidden field was left out in silence")
		}
	}()
	Append(nil, struct{ hidden int }{1})
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, example()))
	f.Add(Append(nil, outer{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, again outer
		if Decode(data, &got) != nil {
			return
		}
		if err := Decode(Append(nil, got), &again); err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%x: %+v came back as %+v, %v", data, got, again, err)
		}
	})
}
