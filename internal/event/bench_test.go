package event

import "testing"

func BenchmarkAudit(b *testing.B) {
	a := &Audit{Dir: b.TempDir() + "/x"}
	defer a.Close()
	e := samples()[0]
	for b.Loop() {
		a.Emit(&e)
	}
	if err := a.Err(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkLine(b *testing.B) {
	e := samples()[0]
	var line []byte
	for b.Loop() {
		line = e.AppendLine(line[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	e := samples()[0]
	line := e.AppendLine(nil)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	var f Fold
	e := samples()[0]
	for b.Loop() {
		f.Emit(&e)
	}
}
