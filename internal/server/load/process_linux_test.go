package load

import "testing"

func TestFiguresOfTheKernelAndOfPrometheusAreRead(t *testing.T) {
	rollup := "00400000-7ffd rw-p 00000000 00:00 0 [rollup]\nRss:    900 kB\nPss:                 512 kB\nPss_Anon: 7 kB\n"
	if got := field(rollup, "Pss:"); got != 512 {
		t.Errorf("Pss is %d", got)
	}
	if got := field(rollup, "Swap:"); got != 0 {
		t.Errorf("what is not there is %d", got)
	}
	if got := metric("# TYPE go_goroutines gauge\ngo_goroutines_more 3\ngo_goroutines 12\n", "go_goroutines"); got != 12 {
		t.Errorf("goroutines are %v", got)
	}
}
