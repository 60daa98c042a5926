package walls

import (
	"math"
	"slices"
)

// Time sums samples up, which are milliseconds.
func Time(name string, samples []float64) Timed {
	if samples == nil {
		samples = []float64{}
	}
	return Timed{
		Name: name, Samples: samples,
		Min: Quantile(samples, 0), P50: Quantile(samples, 0.5), P90: Quantile(samples, 0.9), P99: Quantile(samples, 0.99),
	}
}

// Quantile is the smallest sample that at least so large a share of all does not exceed.
// It is always one that was taken. Of none it is 0.
func Quantile(samples []float64, share float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	// A share that is no binary fraction must not lead to the next sample.
	rank := int(math.Ceil(share*float64(len(sorted)) - 1e-9))
	return sorted[max(0, rank-1)]
}
