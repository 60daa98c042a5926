// Package wire turns plain data into bytes and back: structs, slices, maps,
// pointers, strings, numbers. It is what programs of the same version of Bailey
// speak among each other, so there are no names and no versions in it, and the
// same value has always the same bytes: they can be hashed. Strings are bytes,
// unlike in JSON, where a path that is not UTF-8 would come back as another.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Append adds the form of a value. It panics for a type that has none, which is
// a mistake in the program.
func Append(b []byte, v any) []byte { return appendValue(b, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return binary.AppendUvarint(b, uint64(btoi(v.Bool())))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.String:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		return append(b, v.String()...)
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, exported(v, i))
		}
		return b
	case reflect.Array:
		return appendElements(b, v)
	case reflect.Slice:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendElements(binary.AppendUvarint(b, uint64(v.Len())+1), v)
	case reflect.Map:
		return appendMap(b, v)
	}
	panic("wire: no form for " + v.Type().String())
}

// exported returns a field. One that cannot be read by others would be left out
// in silence.
func exported(v reflect.Value, i int) reflect.Value {
	if f := v.Type().Field(i); !f.IsExported() {
		panic("wire: " + v.Type().String() + "." + f.Name + " is not exported")
	}
	return v.Field(i)
}

func appendElements(b []byte, v reflect.Value) []byte {
	if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
		return append(b, v.Bytes()...)
	}
	for i := range v.Len() {
		b = appendValue(b, v.Index(i))
	}
	return b
}

// appendMap sorts by the form of the keys.
func appendMap(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(v.Len())+1)
	type entry struct{ key, value []byte }
	var entries []entry
	for it := v.MapRange(); it.Next(); {
		entries = append(entries, entry{appendValue(nil, it.Key()), appendValue(nil, it.Value())})
	}
	slices.SortFunc(entries, func(a, b entry) int { return slices.Compare(a.key, b.key) })
	for _, e := range entries {
		b = append(append(b, e.key...), e.value...)
	}
	return b
}

func btoi(v bool) int {
	if v {
		return 1
	}
	return 0
}

var errTruncated = errors.New("wire: the data ends too early")

// Decode reads the form of a value into what v points to. Every byte must be
// used. What it allocates is bounded by a multiple of the data's length.
func Decode(data []byte, v any) error {
	d := decoder{data}
	if err := d.value(reflect.ValueOf(v).Elem()); err != nil {
		return err
	}
	if len(d.rest) > 0 {
		return fmt.Errorf("wire: %d bytes too many", len(d.rest))
	}
	return nil
}

type decoder struct{ rest []byte }

func (d *decoder) value(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		n, err := d.upTo(1)
		v.SetBool(n == 1)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, size := binary.Varint(d.rest)
		if err := d.skip(size, v.OverflowInt(n)); err != nil {
			return err
		}
		v.SetInt(n)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, size := binary.Uvarint(d.rest)
		if err := d.skip(size, v.OverflowUint(n)); err != nil {
			return err
		}
		v.SetUint(n)
		return nil
	case reflect.String:
		text, err := d.bytes()
		v.SetString(string(text))
		return err
	case reflect.Pointer:
		n, err := d.upTo(1)
		if n == 0 || err != nil {
			return err
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if err := d.value(exported(v, i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Array:
		return d.elements(v)
	case reflect.Slice:
		return d.slice(v)
	case reflect.Map:
		return d.mapping(v)
	}
	panic("wire: no form for " + v.Type().String())
}

func (d *decoder) skip(size int, overflow bool) error {
	if size <= 0 || overflow {
		return errTruncated
	}
	d.rest = d.rest[size:]
	return nil
}

// upTo reads a number that must not be larger.
func (d *decoder) upTo(most int) (int, error) {
	n, size := binary.Uvarint(d.rest)
	if err := d.skip(size, n > uint64(most)); err != nil {
		return 0, err
	}
	return int(n), nil
}

func (d *decoder) bytes() ([]byte, error) {
	n, err := d.upTo(len(d.rest))
	if err != nil || n > len(d.rest) {
		return nil, errTruncated
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text, nil
}

// length reads how many elements follow, or -1 for nil. Each takes a byte or
// more, so there cannot be more than bytes.
func (d *decoder) length() (int, error) {
	n, err := d.upTo(len(d.rest))
	if err == nil && n > len(d.rest)+1 {
		err = errTruncated
	}
	return n - 1, err
}

func (d *decoder) slice(v reflect.Value) error {
	n, err := d.length()
	if n < 0 || err != nil {
		return err
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes(append([]byte{}, d.rest[:n]...))
		d.rest = d.rest[n:]
		return nil
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	return d.elements(v)
}

func (d *decoder) elements(v reflect.Value) error {
	for i := range v.Len() {
		if err := d.value(v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) mapping(v reflect.Value) error {
	n, err := d.length()
	if n < 0 || err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	for range n {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if err := d.value(key); err != nil {
			return err
		}
		if err := d.value(value); err != nil {
			return err
		}
		v.SetMapIndex(key, value)
	}
	return nil
}
