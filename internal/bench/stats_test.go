package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Values worked out with R: wilcox.test, binomial quantiles.
func TestStatisticsAgreeWithTablesOfOthers(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 5e-4 {
			t.Errorf("%s: got %.5f, want %.5f", name, got, want)
		}
	}
	near("disjoint samples of 4", RankSum([]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}), 2.0/70)
	near("the same, the other way round", RankSum([]float64{5, 6, 7, 8}, []float64{1, 2, 3, 4}), 2.0/70)
	near("samples of 3 and 4 that cross", RankSum([]float64{1, 3, 5}, []float64{2, 4, 6, 7}), 0.4)
	near("five pairs on one side", SignedRank([]float64{1, 2, 3, 4, 5}), 0.0625)
	near("pairs on both sides", SignedRank([]float64{1, -2, 3, -4}), 0.875)
	near("equal values", RankSum([]float64{1, 1, 1}, []float64{1, 1, 1}), 1)
	near("no difference", SignedRank([]float64{0, 0}), 1)

	low, high := Interval([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	near("interval of ten, low", low, 2)
	near("interval of ten, high", high, 9)
	low, high = Interval([]float64{3, 1, 2})
	near("three values say nothing: low", low, 1)
	near("three values say nothing: high", high, 3)

	// With one value fewer than is enough, the whole span is not sure enough either.
	for n, want := range map[int]bool{Enough - 1: false, Enough: true} {
		if missed := math.Pow(0.5, float64(n-1)); (missed <= 0.05) != want {
			t.Errorf("the span of %d values misses the median with a probability of %.3f", n, missed)
		}
	}
}

func TestTheLeastProbabilityIsThatOfSamplesThatDoNotMeet(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {3, 4}, {5, 5}, {15, 20}} {
		a, b := make([]float64, size[0]), make([]float64, size[1])
		for i := range a {
			a[i] = float64(i)
		}
		for i := range b {
			b[i] = float64(100 + i)
		}
		if got, want := leastRankSum(len(a), len(b)), RankSum(a, b); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%d and %d values: got %g, want %g", len(a), len(b), got, want)
		}
		if got, want := leastSignedRank(len(b)), SignedRank(b); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%d pairs: got %g, want %g", len(b), got, want)
		}
	}
}

func TestProbabilitiesAreAdjustedForTheirNumber(t *testing.T) {
	got := adjust([]float64{0.04, 0.01, 0.03})
	want := []float64{0.06, 0.03, 0.06}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// The exact count and the approximation that takes over from it must meet.
func TestTheApproximationContinuesTheExactCount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b := make([]float64, 20), make([]float64, 20)
		for i := range a {
			a[i], b[i] = random.Float64(), random.Float64()+0.2
		}
		exact := RankSum(a, b)
		n, m := 20.0, 20.0
		ranks, _ := rank(append(append([]float64{}, a...), b...))
		u := -n * (n + 1) / 2
		for _, r := range ranks[:20] {
			u += r
		}
		approximate := normal(toMean(u-n*m/2) / math.Sqrt(n*m/12*(n+m+1)))
		if math.Abs(exact-approximate) > 0.01 {
			t.Fatalf("exact %.4f, approximate %.4f", exact, approximate)
		}
	}
}

// A range with a confidence of 95 % misses the median at most once in twenty.
func TestIntervalsMissAsRarelyAsTheySay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	missed, rounds := 0, 4000
	for range rounds {
		values := make([]float64, 30)
		for i := range values {
			values[i] = math.Exp(random.NormFloat64()) // skewed, as times are; its median is 1
		}
		if low, high := Interval(values); low > 1 || high < 1 {
			missed++
		}
	}
	if missed > rounds/20 {
		t.Errorf("missed %d of %d", missed, rounds)
	}
}
